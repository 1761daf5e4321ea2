"""Search for all chunks of a message, from any of its ids; mirrors Java's `ChunkMessageIdImpl` (PIP-107).

Each chunk is an entry whose headers contain its message's uuid, its chunk number and the number of chunks. Chunks of
several producers interleave; a message's own chunks are in order, mostly adjacent, sometimes across ledgers.
"""

from __future__ import annotations

from typing import NamedTuple

from pulsar_ext.admin import EntryMetadata, PulsarAdmin
from pulsar_ext.errors import AdminNotFound, IncompleteChunkedMessage, MessageIdNotFound, MessageIdUnresolved
from pulsar_ext.ids.position import Ledgers, Position

_MAX_FOREIGN_ENTRIES = 10_000
"""Limit of other messages' entries that a search reads, about 20 s of requests."""


def entry_headers(admin: PulsarAdmin, topic: str, position: Position) -> EntryMetadata | None:
    """Return the headers of an entry; None if it does not exist."""
    try:
        return admin.entry(topic, position.ledger_id, position.entry_id)
    except AdminNotFound:
        return None


def entry_not_found(position: Position) -> MessageIdNotFound:
    """Return the error for a position without an entry."""
    return MessageIdNotFound(
        f"Entry {position} not found: it was trimmed, deleted, or is beyond the end of the topic.", position=position
    )


class Chunks(NamedTuple):
    """Positions of the chunks of one message, or of one entry, which may be a batch of several `messages`."""

    positions: tuple[Position, ...]
    messages: int = 1


def resolve_chunks(admin: PulsarAdmin, topic: str, position: Position) -> Chunks:
    """Return all chunks of the message with a chunk at `position`; raise if one is missing, or too far away."""
    start = entry_headers(admin, topic, position)
    if start is None:
        raise entry_not_found(position)
    if not start.is_chunk:
        return Chunks((position,), start.num_messages_in_batch or 1)
    chunk, count = start.chunk_id or 0, start.num_chunks or 0
    walk = _Walk(admin, topic, start)
    before = walk.collect(position, range(chunk - 1, -1, -1), -1)
    after = walk.collect(position, range(chunk + 1, count), +1)
    return Chunks((*reversed(before), position, *after))


class _Walk:
    """Walk from a known chunk to the other chunks of its message."""

    def __init__(self, admin: PulsarAdmin, topic: str, known: EntryMetadata) -> None:
        self._admin, self._topic, self._known = admin, topic, known
        self._ledgers: Ledgers | None = None

    def collect(self, origin: Position, wanted: range, step: int) -> list[Position]:
        """Return the positions of the chunks `wanted`, in that order, going from `origin` by `step` entries."""
        if not wanted:
            return []
        # Chunks are usually adjacent: if the last wanted chunk is at its minimal distance, so are all in between.
        far = Position(origin.ledger_id, origin.entry_id + step * len(wanted))
        if far.entry_id >= 0 and self._is_chunk(far, wanted[-1]):
            return [Position(far.ledger_id, origin.entry_id + step * (i + 1)) for i in range(len(wanted))]
        found: list[Position] = []
        at = origin
        foreign = 0
        while len(found) < len(wanted):
            following = self._next(at, step)
            if following is None:
                raise self._incomplete(origin, wanted[len(found)], step)
            at = following
            if self._is_chunk(at, wanted[len(found)]):
                found.append(at)
            elif (foreign := foreign + 1) > _MAX_FOREIGN_ENTRIES:
                raise MessageIdUnresolved(
                    f"Chunk {wanted[len(found)]} of the message at {origin} is more than {_MAX_FOREIGN_ENTRIES} "
                    "entries away. Nothing was changed.",
                    position=origin,
                )
        return found

    def _is_chunk(self, at: Position, chunk: int) -> bool:
        headers, known = entry_headers(self._admin, self._topic, at), self._known
        # A header cannot represent every character of a name, so the uuid alone could be another producer's.
        return headers is not None and (
            (headers.uuid, headers.producer_name, headers.sequence_id, headers.chunk_id)
            == (known.uuid, known.producer_name, known.sequence_id, chunk)
        )

    def _next(self, at: Position, step: int) -> Position | None:
        """Return the next existing entry, across ledgers; None at either end of the topic."""
        if step < 0 and at.entry_id:
            return Position(at.ledger_id, at.entry_id - 1)
        if self._ledgers is None:
            self._ledgers = Ledgers(self._admin.internal_stats(self._topic).ledger_sizes())
        return self._ledgers.number(self._ledgers.up_to(at) + step)

    def _incomplete(self, origin: Position, chunk: int, step: int) -> IncompleteChunkedMessage:
        why = "was trimmed or deleted" if step < 0 else "is not written (yet)"
        return IncompleteChunkedMessage(
            f"The message at {origin} has {self._known.num_chunks} chunks and its chunk {chunk} {why}, so no client "
            "can assemble it.",
            position=origin,
            chunk_id=chunk,
            num_chunks=self._known.num_chunks,
        )
