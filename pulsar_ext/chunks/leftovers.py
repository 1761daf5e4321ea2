"""Chunks that no consumer can receive: of messages that have lost their beginning, have no end, or were written twice.

A broker that was killed, or a producer that was cut off or killed, leaves them. Consumers of the C++ client drop them
and leave them unacknowledged, and a chunk that is there twice has them drop the message, though all of it is there.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pulsar_ext.errors import AdminError
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName

from .search import entry_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pulsar_ext.admin import EntryMetadata, InternalStats, PulsarAdmin


_MOST_ENTRIES = 100
"""So many entries are looked at; each takes a request."""
_BEFORE, _AROUND = 50, 150
"""How many entries before a position are looked at, and how many in all, to see how many messages are begun."""
_PATIENCE_SECONDS = 60.0
"""How old a message is at least that is taken for one without an end, as `expireTimeOfIncompleteChunkedMessage`."""
_NOWHERE = Position(-1, -1)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Where the chunks are that no consumer can receive."""

    useless: tuple[Position, ...]
    """Without a beginning, or before others that are the whole message."""
    endless: tuple[Position, ...]
    """Of messages without an end; it may be on its way all the same, where the producer's clock is late."""
    hides_message: bool
    """Whether consumers drop a message for one of them, that they can receive when it is acknowledged."""
    whole: tuple[tuple[Position, ...], ...] = ()
    """The chunks of each message that is whole, in order."""


def unacknowledged(stats: InternalStats, subscription: str) -> Iterator[Position]:
    """Give every entry of a topic that a subscription has not acknowledged, or not all of it, in order."""
    cursor, ledgers = stats.cursors[subscription], Ledgers(stats.ledger_sizes())
    acknowledged = iter(cursor.individually_deleted)
    ahead = next(acknowledged, None)
    at = ledgers.next(cursor.mark_delete_position)
    while at is not None:
        while ahead is not None and ahead.last < at:
            ahead = next(acknowledged, None)
        if ahead is not None and at in ahead:
            at = ledgers.next(ahead.last)
        else:
            yield at
            at = ledgers.next(at)


def ends_in_a_half(admin: Callable[[], PulsarAdmin], topic: str) -> bool:
    """Whether a topic, or a partition of it, ends in a chunked message that has no end: the broker calls it readable.

    Args:
        admin: gives the admin API; where that does not say, nothing ends so.
        topic: with or without partitions.
    """
    name = TopicName.parse(topic)
    with contextlib.suppress(AdminError):
        return any(_has_no_end(admin(), part) for part in name.parts(admin().partitions(name)))
    return False


def _has_no_end(admin: PulsarAdmin, topic: TopicName) -> bool:
    try:
        last = admin.examine(topic, 1)
    except AdminError:  # it is empty
        return False
    return last.chunk_id is not None and last.chunk_id + 1 < (last.num_chunks or 0)


def find_leftovers(admin: PulsarAdmin, topic: str, subscription: str, stats: InternalStats) -> Leftovers:
    """Find those among the first hundred entries that a subscription has not acknowledged, by a topic's statistics.

    Raises:
        AdminError: the admin API refused or did not answer.
    """
    positions = unacknowledged(stats, subscription)
    found = [entry_headers(admin, topic, position) for position in islice(positions, _MOST_ENTRIES)]
    entries = [one for one in found if one is not None]
    if not entries or len(entries) < len(found):  # the topic is moving, or was trimmed meanwhile
        return Leftovers((), (), hides_message=False)
    # What has its end behind the last entry that was looked at cannot be told from what has none.
    seen = entries[-1].publish_time if next(positions, None) is not None else int(time.time() * 1000)
    return leftovers_among(entries, seen - int(_PATIENCE_SECONDS * 1000))


