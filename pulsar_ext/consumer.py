"""Consumers: receive at full speed and without loss, and seek, acknowledge and redeliver whole messages.

What the official consumer does right stays its own: a received message is acknowledged by the C++ code that knows all
its chunks. Overridden is what goes wrong: a Ctrl-C in `receive()` swallows the next message; a deserialized or rebuilt
id of a chunked message acknowledges a part of it; a negative acknowledgement on a Shared or Key_Shared subscription
redelivers a part of it, which nobody can assemble. Mirrors Java's `ConsumerImpl`.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import nullcontext
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

import pulsar

from ._native.fork import closed, refuse_after_fork
from ._native.handles import ConsumerDoor, adopt
from ._native.messages import InnerMessage, inner_message_of
from ._native.results import POLL_MILLIS, Timeout
from ._runtime.callbacks import refuse_in_callback
from .ack.confirm import flush_acks
from .ack.scope import AckScope
from .chunks.resolver import as_message_id, seek_target
from .ids.message_id import MessageId, Origin, from_inner
from .message import Message
from .receive.filter import Screened
from .receive.many import NEVER, NOT_YET, NOTHING, ReceivingMany
from .receive.prefetch import Ahead
from .receive.record import Overheard

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from .ack.grouping import Acknowledger
    from .client.client import Client
    from .redelivery.tracker import Redelivery

__all__ = ["Consumer"]


class Consumer(ReceivingMany, ConsumerDoor):
    """A `pulsar.Consumer` that treats a chunked message as one, by whatever id; made by `Client.subscribe()`."""

    __slots__ = (
        "_acks",
        "_ahead",
        "_answers",
        "_batches",
        "_client",
        "_closed",
        "_hear",
        "_inbox",
        "_many",
        "_message_class",
        "_numbering",
        "_numbering_lock",
        "_quick",
        "_receive_call",
        "_redelivery",
        "_source",
        "_splits",
        "_topics",
    )

    def __init__(self) -> None:
        super().__init__()
        self._client: Client = None  # type: ignore[assignment]  # never opened
        self._closed = False
        self._message_class = Message
        self._many = {}
        self._source = self._quick = self._receive_call = self._inbox = self._acks = self.inner
        self._answers: Any = None
        self._splits = False
        self._redelivery: Any = self.inner
        self._batches: dict[int, Any] = {}
        self._numbering, self._numbering_lock = NEVER, threading.RLock()
        self._ahead = None

    @classmethod
    def _of(
        cls,
        official: pulsar.Consumer,
        client: Client,
        message_class: type[Message],
        topics: str | list[str] | re.Pattern[str],
        *,
        splits: bool,
        acks: Acknowledger,
        redelivery: Redelivery,
        queued: bool = True,
        numbers: bool = False,
        fetches: bool = False,
    ) -> Self:
        """Take over an official consumer.

        Args:
            official: the consumer; it is not used afterwards.
            client: the client that it belongs to.
            message_class: what its messages become.
            topics: what was subscribed to.
            splits: whether the broker redelivers single entries (Shared and Key_Shared subscriptions).
            acks: its acknowledgements.
            redelivery: what it wants to be redelivered.
            queued: whether the receiver queue has room, so that a receive with a timeout is possible.
            numbers: whether its messages may be numbered, see `Inbox`; not if any may come again out of order.
            fetches: whether messages may be fetched ahead, see `take_over_batches()`.
        """
        self = cls.__new__(cls)
        adopt(self, official, client)
        self._message_class = message_class
        self._topics = topics
        self._splits = splits
        self._batches = {}
        self._many = {}
        self._acks, self._inbox = acks, acks.inbox.messages
        self._closed = False
        self._redelivery = redelivery
        self._receive_from(self.inner.receive, None if queued else self.inner.receive_async)
        self._ahead = None
        if fetches:
            self._source = self._receive_call = self._ahead = Ahead(
                client.context, self.inner, self._source, self._receive_call
            )
        self._numbering, self._numbering_lock, self._quick = NEVER, threading.RLock(), NOTHING
        if redelivery.screens:
            self._receive_through(Screened(self._source, self._receive_call, redelivery.screen))
        elif numbers and queued:
            self._numbering = NOT_YET
            acks.numbers_for(weakref.ref(self))
        refuse_after_fork(self)
        return self

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Receive one message.

        A Ctrl-C ends the wait within 100 ms and loses no message.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            pulsar.Timeout: no message came in time.
            pulsar.AlreadyClosed: it is closed.
        """
        if timeout_millis is None or (type(timeout_millis) is int and timeout_millis >= POLL_MILLIS):
            new = self._message_class  # in two steps: Python 3.11 is slow to call what it finds in a slot
            message = new()
            try:
                while True:
                    for message.inner in self._quick:
                        return message
                    owner, numbered, _ = self._numbering
                    if get_ident() == owner:
                        for message.inner, message.number in numbered:
                            return message
                    self._refill()
            except Timeout:
                if timeout_millis is not None:
                    timeout_millis -= POLL_MILLIS
        else:
            self._claim()
        return self._receive(timeout_millis)

    def acknowledge(self, message: Any) -> None:
        """Acknowledge one message, all chunks of it, by the message or any id of it.

        Args:
            message: a received message, or an id: live, deserialized, parsed or rebuilt from numbers.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            MessageIdUnresolved: its chunks could not be found; nothing is acknowledged.
        """
        if type(message) is self._message_class:
            inbox = self._inbox
            inbox.append(message)
            acks = self._acks
            if len(inbox) >= acks.limit:
                acks.filled()
            elif not acks.scheduled:
                acks.schedule()
        elif type(message) is MessageId and self._acks.takes(message):
            self._acks.put(self._acks.inbox.ids, message)
        elif isinstance(message, InnerMessage | pulsar.Message):
            self.acknowledge(self._own(message))
        else:
            self._acks.add_id(message)

    def acknowledge_many(self, messages: Iterable[Any]) -> None:
        """Acknowledge several messages at once, each as `acknowledge()` would.

        Args:
            messages: received messages or ids, in any order.

        Raises:
            TopicRequired, MessageIdUnresolved: as `acknowledge()`; what came before it is acknowledged.
        """
        messages = list(messages)
        if {*map(type, messages)} <= {self._message_class}:
            self._acks.add_messages(messages)
        else:
            for message in messages:
                self.acknowledge(message)

    def acknowledge_cumulative(self, message: Any) -> None:
        """Acknowledge every message up to this one and it too, all chunks of it, by the message or any id of it.

        A chunked message of another producer that began before this one's last entry and ends after it is cut in two:
        that is how the broker's cursor works, for every client. Acknowledge one by one where such producers share a
        topic.

        Raises:
            pulsar.CumulativeAcknowledgementNotAllowedError: on a Shared or Key_Shared subscription.
        """
        if self._splits:
            if not isinstance(message, InnerMessage | pulsar.Message):
                self._acks.topic_of(as_message_id(message))
            raise pulsar.CumulativeAcknowledgementNotAllowedError(
                "Pulsar error: CumulativeAcknowledgementNotAllowedError: a Shared or Key_Shared subscription has no "
                "position up to which everything is acknowledged."
            )
        acks = self._acks
        if type(message) is self._message_class:
            acks.put(acks.inbox.positions, message)
        elif type(message) is MessageId and acks.takes(message):
            acks.put(acks.inbox.position_ids, message)
        elif isinstance(message, InnerMessage | pulsar.Message):
            acks.put(acks.inbox.positions, self._own(message))
        else:
            acks.add_cumulative(message)

    def flush_acks(self, confirm: bool = False, timeout_ms: int = 10_000) -> None:
        """Send what was acknowledged now, and on demand prove that the broker has it.

        Args:
            confirm: return only when the subscription's cursor on the broker shows every acknowledged message.
            timeout_ms: how long that may take, in milliseconds; without `confirm` nothing is waited for.

        Raises:
            AckNotConfirmed: the cursor does not show all of them in time; `missing` says which.
            AdminError: the admin API refused.
            pulsar.AlreadyClosed: it is closed.
        """
        refuse_in_callback(self._client, "flush_acks")
        flush_acks(self._client, self._acks, confirm=confirm, timeout_ms=timeout_ms)

    def pending_acks(self) -> int:
        """Count what was acknowledged and has not been sent: entries, and parts of batches."""
        pending: int = self._acks.pending
        return pending

    def ack_scope(
        self, messages: Iterable[Any] | None = None, *, confirm: bool = True, timeout_ms: int = 10_000
    ) -> AckScope:
        """Process some messages and acknowledge them whole at the end, or redeliver them whole after an exception.

        with consumer.ack_scope(consumer.receive_many(500)) as messages: …

        Args:
            messages: which; None for everything that this consumer receives inside the block.
            confirm: end only when the broker's cursor shows the acknowledgements.
            timeout_ms: how long that may take.
        """
        return AckScope(self, messages, confirm=confirm, timeout_ms=timeout_ms)

    def negative_acknowledge(self, message: Any) -> None:
        """Have one message redelivered after `negative_ack_redelivery_delay_ms`, whole, by the message or any id of it.

        On an Exclusive or Failover subscription the broker then redelivers everything that is not acknowledged.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            pulsar.AlreadyClosed: it is closed.
        """
        if self._closed:
            raise pulsar.AlreadyClosed("Pulsar error: AlreadyClosed: this Consumer was closed.")
        if self._numbering is not NEVER:  # what comes again comes some time later, in the midst of what is numbered
            self._number_no_more()
        if isinstance(message, pulsar.Message):
            message = inner_message_of(message)
        if isinstance(message, InnerMessage):
            self._redelivery.nack_message(message)
            return
        ours = as_message_id(message)
        topic = self._acks.topic_of(ours)
        if ours.origin is not Origin.LIVE or ours.topic_name() is None:
            ours.topic_name(topic)
        self._redelivery.nack(ours)

    def redeliver_unacknowledged_messages(self) -> None:
        """Have the broker deliver every unacknowledged message again."""
        with self._passing():
            self._forget_answers()
            self._many.clear()
            self._batches.clear()
            self._number_anew()
            self._acks.flush()
            self._redelivery.forget()
            self.inner.redeliver_unacknowledged_messages()

    def unsubscribe(self) -> None:
        """Delete the subscription; the consumer is closed afterwards."""
        refuse_in_callback(self._client, "unsubscribe")
        with self._passing():
            self.inner.unsubscribe()
        self._redelivery.forget()
        self._acks.forget()
        self._let_go()

    def seek(self, messageid: Any) -> None:
        """Move to a message, or to a publish time in milliseconds; see `Receiving.seek`.

        What was acknowledged before is sent first, and does not count any more afterwards.
        """
        refuse_in_callback(self._client, "seek")
        target = seek_target(self._client.context.resolver, self._topics, messageid)
        self._acks.flush_before_seek()
        with self._passing():
            self._forget_answers()
            self._many.clear()
            self._batches.clear()
            self._number_anew()
            self.inner.seek(target)
        self._acks.forget()
        self._redelivery.forget()

    def close(self) -> None:
        """Close, after sending pending acknowledgements; closing again does nothing."""
        if not self._closed:
            refuse_in_callback(self._client, "close")
            self._redelivery.close()
            self._acks.close()
            self._inbox = closed("Consumer")
            self._fetch_no_more()
        super().close()

    def get_last_message_id(self) -> MessageId:
        """Give the id of the topic's last entry; of a chunked message that is its last chunk, as bare numbers."""
        refuse_in_callback(self._client, "get_last_message_id")
        last = from_inner(self.inner.get_last_message_id())
        last.origin = Origin.NUMBERS
        return last

    def after_fork(self, refusal: Any) -> None:
        """Refuse every use in this child process; locks may have been held at the fork, for good."""
        super().after_fork(refusal)
        self._inbox = self._acks = self._redelivery = self._quick = refusal
        self._ahead = None
        self._numbering_lock = threading.RLock()

    def _bar(self) -> None:
        """Let nobody enter the C++ consumer any more: the program ends."""
        self._quick = self._inbox = closed("Consumer")
        self._numbering = NEVER
        self._fetch_no_more()
        super()._bar()

    def _fetch_no_more(self) -> None:
        """Let nobody wait for the C++ consumer's answer: it closes, and may never give one."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.end()

    def _passing(self) -> AbstractContextManager[None]:
        """Pass over what is ahead, in a block that moves the cursor or has everything delivered again."""
        return nullcontext() if self._ahead is None else self._ahead.passed()

    @property
    def _screened(self) -> Screened | None:
        """Give what looks at each message as it is received, if anything does."""
        return self._source if isinstance(self._source, Screened) else None

    def _overhear(self) -> Overheard:
        """Note what is received from now on."""
        heard = Overheard(self)
        self._receive_through(heard)
        return heard

    def _own(self, message: Any) -> Message:
        """Give a C++ message, or one of another consumer, as one of this consumer's."""
        return self._message_of(message if isinstance(message, InnerMessage) else inner_message_of(message))

    def _message_of(self, inner: Any) -> Message:
        message = self._message_class()
        message.inner = inner
        return message
