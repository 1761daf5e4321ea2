"""The id of the message that is N messages later on a topic (seed 000).

Messages count in the order in which a reader gets them: a batch one by one, a chunked message where its last chunk is.
`find_after` is a pure search like that of `chunks.py`; `message_id_after` runs it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.chunks.resolver import entry_topic
from pulsar_ext.chunks.search import AskEntry, find_chunks
from pulsar_ext.errors import IncompleteChunkedMessage, InvalidMessageId, InvalidUse, MessageIdNotFound
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName

from .backlog import Backlog
from .boundaries import Batch, Piece
from .header_count import Counter
from .plan import BIG_ENTRY_BYTES, read_facts
from .queries import Strategy
from .query_runner import Inquiry, check_count, is_single

if TYPE_CHECKING:
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import EntryMetadata

    from .boundaries import Fact

__all__ = ["Found", "find_after", "message_id_after"]

_FEW_ENTRIES = 256


@dataclass(frozen=True, slots=True)
class Found:
    """Where a message is: its entry, its place in the entry's batch, and its first chunk if it is chunked."""

    position: Position
    batch_index: int = -1
    batch_size: int = 0
    first_chunk: Position | None = None


Search = Generator[Any, Any, Found | None]


def find_after(
    ledgers: Ledgers, start: Position, batch_index: int, count: int, *, single: bool, chunked: bool, big_entries: bool
) -> Search:
    """Find the message that is `count` messages behind the one at `start`.

    Args:
        ledgers: the topic's entries.
        start: the message's entry, of a chunked one the last; -1:-1 stands before the first message of the topic.
        batch_index: the message in its batch, -1 if it is in none.
        count: 1 or more.
        single: whether it is known that no entry behind `start` is a batch.
        chunked: whether the broker has noticed chunks on the topic.
        big_entries: whether headers cost less than content.

    Returns:
        None past the end.

    Raises:
        MessageIdNotFound: there is no message at `start`.
        InvalidMessageId: the entry is a batch, and `batch_index` does not say which message of it is meant.
    """
    if start.ledger_id >= 0:
        headers: EntryMetadata | None = yield AskEntry(start)
        size = _check_start(start, batch_index, headers)
        inside = max(batch_index, 0) + count
        if inside < size:
            return Found(start, inside, size)
        count = inside - size + 1
    backlog = Backlog(ledgers, start)
    first = backlog.entry(1)
    if first is None:
        return None
    counted = None if chunked else (yield from Counter(backlog, single=single).find(count, "message"))
    if counted is not None:
        if counted.messages < count:
            return None
        return (yield from _in_entry(counted.position, counted.size - 1 - (counted.messages - count), counted.size))
    few = big_entries or min(count, backlog.entries(ledgers.last or first)) <= _FEW_ENTRIES
    return (yield from _scan(backlog, first, count, Strategy.HEADERS if few else Strategy.READER))


def _check_start(start: Position, batch_index: int, headers: EntryMetadata | None) -> int:
    """Give how many messages the entry of `start` holds."""
    if headers is None or batch_index >= headers.message_count:
        where = start if batch_index < 0 else f"{start}:{batch_index}"
        raise MessageIdNotFound(
            f"There is no message at {where}: it was trimmed, deleted, or never written.",
            position=start,
        )
    if batch_index < 0 and headers.message_count > 1:
        raise InvalidMessageId(
            f"{start} is a batch of {headers.message_count} messages: give the id of one of them, with its batch_index."
        )
    return headers.message_count


def _in_entry(position: Position, index: int, size: int) -> Search:
    """Give a message of an entry; a batch may have one message only, which an id still calls its first."""
    if size == 1:
        headers = yield AskEntry(position)
        if headers is None or headers.num_messages_in_batch is None:
            return Found(position)
    return Found(position, index, size)


def _scan(backlog: Backlog, first: Position, count: int, strategy: Strategy) -> Search:
    facts = read_facts(backlog, strategy, first)
    last = backlog.ledgers.last
    ask = next(facts)
    while last is not None and ask.first <= last:
        fact: Fact | None = yield ask
        if fact is None:
            break
        if isinstance(fact, Piece):
            chunk_one = yield from _completed(fact)
            if chunk_one is not None:
                count -= 1
                if not count:
                    return Found(fact.position, first_chunk=chunk_one)
        elif not isinstance(fact, Batch):
            messages = (fact.last - fact.first + 1) * fact.messages
            if count <= messages:
                entry, index = divmod(count - 1, fact.messages)
                return (yield from _in_entry(Position(fact.ledger_id, fact.first + entry), index, fact.messages))
            count -= messages
        ask = facts.send(fact)
    return None


def _completed(piece: Piece) -> Generator[Any, Any, Position | None]:
    """Give the first chunk of the message that a chunk completes; None if it completes none."""
    if piece.index + 1 < piece.of:
        return None
    try:
        chunks = yield from find_chunks(piece.position)
    except IncompleteChunkedMessage:
        return None
    return chunks.positions[0]


def message_id_after(context: ClientContext, topic: str, start: MessageId, count: int) -> MessageId | None:
    """Run `find_after`; see `Client.message_id_after`."""
    check_count(count)
    if start == MessageId.latest:
        raise InvalidUse("MessageId.latest stands behind every message, those to come included.")
    name = entry_topic(topic, start)
    admin = context.admin_api()
    internal = admin.internal_stats(name)
    if count == 0:
        return start
    backlog = Backlog(Ledgers(internal.ledger_sizes()), Position(start.ledger_id(), start.entry_id()))
    stats = admin.stats(name)
    search = find_after(
        backlog.ledgers,
        backlog.mark_delete,
        start.batch_index(),
        count,
        single=is_single(internal, stats, backlog),
        chunked=bool(stats.raw.get("msgChunkPublished")),
        big_entries=internal.entry_bytes() >= BIG_ENTRY_BYTES,
    )
    found: Found | None = Inquiry(context, name).run(search, backlog)
    return None if found is None else _as_id(found, TopicName.parse(name))


def _as_id(found: Found, topic: TopicName) -> MessageId:
    at, first = found.position, found.first_chunk
    partition = topic.partition_index
    data = MessageIdData(
        at.ledger_id,
        at.entry_id,
        partition,
        batch_index=found.batch_index,
        batch_size=found.batch_size,
        first_chunk=None if first is None else MessageIdData(first.ledger_id, first.entry_id, partition),
    )
    return MessageId.deserialize(encode(data), str(topic))
