"""Where a topic ends for consumers while transactions are open (pure).

The broker delivers nothing from the first message of an open transaction on, other messages included, until that
transaction ends: an abort would take its messages back. So how many messages follow there is not known yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext.chunks.queries import AskEntry

if TYPE_CHECKING:
    from pulsar_ext.admin import EntryMetadata
    from pulsar_ext.chunks.queries import Search
    from pulsar_ext.ids.position import Ledgers

__all__ = ["before_open_transactions"]


def before_open_transactions(ledgers: Ledgers) -> Search[Ledgers]:
    """Return the entries that consumers may get now: by the last one's headers and, if need be, those of a few more."""
    readable, last = 0, ledgers.last
    end = 0 if last is None else ledgers.up_to(last)
    if not (yield from _is_held_back(ledgers, end)):
        return ledgers
    while end - readable > 1:  # the entry `end` is held back, the entry `readable` is not
        middle = (readable + end) // 2
        if (yield from _is_held_back(ledgers, middle)):
            end = middle
        else:
            readable = middle
    return ledgers.first(readable)


def _is_held_back(ledgers: Ledgers, nth: int) -> Search[bool]:
    at = ledgers.number(nth)
    headers: EntryMetadata | None = None if at is None else (yield AskEntry(at))
    return headers is not None and headers.txn_uncommitted
