"""Opening a C++ consumer or reader in the place of another one, for the same consumer or reader of ours."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any, Protocol

import pulsar

from pulsar_ext._native.handles import inner_of
from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._native.results import POLL_MILLIS, NotConnected, Timeout
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName

from .pending import PendingReceives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext._native.seek_gate import SeekGate

__all__ = ["ConsumerFoundation", "ReaderFoundation"]

_NOT_THERE = (NotConnected, pulsar.BrokerMetadataError)
"""What a seek says that has moved nothing. The second is the broker's, which does not know the consumer: it has closed
it, for another seek or an operator's, and the C++ client has yet to hear of it, and to open it again."""
_HEAD_SECONDS, _MOST_AHEAD = 3.0, 1000
"""How long the entry that was sought may take to come, and how many messages of other partitions may come before it. On
a Failover subscription the broker waits for a second before it sends; on a Shared one another consumer may get it."""
_FIRST_MILLIS = 10_000
"""How long the first message may take, all chunks of it."""
_SENT_SECONDS = 0.1
"""How long the broker may take until it knows that it has sent everything to a consumer that was closed. If another one
of a Failover subscription is there by then, it reads on for that one, and moves the cursor back amid this read."""
_BUSY_SECONDS, _BUSY_LOOK_SECONDS = 10.0, 0.1
"""How long the broker may take until it knows that a consumer is gone whose connection was lost."""


class Standing(Protocol):
    """The consumer or reader of ours."""

    inner: Any

    def stand_on(self, official: Any) -> Any:
        """Go on with the C++ object of an official consumer or reader; gives it."""
        ...


class _Foundation:
    """What both have in common.

    Args:
        handle: the consumer or reader of ours.
        open_official: the official `subscribe()` or `create_reader()`.
        named: its arguments by name.
        ask: begins an asynchronous call of the C++ client, again while it is not connected, or says what it is given
            beside the call, and waits for the answer, which comes though it is closed.
    """

    def __init__(
        self,
        handle: Standing,
        open_official: Callable[..., Any],
        named: dict[str, Any],
        ask: Callable[..., Any],
    ) -> None:
        self._handle, self._open_official, self._named, self._ask = handle, open_official, named, ask

    def retire(self) -> None:
        """Close the C++ object, so that another one can take its place."""
        with contextlib.suppress(pulsar.PulsarException):  # it is not used any more, whatever it says
            self._handle.inner.close()

    def leaves_out(self, _: Any, /) -> bool:
        """Leave nothing out."""
        return False

    def have_queue(self) -> None:
        """Have the next C++ object keep a message ahead."""
        self._named["receiver_queue_size"] = 1

    def _open(self, **changed: Any) -> Any:
        return self._open_official(**self._named | changed)


