"""The id of the message that is N messages later on a topic.

Messages count in the order in which a reader gets them: a batch one by one, a chunked message where its last chunk is.
`find_after` is a pure search; `message_id_after` runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.chunks.queries import AskEntry
from pulsar_ext.chunks.resolver import entry_topic
from pulsar_ext.chunks.search import find_chunks
from pulsar_ext.errors import IncompleteChunkedMessage, InvalidMessageId, InvalidUse, MessageIdNotFound
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName

from .backlog import Backlog, is_unbatched
from .boundaries import Chunk, PartialBatch
from .header_count import HeaderCounter
from .plan import cheapest_scan, check_count, scan_items
from .query_runner import QueryRunner

if TYPE_CHECKING:
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import EntryMetadata
    from pulsar_ext.chunks.queries import Search

    from .boundaries import ScanItem
    from .queries import Strategy

__all__ = ["FoundMessage", "find_after", "message_id_after"]


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """Where a message is: its entry, its place in the entry's batch, and its first chunk if it is chunked."""

    position: Position
    batch_index: int = -1
    batch_size: int = 0
    first_chunk: Position | None = None


def find_after(
    ledgers: Ledgers,
    start: Position,
    batch_index: int,
    count: int,
    *,
    unbatched: bool,
    chunked: bool,
    entry_bytes: float,
) -> Search[FoundMessage | None]:
    """Find the message that is `count` messages behind the one at `start`.

    Args:
        ledgers: the topic's entries.
        start: the message's entry, of a chunked one the last; -1:-1 stands before the first message of the topic.
        batch_index: the message in its batch, -1 if it is in none.
        count: 1 or more.
        unbatched: whether it is known that no entry behind `start` is a batch.
        chunked: whether the broker has noticed chunks on the topic.
        entry_bytes: the average size of an entry.

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
            return FoundMessage(start, inside, size)
        count = inside - size + 1
    backlog = Backlog(ledgers, start)
    first = backlog.entry(1)
    if first is None:
        return None
    counted = None if chunked else (yield from HeaderCounter(backlog, unbatched=unbatched).find(count, "message"))
    if counted is not None:
        if counted.messages < count:
            return None
        return (yield from _in_entry(counted.position, counted.size - 1 - (counted.messages - count), counted.size))
    return (yield from _scan(backlog, first, count, cheapest_scan(backlog, count, entry_bytes)))


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


def _in_entry(position: Position, index: int, size: int) -> Search[FoundMessage | None]:
    """Give a message of an entry; a batch may have one message only, which an id still calls its first."""
    if size == 1:
        headers = yield AskEntry(position)
        if headers is None or headers.num_messages_in_batch is None:
            return FoundMessage(position)
    return FoundMessage(position, index, size)


def _scan(backlog: Backlog, first: Position, count: int, strategy: Strategy) -> Search[FoundMessage | None]:
    items = scan_items(backlog, strategy, first)
    last = backlog.ledgers.last
    ask = next(items)
    while last is not None and ask.first <= last:
        item: ScanItem | None = yield ask
        if item is None:
            break
        if isinstance(item, Chunk):
            chunk_one = yield from _completed(item)
            if chunk_one is not None:
                count -= 1
                if not count:
                    return FoundMessage(item.position, first_chunk=chunk_one)
        elif not isinstance(item, PartialBatch):
            messages = (item.last - item.first + 1) * item.messages
            if count <= messages:
                entry, index = divmod(count - 1, item.messages)
                return (yield from _in_entry(Position(item.ledger_id, item.first + entry), index, item.messages))
            count -= messages
        ask = items.send(item)
    return None


def _completed(chunk: Chunk) -> Search[Position | None]:
    """Give the first chunk of the message that a chunk completes; None if it completes none."""
    if chunk.index + 1 < chunk.of:
        return None
    try:
        chunks = yield from find_chunks(chunk.position)
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
    runner = QueryRunner(context, name)
    backlog = runner.deliverable(backlog, stats)
    search = find_after(
        backlog.ledgers,
        backlog.mark_delete,
        start.batch_index(),
        count,
        unbatched=is_unbatched(internal, stats, backlog),
        chunked=bool(stats.raw.get("msgChunkPublished")),
        entry_bytes=internal.entry_bytes(),
    )
    found: FoundMessage | None = runner.run(search, backlog)
    return None if found is None else _as_id(found, TopicName.parse(name))


def _as_id(found: FoundMessage, topic: TopicName) -> MessageId:
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
