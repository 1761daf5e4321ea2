"""Chunks that no consumer can receive: of messages without a beginning or an end, or with chunks written twice.

They remain when a broker is killed, or when a producer is disconnected or killed. Consumers of the C++ client drop them
and do not acknowledge them. If a chunk exists twice, they drop the whole message, although all its chunks exist.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from pulsar_ext.admin import EntryMetadata, InternalStats, PulsarAdmin
from pulsar_ext.errors import AdminError
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName

from .search import entry_headers

_MAX_ENTRIES = 100
"""Limit of entries read; each takes a request."""
_BEFORE, _AROUND = 50, 150
"""Number of entries read before a position, and in total, to count incomplete messages."""
_EXPIRY_SECONDS = 60.0
"""Minimal age of an incomplete message that counts as lost, as `expireTimeOfIncompleteChunkedMessage`."""
_NOWHERE = Position(-1, -1)


class Leftovers(NamedTuple):
    """Positions of chunks that no consumer can receive."""

    useless: tuple[Position, ...]
    """Chunks without a beginning, or before others that are the whole message."""
    endless: tuple[Position, ...]
    """Chunks of messages without an end; if the producer's clock is slow, the end may still be in flight."""
    hides_message: bool
    """True if consumers drop a message because of these chunks, and can receive it once these are acknowledged."""
    whole: tuple[tuple[Position, ...], ...] = ()
    """Chunks of each complete message, in order."""


def unacknowledged(stats: InternalStats, subscription: str) -> Iterator[Position]:
    """Yield every entry of a topic that a subscription has not acknowledged completely, in order."""
    cursor, ledgers = stats.cursors[subscription], Ledgers(stats.ledger_sizes())
    for first, last in ledgers.unacknowledged(cursor.mark_delete_position, cursor.individually_deleted):
        yield from map(ledgers.__getitem__, range(first, last + 1))


def ends_in_incomplete_message(admin: Callable[[], PulsarAdmin], topic: str) -> bool:
    """Return whether a topic or partition ends with an incomplete, but readable, message; False if unknown."""
    name = TopicName.parse(topic)
    with contextlib.suppress(AdminError):
        return any(_has_no_end(admin(), part) for part in name.parts(admin().partitions(name)))
    return False


def _has_no_end(admin: PulsarAdmin, topic: TopicName) -> bool:
    try:
        last = admin.examine(topic, 1)
    except AdminError:  # the topic is empty
        return False
    return last.chunk_id is not None and last.chunk_id + 1 < (last.num_chunks or 0)


def find_leftovers(admin: PulsarAdmin, topic: str, subscription: str, stats: InternalStats) -> Leftovers:
    """Find leftovers among the first hundred unacknowledged entries of a subscription, by a topic's statistics."""
    positions = unacknowledged(stats, subscription)
    found = [entry_headers(admin, topic, position) for position in islice(positions, _MAX_ENTRIES)]
    entries = [one for one in found if one is not None]
    if not entries or len(entries) < len(found):  # the topic was trimmed in the meantime
        return Leftovers((), (), hides_message=False)
    # A message may end after the last entry that was read, so only older messages count as endless.
    seen = entries[-1].publish_time if next(positions, None) is not None else int(time.time() * 1000)
    return leftovers_among(entries, seen - int(_EXPIRY_SECONDS * 1000))


def leftovers_among(entries: Sequence[EntryMetadata], complete_before_ms: int) -> Leftovers:
    """Find leftovers among the first unacknowledged entries; messages before a time in ms are complete (pure)."""
    messages = chunked_messages(entries)
    useless: list[Position] = []
    endless: list[Position] = []
    hides_message = False
    for chunks in messages:
        parts, begun = _dropped(chunks)
        for dropped in parts:
            hidden = _hidden(dropped)
            hides_message |= bool(hidden)
            may_go_on = False
            for one in dropped:
                begins = not one.chunk_id and one.position > max(hidden, default=_NOWHERE)
                may_go_on |= begins and dropped is parts[-1]
                if may_go_on:
                    begun.append(one)  # of a message whose end may be in flight
                elif one.position not in hidden:
                    useless.append(one.position)
        endless += (one.position for one in begun if one.publish_time < complete_before_ms)
    whole = tuple(tuple(one.position for one in chunks) for chunks in messages if _is_whole(chunks))
    return Leftovers(tuple(sorted(useless)), tuple(sorted(endless)), hides_message, tuple(sorted(whole)))


def _is_whole(chunks: Sequence[EntryMetadata]) -> bool:
    return [one.chunk_id for one in chunks] == list(range(chunks[0].num_chunks or 0))


def count_concurrent_incomplete(admin: PulsarAdmin, topic: str, stats: InternalStats, mark: Position) -> int:
    """Return the greatest number of chunked messages that are incomplete at the same entry, around a position."""
    ledgers = Ledgers(stats.ledger_sizes())
    first = ledgers.up_to(Position(mark.ledger_id, max(mark.entry_id - _BEFORE, -1))) + 1
    around = (ledgers[number] for number in range(first, min(first + _AROUND, ledgers.entries + 1)))
    return max_concurrent_incomplete(filter(None, (entry_headers(admin, topic, at) for at in around)))


def max_concurrent_incomplete(entries: Iterable[EntryMetadata]) -> int:
    """Return the greatest number of chunked messages that are incomplete at the same entry (pure)."""
    spans = [(chunks[0].position, chunks[-1].position) for chunks in chunked_messages(entries)]
    return max((sum(begin <= at < end for begin, end in spans) for at, _ in spans), default=0)


def chunked_messages(entries: Iterable[EntryMetadata]) -> list[list[EntryMetadata]]:
    """Return the chunks of each chunked message among entries, in their order (pure)."""
    messages: dict[object, list[EntryMetadata]] = {}
    for one in entries:
        if one.is_chunk:
            messages.setdefault((one.uuid, one.producer_name, one.sequence_id), []).append(one)
    return list(messages.values())


def _dropped(chunks: Sequence[EntryMetadata]) -> tuple[list[list[EntryMetadata]], list[EntryMetadata]]:
    """Return the chunks of a message that the C++ client drops around delivered copies, and those it still holds."""
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
    """Return the chunks of complete messages that can be received without the other chunks, one after the other."""
    hidden: set[Position] = set()
    while whole := _last_whole(dropped):
        hidden |= whole
        dropped = [one for one in dropped if one.position < min(whole)]
    return hidden


def _last_whole(chunks: Sequence[EntryMetadata]) -> set[Position]:
    """Return the last chunks that form a complete message; empty without one."""
    # Once for each size: if the last chunk does not complete a message, an earlier one does not either.
    for size in dict.fromkeys((one.num_chunks, one.total_chunk_size) for one in reversed(chunks)):
        wanted, whole = (size[0] or 0) - 1, set()
        for one in reversed(chunks):
            if (one.num_chunks, one.total_chunk_size) == size and one.chunk_id == wanted:
                whole.add(one.position)
                wanted -= 1
        if wanted < 0:
            return whole
    return set()
