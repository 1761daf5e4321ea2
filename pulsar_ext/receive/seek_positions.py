"""Positions of seeks: the entry that the broker moves to, and the messages of that entry that are excluded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import pulsar

from pulsar_ext._native.handles import inner_of
from pulsar_ext._native.messages import InnerConsumer, InnerMessage, InnerMessageId, InnerReader
from pulsar_ext._native.results import POLL_MILLIS, NotConnected, Timeout, cooperative
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.ids.topic_name import TopicName

from .source import PendingReceives

Ask = Callable[..., object]
"""Calls an asynchronous method and retries: `ClientContext.call_with_retries()`."""

SEEK_RETRY_ERRORS = (NotConnected, pulsar.BrokerMetadataError, pulsar.NotAllowedError)
"""Errors of a seek that moved nothing, and is retried. The second one is the broker's, which has closed the consumer
for another seek or an operator's, while the C++ client has not reopened it yet. The third one is the C++ client's: an
earlier seek is still in flight, because with several topics the first failure is reported at once."""
PROBE: Final[dict[str, object]] = {"receiver_queue_size": 0, "reader_listener": None}
"""Arguments of a reader that searches for a position: without a queue, no message is in flight when it seeks."""
_HEAD_SECONDS, _MAX_AHEAD = 3.0, 1000
"""Seconds until the sought entry must arrive, and number of messages of other partitions that may precede it. On a
Failover subscription the broker waits a second before it sends; on a Shared one another consumer may receive it."""
_FIRST_MILLIS = 10_000
"""Milliseconds until the first message must arrive with all of its chunks."""
_BEYOND_ALL: Final = 1 << 62
"""A ledger id above all others that still has a successor: the broker moves to the end."""


class Head:
    """The messages that precede the sought one in its entry; for a chunked message, the entry of its last chunk.

    `last` is the batch index of the last of them, -1 without a batch. `partition` is None with several topics, whose
    ids do not name the topic; ledger ids are unique across topics.
    """

    def __init__(self, entry: tuple[int, int], last: int, partition: int | None = None) -> None:
        self.entry, self.last, self._partition = entry, last, partition

    @classmethod
    def of(cls, target: InnerMessageId, inclusive: bool, *, several_topics: bool) -> Head | None:
        """Return the messages that a seek to a C++ id excludes; None if it excludes none."""
        if target in (InnerMessageId.earliest, InnerMessageId.latest):
            return None
        data = decode(target.serialize())
        last = data.batch_index - inclusive
        if last < (0 if data.batch_index >= 0 else -1):
            return None
        return cls((data.ledger_id, data.entry_id), last, None if several_topics else data.partition)

    def has(self, inner_id: InnerMessageId) -> bool:
        """Return whether the message of a C++ id is one of these messages."""
        entry = (inner_id.ledger_id(), inner_id.entry_id())
        return bool(entry == self.entry and inner_id.batch_index() <= self.last)

    def is_past(self, inner_id: InnerMessageId) -> bool:
        """Return whether another C++ id shows that all of these messages have arrived, or were trimmed.

        An id of another partition does not show it, nor that of a chunked message that ends among this one's chunks.
        """
        ledger_id = inner_id.ledger_id()
        if ledger_id == self.entry[0]:
            return bool(inner_id.entry_id() >= self.entry[1])
        return bool(ledger_id > self.entry[0] and inner_id.partition() == self._partition)


def read_heads(
    heads: Iterable[Head], inner: InnerConsumer, on_excluded: Callable[[InnerMessage, int], None]
) -> list[InnerMessage]:
    """Receive the excluded messages from a C++ consumer; return other messages that arrived before the last of them."""
    ahead: list[InnerMessage] = []
    pending, receive = set(heads), cooperative(inner.receive)
    deadline = time.monotonic() + _HEAD_SECONDS
    while pending and time.monotonic() < deadline and len(ahead) < _MAX_AHEAD:
        try:
            message = receive(POLL_MILLIS)
        except Timeout:
            continue
        inner_id = message.message_id()
        head = next((one for one in pending if one.has(inner_id)), None)
        if head is None:
            ahead.append(message)
            pending = {one for one in pending if not one.is_past(inner_id)}
            continue
        on_excluded(message, head.last)
        if inner_id.batch_index() >= head.last:
            pending.remove(head)
    return ahead


def position_of(topic: str, target: InnerMessageId) -> InnerMessageId:
    """Return the C++ id of an entry that moves a consumer of several topics on one of them only.

    The earliest and the latest id would move all topics, so they are replaced by ids before and beyond all entries.
    """
    partition = TopicName.parse(topic).partition_index
    if target == InnerMessageId.earliest:
        target = InnerMessageId(partition, 0, 0, -1)
    elif target == InnerMessageId.latest:
        target = InnerMessageId(partition, _BEYOND_ALL, 0, -1)
    target.topic_name(topic)
    return target


@dataclass(frozen=True, slots=True)
class SeekPosition:
    """A position in a topic."""

    target: InnerMessageId
    is_exclusive: bool = False


def first_at(open_probe: Callable[..., pulsar.Reader], ask: Ask, millis: int) -> SeekPosition:
    """Return the position of the first message published at a time or later, or of the next message to be published."""
    while True:
        found = first_by_time(open_probe(InnerMessageId.latest, **PROBE), ask, millis)
        if found is not None:
            return SeekPosition(found)
        last = _first(open_probe(InnerMessageId.latest, **PROBE), ask)
        if last is None:
            return SeekPosition(InnerMessageId.earliest)  # the topic is empty, and later messages are wanted
        if last.publish_timestamp() < millis:
            return SeekPosition(last.message_id(), is_exclusive=True)  # also before messages published since


def first_by_time(probe: pulsar.Reader, ask: Ask, millis: int) -> InnerMessageId | None:
    """Return the C++ id of the first message that was published at a time or later, or None."""
    found = _first(probe, ask, lambda inner: ask(partial(inner.seek_async, millis), SEEK_RETRY_ERRORS))
    return None if found is None else found.message_id()


def _first(
    probe: pulsar.Reader, ask: Ask, move: Callable[[InnerReader], object] = lambda _: None
) -> InnerMessage | None:
    """Return the first C++ message of a reader, or None, and close the reader."""
    inner: InnerReader = inner_of(probe)
    try:
        move(inner)
        first = PendingReceives(inner.read_next_async, lambda _: False, lambda _: False)
        return first(_FIRST_MILLIS) if ask(inner.has_message_available_async) else None
    except Timeout:
        return None
    finally:
        inner.close()
