"""Having the broker count: the messages of a stretch of a topic, and whether there is a batch among them.

The broker reads without sending anything, and several stretches at a time. It stops after
`subscriptionBacklogScanMaxEntries` entries, 10,000 by default; the first answer shows how many that are.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pulsar_ext.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import PulsarAdmin
    from pulsar_ext.ids.position import Ledgers, Position

__all__ = ["messages_between", "only_singles"]

_AT_ONCE = 8

_TRIES = 3
"""How often two counts up to the end of the topic are begun again because a message came in between."""


def messages_between(
    admin: PulsarAdmin, topic: str, subscription: str, ledgers: Ledgers, first: Position, end: Position
) -> int | None:
    """Count the messages from the entry `first` up to, not including, the entry `end`.

    The broker counts up to the end of the topic, so it does that from both: the difference lies between them.

    Args:
        admin: has the broker count.
        topic: the full name of a topic without partitions.
        subscription: a subscription that has acknowledged neither of the two entries; it is not moved. What it has
            acknowledged between them is not counted.
        ledgers: the entries of the topic.
        first: an entry.
        end: a later one.

    Returns:
        None where the broker does not count, or counts what is no message, or while messages come all the time.
    """

    def count(start: Position) -> tuple[int, Position] | None:
        """Give how many messages there are from `start` on, and the last entry that was counted."""
        at, messages = start, 0
        while True:
            try:
                found = admin.analyze_backlog(topic, subscription, at)
            except AdminError:
                return None
            if found.marker_messages or found.first is None or found.last is None or found.first < at:
                return None
            if at == start != found.first:
                return None
            messages += found.messages
            upcoming = ledgers.next(found.last)
            if not found.aborted or upcoming is None:
                return messages, found.last
            at = upcoming

    for _ in range(_TRIES):
        with ThreadPoolExecutor(2) as pool:
            whole, rest = pool.map(count, (first, end))
        if whole is None or rest is None:
            return None
        if whole[1] == rest[1]:
            return whole[0] - rest[0]
    return None


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
