"""Where a seek goes: the entry that the broker moves to, and what of that entry is left out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext._native.handles import inner_of
from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._native.results import POLL_MILLIS, NotConnected, Timeout, cooperative
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.ids.topic_name import TopicName

from .source import PendingReceives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "NOT_THERE",
    "PROBE",
    "Head",
    "Place",
    "first_at",
    "first_by_time",
    "position_of",
    "read_heads",
]

NOT_THERE = (NotConnected, pulsar.BrokerMetadataError, pulsar.NotAllowedError)
"""What a seek says that has moved nothing. The second is the broker's, which does not know the consumer: it has closed
it, for another seek or an operator's, and the C++ client has yet to hear of it, and to open it again. The third is the
C++ client's own: an earlier seek is on its way, for of several topics the first that fails is the answer."""
PROBE: Final[dict[str, Any]] = {"receiver_queue_size": 0, "reader_listener": None}
"""How a reader is opened that is to find a place: without a queue nothing is on its way when it seeks."""
_HEAD_SECONDS, _MOST_AHEAD = 3.0, 1000
"""How long the entry that was sought may take to come, and how many messages of other partitions may come before it. On
a Failover subscription the broker waits for a second before it sends; on a Shared one another consumer may get it."""
_FIRST_MILLIS = 10_000
"""How long the first message may take, all chunks of it."""
_BEHIND_ALL: Final = 1 << 62
"""A ledger that is behind all others, and behind which there can be one: the broker goes to the end."""


class Head:
    """The messages of an entry before the one that was sought; of a chunked message its last chunk's entry.

    Args:
        entry: ledger and entry; no other topic has that ledger.
        last: which message of its batch is the last of them; -1 if it is not a batch.
        partition: of their topic, -1 if it has none; None where there are several topics, which an id does not name.
    """

    def __init__(self, entry: tuple[int, int], last: int, partition: int | None = None) -> None:
        self.entry, self.last, self._partition = entry, last, partition

    @classmethod
    def of(cls, target: Any, inclusive: bool, *, several_topics: bool) -> Head | None:
        """Give what is before the message of a C++ id; None if nothing is.

        Args:
            target: the C++ id.
            inclusive: whether that message itself is not.
            several_topics: whether messages of other topics come as well.
        """
        if target in (InnerMessageId.earliest, InnerMessageId.latest):
            return None
        data = decode(target.serialize())
        last = data.batch_index - inclusive
        if last < (0 if data.batch_index >= 0 else -1):
            return None
        return cls((data.ledger_id, data.entry_id), last, None if several_topics else data.partition)

    def has(self, inner_id: Any) -> bool:
        """Whether the message of a C++ id is one of them."""
        entry = (inner_id.ledger_id(), inner_id.entry_id())
        return bool(entry == self.entry and inner_id.batch_index() <= self.last)

    def is_behind(self, inner_id: Any) -> bool:
        """Whether a C++ id that is none of them says that all of them have come, or were trimmed.

        One of another partition does not, nor does that of a chunked message that ends among the chunks of this one.
        """
        ledger_id = inner_id.ledger_id()
        if ledger_id == self.entry[0]:
            return bool(inner_id.entry_id() >= self.entry[1])
        return bool(ledger_id > self.entry[0] and inner_id.partition() == self._partition)


def read_heads(heads: Iterable[Head], inner: Any, left_out: Callable[[Any, int], None]) -> list[Any]:
    """Receive what is left out from a C++ consumer, and give others that came before the last of that.

    Args:
        heads: what is left out.
        inner: the C++ consumer.
        left_out: see `ConsumerFoundation`.
    """
    ahead: list[Any] = []
    waiting, receive = set(heads), cooperative(inner.receive)
    deadline = time.monotonic() + _HEAD_SECONDS
    while waiting and time.monotonic() < deadline and len(ahead) < _MOST_AHEAD:
        try:
            message = receive(POLL_MILLIS)
        except Timeout:
            continue
        inner_id = message.message_id()
        head = next((one for one in waiting if one.has(inner_id)), None)
        if head is None:
            ahead.append(message)
            waiting = {one for one in waiting if not one.is_behind(inner_id)}
            continue
        left_out(message, head.last)
        if inner_id.batch_index() >= head.last:
            waiting.remove(head)
    return ahead


def position_of(topic: str, target: Any) -> Any:
    """Give the C++ id of an entry that has a consumer of several topics move on one of them.

    It moves all of them for the earliest and the latest id, so these are replaced by what is before and behind all.

    Args:
        topic: the full name of the topic or partition.
        target: a C++ id.
    """
    partition = TopicName.parse(topic).partition_index
    if target == InnerMessageId.earliest:
        target = InnerMessageId(partition, 0, 0, -1)
    elif target == InnerMessageId.latest:
        target = InnerMessageId(partition, _BEHIND_ALL, 0, -1)
    target.topic_name(topic)
    return target


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a topic.

    Args:
        target: a C++ id.
        is_exclusive: whether the place is behind that message.
    """

    target: Any
    is_exclusive: bool = False


def first_at(open_probe: Callable[..., Any], ask: Callable[..., Any], millis: int) -> Place:
    """Find the first message that was published at a time or later, or the place where the next one will be.

    Args:
        open_probe: opens an official reader of the topic, inclusive of the message that a C++ id names.
        ask: see `ReaderFoundation`.
        millis: the time, in milliseconds since the epoch.
    """
    while True:
        found = first_by_time(open_probe(InnerMessageId.latest, **PROBE), ask, millis)
        if found is not None:
            return Place(found)
        last = _first(open_probe(InnerMessageId.latest, **PROBE), ask)
        if last is None:
            return Place(InnerMessageId.earliest)  # there is none, and what comes is wanted
        if last.publish_timestamp() < millis:
            return Place(last.message_id(), is_exclusive=True)  # also of what was published since


def first_by_time(probe: Any, ask: Callable[..., Any], millis: int) -> Any:
    """Give the C++ id of the first message that was published at a time or later; None if there is none.

    Args:
        probe: an official reader without a queue, which is closed.
        ask: see `ReaderFoundation`.
        millis: the time, in milliseconds since the epoch.
    """
    found = _first(probe, ask, lambda inner: ask(partial(inner.seek_async, millis), NOT_THERE))
    return None if found is None else found.message_id()


def _first(probe: Any, ask: Callable[..., Any], move: Callable[[Any], object] = lambda _: None) -> Any:
    """Give the first C++ message that a reader reads, which is closed; None if there is none."""
    inner = inner_of(probe)
    try:
        move(inner)
        first = PendingReceives(inner.read_next_async, lambda _: False, lambda _: False)
        return first(_FIRST_MILLIS) if ask(inner.has_message_available_async) else None
    except Timeout:
        return None
    finally:
        inner.close()
