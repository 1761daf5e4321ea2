"""Chunks that no consumer can receive any more: the beginning of their message is gone, or acknowledged.

A broker that was killed, or a producer that was cut off, leaves them. The broker (4.2.4) never delivers them on a
Shared subscription, and keeps them in its backlog.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from pulsar_ext.ids.position import Ledgers

from .queries import run_search
from .search import asking, find_beginning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext.admin import InternalStats, PulsarAdmin
    from pulsar_ext.ids.position import Position

__all__ = ["leftovers", "unacknowledged"]

_MOST_ENTRIES = 100
"""So many entries are looked at; each takes a request, or several."""


def unacknowledged(stats: InternalStats, subscription: str) -> Iterator[Position]:
    """Give every entry of a topic that a subscription has not acknowledged, or not all of it, in order."""
    cursor, ledgers = stats.cursors[subscription], Ledgers(stats.ledger_sizes())
    at = ledgers.next(cursor.mark_delete_position)
    while at is not None:
        end = next((one.last for one in cursor.individually_deleted if at in one), None)
        if end is None:
            yield at
        at = ledgers.next(end or at)


def leftovers(admin: PulsarAdmin, topic: str, subscription: str) -> list[Position]:
    """Find chunks that nobody can receive among the first hundred entries that a subscription has not acknowledged.

    Raises:
        MessageIdUnresolved: the chunk before one of them is too far away.
        AdminError: the admin API refused or did not answer.
    """
    stats = admin.internal_stats(topic)
    cursor = stats.cursors[subscription]
    answer = cache(asking(admin, topic))  # the chunks of one message have the same beginning
    found = []
    for position in islice(unacknowledged(stats, subscription), _MOST_ENTRIES):
        first = run_search(find_beginning(position), answer)
        if first is None or cursor.acknowledges(first):
            found.append(position)
    return found
