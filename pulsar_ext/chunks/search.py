"""Search for all chunks of a message, from any of its ids (pure); mirrors Java's `ChunkMessageIdImpl` (PIP-107).

Each chunk is an entry whose headers contain its message's uuid, its chunk number and the number of chunks.
`find_chunks` reads those headers. Chunks of several producers interleave; a message's own chunks are in order, mostly
adjacent, sometimes across ledgers.

A search is a generator: it yields queries and gets the answers, so it runs without a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pulsar_ext.errors import AdminNotFound, IncompleteChunkedMessage, MessageIdNotFound, MessageIdUnresolved
from pulsar_ext.ids.position import Position

if TYPE_CHECKING:
    from pulsar_ext.admin import EntryMetadata, PulsarAdmin


T = TypeVar("T")

Search = Generator[Any, Any, T]
"""A search: yields queries, whose docstrings describe the expected answers, and returns its result."""


@dataclass(frozen=True, slots=True)
class AskEntry:
    """Ask for the headers of one entry; the answer is an `EntryMetadata`, or None if the entry does not exist."""

    position: Position


@dataclass(frozen=True, slots=True)
class AskLedgers:
    """Ask for the size of every ledger of the topic; the answer is pairs `(ledger_id, entries)`."""


def run_search(search: Search[T], answer: Callable[[Any], object]) -> T:
    """Run a search and return its result.

    Args:
        search: the search.
        answer: returns the answer to a query; an exception ends the search.
    """
    reply: object = None
    while True:
        try:
            query = search.send(reply)
        except StopIteration as end:
            found: T = end.value
            return found
        reply = answer(query)


def entry_headers(admin: PulsarAdmin, topic: str, position: Position) -> EntryMetadata | None:
    """Answer an `AskEntry` by the admin API.

    Raises:
        AdminError: the admin API rejected the request or did not answer.
    """
    try:
        return admin.entry(topic, position.ledger_id, position.entry_id)
    except AdminNotFound:
        return None


_MAX_FOREIGN_ENTRIES = 10_000
"""Limit of other messages' entries that a search reads, about 20 s of requests."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Positions of the chunks of one message, first to last; a single position for an entry that is not chunked.

    Args:
        positions: of the chunks, or of the entry.
        messages: number of messages in the entry; more than one for a batch.
    """

    positions: tuple[Position, ...]
    messages: int = 1

    @property
    def is_chunked(self) -> bool:
        """True if the message has more than one chunk."""
        return len(self.positions) > 1


def find_chunks(position: Position) -> Search[Chunks]:
    """Return all chunks of the message that has a chunk at `position`.

    Raises:
        MessageIdNotFound: the topic has no entry at `position`.
        IncompleteChunkedMessage: a chunk is missing: trimmed, deleted, or not written yet.
        MessageIdUnresolved: the next chunk is more than 10,000 entries away.
    """
    start: EntryMetadata | None = yield AskEntry(position)
    if start is None:
        raise MessageIdNotFound(
            f"Entry {position} not found: it was trimmed, deleted, or is beyond the end of the topic.",
            position=position,
        )
    if not start.is_chunk:
        return Chunks((position,), start.num_messages_in_batch or 1)
    chunk, count = start.chunk_id or 0, start.num_chunks or 0
    walk = _Walk(start)
    before = yield from walk.collect(position, range(chunk - 1, -1, -1), -1)
    after = yield from walk.collect(position, range(chunk + 1, count), +1)
    return Chunks((*reversed(before), position, *after))


class _Walk:
    """Walk from a known chunk to the other chunks of its message."""

    def __init__(self, known: EntryMetadata) -> None:
        self._known = known
        self._ledgers: dict[int, int] | None = None

    def collect(self, origin: Position, wanted: range, step: int) -> Search[list[Position]]:
        """Return the positions of the chunks `wanted`, in that order, going from `origin` by `step` entries."""
        if not wanted:
            return []
        # Chunks are usually adjacent: if the last wanted chunk is at its minimal distance, so are all in between.
        far = Position(origin.ledger_id, origin.entry_id + step * len(wanted))
        if far.entry_id >= 0 and self._is_chunk((yield AskEntry(far)), wanted[-1]):
            return [Position(far.ledger_id, origin.entry_id + step * (i + 1)) for i in range(len(wanted))]
        found: list[Position] = []
        at = origin
        foreign = 0
        while len(found) < len(wanted):
            following = yield from self._next(at, step)
            if following is None:
                raise self._incomplete(origin, wanted[len(found)], step)
            at = following
            if self._is_chunk((yield AskEntry(at)), wanted[len(found)]):
                found.append(at)
            elif (foreign := foreign + 1) > _MAX_FOREIGN_ENTRIES:
                raise MessageIdUnresolved(
                    f"Chunk {wanted[len(found)]} of the message at {origin} is more than {_MAX_FOREIGN_ENTRIES} "
                    "entries away. Nothing was changed.",
                    position=origin,
                )
        return found

    def _is_chunk(self, headers: EntryMetadata | None, chunk: int) -> bool:
        known = self._known
        # A header cannot represent every character of a name, so the uuid alone could be another producer's.
        return headers is not None and (
            (headers.uuid, headers.producer_name, headers.sequence_id, headers.chunk_id)
            == (known.uuid, known.producer_name, known.sequence_id, chunk)
        )

    def _next(self, at: Position, step: int) -> Search[Position | None]:
        """Return the next existing entry, across ledgers; None at either end of the topic."""
        inside = at.entry_id + step
        if step < 0 and inside >= 0:
            return Position(at.ledger_id, inside)
        if self._ledgers is None:
            answer = yield AskLedgers()
            self._ledgers = dict(answer)
        if step > 0 and inside < self._ledgers.get(at.ledger_id, 0):
            return Position(at.ledger_id, inside)
        others = sorted(
            (ledger for ledger, entries in self._ledgers.items() if entries and (ledger - at.ledger_id) * step > 0),
            reverse=step < 0,
        )
        if not others:
            return None
        return Position(others[0], 0 if step > 0 else self._ledgers[others[0]] - 1)

    def _incomplete(self, origin: Position, chunk: int, step: int) -> IncompleteChunkedMessage:
        why = "was trimmed or deleted" if step < 0 else "is not written (yet)"
        return IncompleteChunkedMessage(
            f"The message at {origin} has {self._known.num_chunks} chunks and its chunk {chunk} {why}, so no client "
            "can assemble it.",
            position=origin,
            chunk_id=chunk,
            num_chunks=self._known.num_chunks,
        )


def resolve_chunks(admin: PulsarAdmin, topic: str, position: Position) -> Chunks:
    """Run `find_chunks` by the admin API.

    Args:
        admin: the client of the admin API.
        topic: the topic or the partition of the entry.
        position: any chunk of the message.

    Raises:
        MessageIdNotFound, IncompleteChunkedMessage, MessageIdUnresolved: raised by `find_chunks`.
        AdminError: the admin API rejected a request or did not answer.
    """
    return run_search(find_chunks(position), query_answerer(admin, topic))


def query_answerer(admin: PulsarAdmin, topic: str) -> Callable[[AskEntry | AskLedgers], object]:
    """Return a function that answers the queries of a search by the admin API."""

    def answer(query: AskEntry | AskLedgers) -> object:
        if isinstance(query, AskLedgers):
            return admin.internal_stats(topic).ledger_sizes()
        return entry_headers(admin, topic, query.position)

    return answer