class ConsumerFoundation(_Foundation):
    """The C++ consumer under a consumer: the subscription's cursor says where another one begins.

    Args:
        arguments: as above.
        gate: what a seek begins through.
        partitions_of: gives the names of a topic's partitions; of a topic without partitions its own.
        left_out: is called with the C++ id of a message before the one that was sought, in the same entry, and which
            message of its batch is the last of these: nobody else acknowledges them.
    """

    _head: _Head | None = None
    """What the last seek leaves out, until it has come."""
    _is_retired = False
    """Whether what the C++ consumer gives comes again: it is being closed, and is not yet replaced."""

    def __init__(
        self,
        *arguments: Any,
        gate: SeekGate,
        partitions_of: Callable[[str], list[str]],
        left_out: Callable[[Any, int], None],
    ) -> None:
        super().__init__(*arguments)
        self._gate, self._partitions_of, self._left_out = gate, partitions_of, left_out

    def retire(self) -> None:
        """Close the C++ consumer, so that another one can take its place; what it still gives is left out."""
        self._is_retired = True
        super().retire()

    def move(self, target: Any) -> None:
        """Move the cursor, which knows entries; what is before the message in its entry is left out later.

        Args:
            target: a C++ id, or a publish time in milliseconds.

        Raises:
            pulsar.PulsarException: it has not moved, or not on every topic or partition, or not for good.
        """
        # Twice: the broker stores the first one with what was acknowledged before, and a crash revives that.
        for _ in range(2):
            self._ask(self._gate.seeking(self._handle.inner, target), _NOT_THERE)
        self._head = None if isinstance(target, int) else _Head.of(target, self._named["start_message_id_inclusive"])

    def move_before(self, _: Any) -> None:
        """Do nothing: what was not acknowledged comes again."""

    def open_anew(self) -> tuple[Any, Iterator[Any]]:
        """Open another C++ consumer, by the same name; give it, and its first messages."""
        self.retire()  # again: a Ctrl-C may have come between
        if self._named["consumer_type"] == pulsar.ConsumerType.Failover:
            time.sleep(_SENT_SECONDS)
        self._is_retired = False
        if self._named["consumer_type"] == pulsar.ConsumerType.Shared:
            self._have_broker_forget()
        inner = self._handle.stand_on(self._open_when_free())
        ahead: list[Any] = []
        if self._head is not None and not self._named["message_listener"] and self._named["receiver_queue_size"]:
            ahead = self._head.read(inner, self._left_out)
            self._head = None
        return inner, iter(ahead)

    def _have_broker_forget(self) -> None:
        """Have the broker forget which consumer of a Shared subscription gets the rest of which chunked message.

        It remembers that beyond the consumer's end, and sends what is left to nobody, or waits for ever until that one
        takes more. A consumer of another type has the broker begin anew, if no other consumer is there. It is not done
        for a pattern, whose topics are not known here.
        """
        topics = self._named["topic"]
        for one in [topics] if isinstance(topics, str) else topics if isinstance(topics, list) else ():
            with contextlib.suppress(pulsar.PulsarException, InvalidUse):  # it is tried: others may be there
                for topic in self._partitions_of(one):
                    self._have_it_forget_on(topic)

    def _have_it_forget_on(self, topic: str) -> None:
        # Without a queue: where the broker reads for it, what the next consumer gets begins again in its midst.
        changed = {"topic": topic, "receiver_queue_size": 0, "message_listener": None}
        opened: list[Any] = []
        try:  # so that a Ctrl-C leaves it to be closed
            opened += map(call, (partial(self._open, consumer_type=pulsar.ConsumerType.Exclusive, **changed),))
        finally:
            for one in opened:
                inner_of(one).close()

    def _open_when_free(self) -> Any:
        """Open a consumer; the one before, or that of another type, may be there yet if a connection was lost."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return self._open()
            except pulsar.ConsumerBusy:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_BUSY_LOOK_SECONDS)

    def leaves_out(self, inner: Any, /) -> bool:
        """Whether a C++ message is before the one that was sought, in the same entry; then it is acknowledged.

        This is for those who have each message by itself: a listener, and who receives without a queue.
        """
        if self._is_retired:
            return True
        head = self._head
        if head is None:
            return False
        inner_id = inner.message_id()
        if head.has(inner_id):
            self._left_out(inner_id, head.last)
            return True
        if inner_id.ledger_id() == head.entry[0]:  # not of another partition
            self._head = None
        return False


class ReaderFoundation(_Foundation):
    """The C++ reader under a reader, whose place in the topic only itself knows."""

    _next: Any = None

    def move(self, target: Any) -> None:
        """Open another C++ reader elsewhere, which takes the place of this one when it is opened anew.

        Args:
            target: a C++ id, or a publish time in milliseconds.

        Raises:
            InvalidUse: it is an id of one of several partitions; nothing has moved.
        """
        if isinstance(target, int):
            self._move_to_time(target)
        elif self._is_of_several(target):
            raise InvalidUse(
                f"A reader of all partitions of {self._named['topic']} cannot seek to an id of one of them: the C++ "
                "client drops what is unread of the others. Open a reader for each partition, or seek to "
                "MessageId.earliest, to MessageId.latest or to a time."
            )
        else:
            self._next = self._open(start_message_id=target)

    def move_before(self, inner_id: Any) -> None:
        """The same, where the message of a C++ id, which is live, is the next one."""
        self._next = self._open(start_message_id=inner_id, start_message_id_inclusive=True)

    def _move_to_time(self, millis: int) -> None:
        """Open another C++ reader at the first message that was published at a time or later."""
        # Without a queue nothing is on its way when it seeks, of which half could be kept.
        probe = self._open(start_message_id=InnerMessageId.latest, receiver_queue_size=0, reader_listener=None)
        inner = inner_of(probe)
        try:
            self._ask(partial(inner.seek_async, millis), _NOT_THERE)
            first = PendingReceives(inner.read_next_async, lambda _: False, lambda _: False)
            found = first(_FIRST_MILLIS).message_id() if self._ask(inner.has_message_available_async) else None
        except Timeout:
            found = None
        finally:
            inner.close()
        if found is None or self._is_of_several(found):
            self._next = self._open(start_message_id=InnerMessageId.latest)
            self._ask(partial(inner_of(self._next).seek_async, millis), _NOT_THERE)
        else:
            self.move_before(found)

    def _is_of_several(self, inner_id: Any) -> bool:
        return inner_id.partition() >= 0 and not TopicName.parse(self._named["topic"]).is_partition

    def open_anew(self) -> tuple[Any, Iterator[Any]]:
        """Give the C++ reader that was opened."""
        return self._handle.stand_on(self._next), iter(())


class _Head:
    """The messages of an entry before the one that was sought.

    Args:
        entry: ledger and entry; no other topic has that ledger.
        last: which message of its batch is the last of them; -1 if it is not a batch.
    """

    def __init__(self, entry: tuple[int, int], last: int) -> None:
        self.entry, self.last = entry, last

    @classmethod
    def of(cls, target: Any, inclusive: bool) -> _Head | None:
        """Give what is before the message of a C++ id; None if nothing is.

        Args:
            target: the C++ id.
            inclusive: whether that message itself is not.
        """
        data = decode(target.serialize())
        if target in (InnerMessageId.earliest, InnerMessageId.latest) or data.first_chunk is not None:
            return None  # the C++ consumer leaves a last chunk without the others out by itself
        last = data.batch_index - inclusive
        if last < (0 if data.batch_index >= 0 else -1):
            return None
        return cls((data.ledger_id, data.entry_id), last)

    def has(self, inner_id: Any) -> bool:
        """Whether the message of a C++ id is one of them."""
        entry = (inner_id.ledger_id(), inner_id.entry_id())
        return bool(entry == self.entry and inner_id.batch_index() <= self.last)

    def read(self, inner: Any, left_out: Callable[[Any, int], None]) -> list[Any]:
        """Receive the messages from a C++ consumer, and give others that came before the last of them.

        Args:
            inner: the C++ consumer.
            left_out: see `ConsumerFoundation`.
        """
        ahead: list[Any] = []
        deadline = time.monotonic() + _HEAD_SECONDS
        while time.monotonic() < deadline and len(ahead) < _MOST_AHEAD:
            try:
                message = inner.receive(POLL_MILLIS)
            except Timeout:
                continue
            inner_id = message.message_id()
            if self.has(inner_id):
                left_out(inner_id, self.last)
                if inner_id.batch_index() < self.last:
                    continue
            else:
                ahead.append(message)
            if inner_id.ledger_id() == self.entry[0]:  # not of another partition
                break
        return ahead
