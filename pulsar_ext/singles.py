"""Whether a stretch of a topic holds no batch, by having the broker count its entries and its messages.

The broker reads without sending anything, and several stretches at a time. It stops after
`subscriptionBacklogScanMaxEntries` entries, 10,000 by default; the first answer shows how many that are.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from .errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .admin import PulsarAdmin
    from .positions import Ledgers, Position

__all__ = ["only_singles"]

_AT_ONCE = 4


def only_singles(
    admin: PulsarAdmin,
    topic: str,
    subscription: str,
    ledgers: Ledgers,
    first: Position,
    last: Position,
    report: Callable[[Position], None],
) -> bool:
    """Whether every entry of a stretch that is not acknowledged is one message, or one chunk.

    Args:
        admin: has the broker count.
        topic: the full name of a topic without partitions.
        subscription: a subscription that stands before the stretch; it is not moved.
        ledgers: the entries of the topic.
        first: the first entry of the stretch.
        last: its last entry.
        report: is told the entry up to which all is counted, now and then.

    Returns:
        False as well where the broker did not count the whole stretch.
    """

    def count(start: Position, end: Position) -> Position | None:
        """Count from `start` at least to `end`; give the last entry that was counted, None if there is a batch."""
        at: Position | None = start
        while at is not None:
            try:
                found = admin.analyze_backlog(topic, subscription, at)
            except AdminError:
                return None
            if found.messages != found.entries or found.marker_messages or found.last is None or found.last < at:
                return None
            if found.last >= end:
                return found.last
            at = ledgers.next(found.last)
        return None

    reached = count(first, first)
    if reached is None:
        return False
    stride = ledgers.between(first, reached) + 1
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        starts = range(ledgers.up_to(reached) + 1, ledgers.up_to(last) + 1, stride)
        spans = [(ledgers.number(at), ledgers.number(at + stride - 1) or last) for at in starts]
        for end in pool.map(lambda span: span[0] and count(span[0], min(span[1], last)), spans):
            if end is None:
                return False
            report(end)
        return True
    finally:
        pool.shutdown(cancel_futures=True)
