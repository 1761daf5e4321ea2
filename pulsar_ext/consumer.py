"""Consumers: receive at full speed and without loss; seek, acknowledge and redeliver whole messages.

Correct parts of the official consumer are kept: a received message is acknowledged by the C++ code that knows all its
chunks. These defects are fixed: a Ctrl-C in `receive()` loses the next message; a deserialized or rebuilt id of a
chunked message acknowledges only one chunk; a negative acknowledgement on a Shared or Key_Shared subscription
redelivers only some chunks, which cannot be assembled. Mirrors Java's `ConsumerImpl`.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

import pulsar

from ._native.fork import closed, listening_stub, refuse_after_fork
from ._native.handles import ConsumerHandle, adopt
from ._native.messages import InnerMessage, inner_message_of
from ._native.results import POLL_MILLIS, AlreadyClosed, NotConnected, Timeout
from ._native.seek_gate import GatedConsumer
from .ack.confirm import AckScope
from .chunks.resolver import as_message_id
from .ids.message_id import MessageId, Origin, from_inner
from .message import Message
from .process.processing import Processing
from .receive.filter import RedeliveryFilter, ScreenedSource
from .receive.many import Prefetch
from .receive.native import Unsubscription, is_of_several
from .receive.order import ReceiveOrder, Transition
from .receive.receiver import Interrupted, Measured, Pause
from .receive.source import NativeSource
from .schema.typed import T

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable

    from ._native.answer import Answer
    from ._native.locks import OwnedLock
    from ._native.seek_gate import SeekGate
    from ._runtime.context import ClientContext
    from .ack.acknowledger import Acknowledger
    from .receive.undecryptable import Flow
    from .redelivery.tracker import Redelivery

__all__ = ["Consumer", "Subscription"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """The parts of a consumer besides the official one.

    Args:
        context: the context of the client.
        order, acks, gate: the order and the acknowledgements of its messages, and the gate of its C++ consumer.
        redelivery: its negative acknowledgements.
        message_class, topics: the class of its messages, and the subscribed topics.
        is_shared: whether the broker redelivers single entries (Shared and Key_Shared subscriptions).
        listens: whether the C++ consumer has a listener.
        queued: whether it has a receiver queue, so that a receive with a timeout is possible.
        fetches: the size of a fetch of the prefetch, see `configure_prefetch()`.
        flow: the counts of messages, if undecryptable messages can use up permits.
    """

    context: ClientContext
    order: ReceiveOrder
    gate: SeekGate
    acks: Acknowledger
    redelivery: Redelivery
    message_class: type[Message]
    topics: str | list[str] | re.Pattern[str]
    is_shared: bool
    listens: bool = False
    queued: bool = True
    fetches: int = 0
    flow: Flow | None = None


class Consumer(GatedConsumer, Measured, Processing[T], ConsumerHandle):
    """A `pulsar.Consumer` that treats a chunked message as one, by any id; created by `Client.subscribe()`."""

    __slots__ = (
        "_acks",
        "_client",
        "_closed",
        "_context",
        "_flow",
        "_inbox",
        "_interrupted",
        "_is_shared",
        "_message_class",
        "_on_message",
        "_order",
        "_pause",
        "_prefetch",
        "_queued",
        "_recorder",
        "_redelivery",
        "_redelivery_filter",
        "_runs",
        "_screen",
        "_screened",
        "_source",
        "_topics",
        "_unsubscription",
    )

    def __init__(self) -> None:
        super().__init__()
        self._client = self._context = self._gate = self._source = self._order = self.inner  # raises: never opened
        self._inbox = self._acks = self._redelivery = self._interrupted = self._unsubscription = self.inner
        self._pause = self._runs = self.inner
        self._flow = self._prefetch = self._recorder = self._screen = self._screened = self._redelivery_filter = None
        self._closed = self._is_shared = self._queued = False
        self._message_class = Message

    @classmethod
    def _assemble_(cls, official: pulsar.Consumer, subscription: Subscription) -> Self:
        """Create a consumer from an official one, which is not used afterwards."""
        self = cls.__new__(cls)
        adopt(self, official, subscription.context.opener)
        self._context, self._gate, self._flow = subscription.context, subscription.gate, subscription.flow
        self._topics, self._is_shared, self._queued = subscription.topics, subscription.is_shared, subscription.queued
        self._acks, self._inbox = subscription.acks, subscription.acks.inbox.messages
        self._redelivery, self._message_class = subscription.redelivery, subscription.message_class
        self._closed = False
        self._recorder = self._prefetch = self._screened = self._redelivery_filter = None
        order = self._order = subscription.order
        self._interrupted, self._unsubscription = Interrupted(), Unsubscription()
        self._pause, self._runs = Pause(order, self._gate, listens=subscription.listens), []
        order.add_subscriber(self._interrupted)
        order.add_subscriber(self._pause)
        native = self._source = NativeSource(self.inner, self._receive_of)
        order.add_subscriber(native)
        self._screen = self._redelivery.screen if self._redelivery.screens else None
        if self._screen is not None:
            self._screened = ScreenedSource(native, self._screen, harmless=self._redelivery.harmless, order=order)
            order.add_subscriber(self._screened)
            self._source = self._screened
        elif subscription.fetches:
            self._prefetch = Prefetch(self._context, self.inner, native, self._message_class, subscription.fetches)
            order.add_subscriber(self._prefetch)
            self._source = self._prefetch
        if subscription.listens:
            self._source = listening_stub()
        elif self._screen is None:
            order.make_redelivery_filter = self._create_redelivery_filter
        refuse_after_fork(self)
        return self

    def _create_redelivery_filter(self) -> RedeliveryFilter:
        """Return the filter for times in which acknowledged messages may be redelivered; create it once."""
        if self._redelivery_filter is None:
            recorder = self._recorder
            redelivery_filter = RedeliveryFilter(
                self._order, self._source if recorder is None else recorder.source, self._acks.is_redelivered_duplicate
            )
            self._order.add_subscriber(redelivery_filter)
            if recorder is None:
                self._source = redelivery_filter
            else:
                recorder.source = redelivery_filter
            self._redelivery_filter = redelivery_filter
        return self._redelivery_filter

    def _is_redelivered_duplicate_(self, inner: Any) -> bool:
        """Return whether a C++ message was acknowledged already, and is not for the application."""
        return self._acks.is_redelivered_duplicate(inner)

    def _is_wanted(self, inner: Any) -> bool:
        if self._screen is not None:
            return self._screen(inner)
        return not (self._order.is_screening and self._acks.is_redelivered_duplicate(inner))

    @property
    def _screened_(self) -> ScreenedSource | None:
        """Source that screens each received message, or None."""
        return self._screened

    @property
    def _screens_(self) -> bool:
        """True if Python screens each message before the application receives it."""
        return self._screen is not None or super()._screens_

    @property
    def _locks_(self) -> tuple[OwnedLock, ...]:
        """Locks that a signal handler checks: if its thread holds one, a close would see an inconsistent state."""
        return (*super()._locks_, self._acks.lock)

    def receive(self, timeout_millis: int | None = None) -> Message[T]:  # noqa: C901, PLR0912  # a call would cost as much
        """Receive one message.

        A Ctrl-C ends the wait within 100 ms and loses no message.

        Args:
            timeout_millis: the milliseconds to wait; None waits forever.

        Raises:
            pulsar.Timeout: no message arrived in time.
            pulsar.AlreadyClosed: the consumer is closed.
        """
        if timeout_millis is None or (type(timeout_millis) is int and timeout_millis >= POLL_MILLIS):
            order = self._order
            try:
                while order.redelivery_filter is None:
                    for made in order.made:
                        if (redelivery_filter := order.redelivery_filter) is None:
                            return made  # type: ignore[no-any-return]  # a call would cost as much
                        redelivery_filter.unseen.append(made.inner)  # atomic: a Ctrl-C finds it there
                        break
                    new = self._message_class  # first: Python 3.11 is slow to call what it finds in a slot
                    message = new()
                    run = order.run
                    if run is not None and run.thread == get_ident():
                        for message.inner, message.number in run.messages:
                            if (redelivery_filter := order.redelivery_filter) is None:
                                return message
                            redelivery_filter.unseen.append(message.inner)
                            break
                    for message.inner in order.ready:
                        if (redelivery_filter := order.redelivery_filter) is None:
                            return message
                        redelivery_filter.unseen.append(message.inner)
                        break
                    self._refill()
            except Timeout:
                if timeout_millis is not None:
                    timeout_millis -= POLL_MILLIS
            except AlreadyClosed:
                pass  # or replaced: the slow path distinguishes them
        else:
            self._order.claim(get_ident())
        return self._receive_next_(timeout_millis)

    _receive_plain = receive  # pyright: ignore[reportAssignmentType]  # a method where a callable is declared

    def ack_scope(
        self, messages: Iterable[Any] | None = None, *, confirm: bool = True, timeout_ms: int = 10_000
    ) -> AckScope:
        """Process some messages; acknowledge all at the end, or redeliver all after an exception.

        with consumer.ack_scope(consumer.receive_many(500)) as messages: …

        Args:
            messages: the messages; None for every message that this consumer receives inside the block.
            confirm: whether to return only when the broker's cursor shows the acknowledgements.
            timeout_ms: the timeout of that, in milliseconds.
        """
        return AckScope(self, messages, confirm=confirm, timeout_ms=timeout_ms)

    def fetched_ahead(self) -> int:
        """Return the number of messages that were prefetched from the receiver queue.

        Loops over a fast topic prefetch; consumers of `pulsar_ext.asyncio` never do.
        """
        prefetch = self._prefetch
        return 0 if prefetch is None else prefetch.ahead

    def negative_acknowledge(self, message: Any) -> None:
        """Redeliver one whole message after `negative_ack_redelivery_delay_ms`, by the message or any id of it.

        On an Exclusive or Failover subscription the broker then redelivers every unacknowledged message.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not contain its topic.
            pulsar.AlreadyClosed: the consumer is closed.
        """
        self._raise_if_closed()
        self._order.stop_numbering()  # a redelivered message arrives later, between numbered ones
        if isinstance(message, pulsar.Message):
            if self._is_of_another_cluster(message):
                return
            message = inner_message_of(message)
        if isinstance(message, InnerMessage):
            self._redelivery.nack_message(message)
            return
        ours = as_message_id(message)
        topic = self._acks.collector.topic_of(ours)
        if ours.origin is not Origin.LIVE or ours.topic_name() is None:
            ours.topic_name(topic)
        self._redelivery.nack(ours)

    def redeliver_unacknowledged_messages(self) -> None:
        """Redeliver every unacknowledged message."""
        self._acks.send_pending()  # so that the broker knows what was acknowledged
        # The broker counts redeliveries, for dead letters, until the last consumer closes.
        keeps = self._is_shared and (self._redelivery.dead_letters or not self._acks.collector.may_have_chunks)
        if keeps or self._order.reopener is None:
            with self._order.run_transition(Transition.REDELIVERY, self._raise_if_closed):
                self.inner.redeliver_unacknowledged_messages()
        else:
            self._order.replace()  # a new C++ consumer holds no incomplete chunked message

    def unsubscribe(self) -> None:
        """Delete the subscription on all topics; the consumer is closed afterwards."""
        self._context.callbacks.raise_inside("unsubscribe")
        try:
            self._unsubscribe()
        except pulsar.UnknownError:
            # One of several topics failed, for example because the broker had just closed it for a seek. This C++
            # consumer has closed the others, and fails permanently: a new one unsubscribes from all.
            several = is_of_several(self._topics, self._context.opener.get_topic_partitions)
            if not several or self._order.reopener is None:
                raise
            self._order.replace()
            self._unsubscribe()

    def _unsubscribe(self) -> None:
        with self._order.run_transition(Transition.UNSUBSCRIPTION, self._raise_if_closed):
            if not self._unsubscription.is_done(self._context.operation_timeout_seconds):
                self._ask(self._unsubscribing, NotConnected)
            self._release_()

    def _unsubscribing(self, inner: Any) -> Callable[[Answer], object]:
        begin: Callable[[Answer], object] = self._unsubscription.noted(self._gate.unsubscribe_starter(inner))
        return begin

    def _enter_cluster(self) -> None:
        super()._enter_cluster()
        if self._prefetch is not None:
            self._prefetch.make(self._message_class)
        if self._recorder is not None:
            self._recorder.drop()

    def _release_(self) -> None:
        """Drop references, deliver nothing and accept no acknowledgement: this or its client is closed."""
        self._order.stop_screening()
        self._redelivery_filter = None
        super()._release_()
        self._inbox = self._interrupted = closed("Consumer")
        self._prefetch = self._recorder = None
        self._acks.mark_closed()

    def get_last_message_id(self) -> MessageId:
        """Return the id of the topic's last entry; for a chunked message its last chunk's, as plain numbers.

        Raises:
            pulsar.UnknownError: the topic is not persistent, as officially.
            pulsar.PulsarException: the broker could not be reached for the client's `operation_timeout_seconds`.
        """
        self._context.callbacks.raise_inside("get_last_message_id")
        last = from_inner(self._ask_stored(lambda inner: inner.get_last_message_id_async))
        last.origin = Origin.NUMBERS
        return last

    def _disable(self, raising: Any) -> None:
        super()._disable(raising)
        self._inbox = self._interrupted = raising
        self._prefetch = self._recorder = self._redelivery_filter = None

    def _after_fork_(self, raising: Any) -> None:
        """Make every use raise in this child process; the locks of the parts may have been held at the fork."""
        super()._after_fork_(raising)
        self._acks = self._redelivery = raising

    def _is_of_another_cluster(self, message: Any) -> bool:
        return isinstance(message, Message) and message.cluster != self._message_class.cluster

    def _own(self, message: Any) -> Message[T]:
        """Return a C++ message, or another consumer's, as this consumer's; another cluster's message unchanged."""
        if self._is_of_another_cluster(message):
            return message  # type: ignore[no-any-return]  # one of ours
        return self._message_of_(message if isinstance(message, InnerMessage) else inner_message_of(message))