def leftovers_among(entries: Sequence[EntryMetadata], settled: int) -> Leftovers:
    """Find those among entries, in order, that a subscription has not acknowledged (pure).

    Args:
        entries: the first ones, without a gap.
        settled: messages that were published before, in milliseconds since the epoch, have their end by now.
    """
    messages: dict[object, list[EntryMetadata]] = {}
    for one in entries:
        if one.is_chunk:
            messages.setdefault((one.uuid, one.producer_name, one.sequence_id), []).append(one)
    useless: list[Position] = []
    endless: list[Position] = []
    hides_message = False
    for chunks in messages.values():
        parts, begun = _dropped(chunks)
        for dropped in parts:
            hidden = _hidden(dropped)
            hides_message |= bool(hidden)
            may_go_on = False
            for one in dropped:
                begins = not one.chunk_id and one.position > max(hidden, default=_NOWHERE)
                may_go_on |= begins and dropped is parts[-1]
                if may_go_on:
                    begun.append(one)  # of a message whose end is on its way, for all that is known
                elif one.position not in hidden:
                    useless.append(one.position)
        endless += (one.position for one in begun if one.publish_time < settled)
    whole = tuple(tuple(one.position for one in chunks) for chunks in messages.values() if _is_whole(chunks))
    return Leftovers(tuple(sorted(useless)), tuple(sorted(endless)), hides_message, tuple(sorted(whole)))


def _is_whole(chunks: Sequence[EntryMetadata]) -> bool:
    return [one.chunk_id for one in chunks] == list(range(chunks[0].num_chunks or 0))


def begun_at_a_time(admin: PulsarAdmin, topic: str, stats: InternalStats, mark: Position) -> int:
    """Return how many chunked messages are begun and not ended at a time around a position, by a topic's statistics.

    Raises:
        AdminError: the admin API refused or did not answer.
    """
    ledgers = Ledgers(stats.ledger_sizes())
    found: list[EntryMetadata | None] = []
    at = ledgers.next(Position(mark.ledger_id, max(mark.entry_id - _BEFORE, -1)))
    while at is not None and len(found) < _AROUND:
        found.append(entry_headers(admin, topic, at))
        at = ledgers.next(at)
    return most_begun(one for one in found if one is not None)


def most_begun(entries: Iterable[EntryMetadata]) -> int:
    """Return how many chunked messages of some entries, in order, are begun and not ended at a time (pure)."""
    messages: dict[object, list[Position]] = {}
    for one in entries:
        if one.is_chunk:
            messages.setdefault((one.uuid, one.producer_name, one.sequence_id), []).append(one.position)
    spans = [(chunks[0], chunks[-1]) for chunks in messages.values()]
    return max((sum(begin <= at < end for begin, end in spans) for at, _ in spans), default=0)


def _dropped(chunks: Sequence[EntryMetadata]) -> tuple[list[list[EntryMetadata]], list[EntryMetadata]]:
    """Tell which chunks of one name the C++ client drops.

    Returns:
        Those before, between and behind the messages that it delivers, and those with which it waits for more.
    """
    parts: list[list[EntryMetadata]] = [[]]
    begun: list[EntryMetadata] = []
    for one in chunks:
        if one.chunk_id != len(begun):
            parts[-1] += (*begun, one)
            begun = []
            continue
        begun.append(one)
        if len(begun) == one.num_chunks:
            parts.append([])
            begun = []
    return parts, begun


def _hidden(dropped: Sequence[EntryMetadata]) -> set[Position]:
    """Give the chunks of whole messages, one behind the other, that can be received without the rest."""
    hidden: set[Position] = set()
    while whole := _last_whole(dropped):
        hidden |= whole
        dropped = [one for one in dropped if one.position < min(whole)]
    return hidden


def _last_whole(chunks: Sequence[EntryMetadata]) -> set[Position]:
    """Give the last chunks that are a whole message; empty if there are none."""
    # Once for each size: what is not there up to its last chunk is not there up to an earlier one.
    for size in dict.fromkeys((one.num_chunks, one.total_chunk_size) for one in reversed(chunks)):
        wanted, whole = (size[0] or 0) - 1, set()
        for one in reversed(chunks):
            if (one.num_chunks, one.total_chunk_size) == size and one.chunk_id == wanted:
                whole.add(one.position)
                wanted -= 1
        if wanted < 0:
            return whole
    return set()
