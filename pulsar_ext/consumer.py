"""Consumers: receive at full speed and without loss, and seek, acknowledge and redeliver whole messages.

What the official consumer does right stays its own: a received message is acknowledged by the C++ code that knows all
its chunks. Overridden is what goes wrong: a Ctrl-C in `receive()` swallows the next message; a deserialized or rebuilt
id of a chunked message acknowledges a part of it; a negative acknowledgement on a Shared or Key_Shared subscription
redelivers a part of it, which nobody can assemble. Mirrors Java's `ConsumerImpl`.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

import pulsar

from ._native.fork import closed, listened, refuse_after_fork
from ._native.handles import ConsumerDoor, adopt
from ._native.messages import InnerMessage, inner_message_of
from ._native.results import POLL_MILLIS, AlreadyClosed, NotConnected, Timeout
from ._native.seek_gate import GatedConsumer
from .ack.confirm import AckScope
from .chunks.resolver import as_message_id
from .ids.message_id import MessageId, Origin, from_inner
from .message import Message
from .process.processing import Processing
from .receive.filter import ScreenedSource, Sieve
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
    """What a consumer is made of besides the official one.

    Args:
        context: of the client that it belongs to.
        order, acks, gate: of its messages, and what its C++ consumer is asked through.
        redelivery: what it wants to be redelivered.
        message_class, topics: what its messages become, and what was subscribed to.
        splits: whether the broker redelivers single entries (Shared and Key_Shared subscriptions).
        listens: whether the C++ consumer has a listener.
        queued: whether the receiver queue has room, so that a receive with a timeout is possible.
        fetches: how many messages are fetched ahead at once, see `take_over_batches()`.
        flow: counts what comes, where messages that cannot be decrypted use up permits.
    """

    context: ClientContext
    order: ReceiveOrder
    gate: SeekGate
    acks: Acknowledger
    redelivery: Redelivery
    message_class: type[Message]
    topics: str | list[str] | re.Pattern[str]
    splits: bool
    listens: bool = False
    queued: bool = True
    fetches: int = 0
    flow: Flow | None = None


class Consumer(GatedConsumer, Measured, Processing[T], ConsumerDoor):
    """A `pulsar.Consumer` that treats a chunked message as one, by whatever id; made by `Client.subscribe()`."""

    __slots__ = (
        "_acks",
        "_client",
        "_closed",
        "_context",
        "_flow",
        "_hear",
        "_inbox",
        "_interrupted",
        "_message_class",
        "_order",
        "_pause",
        "_prefetch",
        "_queued",
        "_recorder",
        "_redelivery",
        "_runs",
        "_screen",
        "_screened",
        "_sieve",
        "_source",
        "_splits",
        "_topics",
        "_unsubscription",
    )

    def __init__(self) -> None:
        super().__init__()
        self._client = self._context = self._gate = self._source = self._order = self.inner  # never opened: refuses
        self._inbox = self._acks = self._redelivery = self._interrupted = self._unsubscription = self.inner
        self._pause = self._runs = self.inner
        self._flow = self._prefetch = self._recorder = self._screen = self._screened = self._sieve = None
        self._closed = self._splits = self._queued = False
        self._message_class = Message

    @classmethod
    def _assemble_(cls, official: pulsar.Consumer, subscription: Subscription) -> Self:
        """Make a consumer of an official one, which is not used afterwards."""
        self = cls.__new__(cls)
        adopt(self, official, subscription.context.opener)
        self._context, self._gate, self._flow = subscription.context, subscription.gate, subscription.flow
        self._topics, self._splits, self._queued = subscription.topics, subscription.splits, subscription.queued
        self._acks, self._inbox = subscription.acks, subscription.acks.inbox.messages
        self._redelivery, self._message_class = subscription.redelivery, subscription.message_class
        self._closed = False
        self._recorder = self._prefetch = self._screened = self._sieve = None
        order = self._order = subscription.order
        self._interrupted, self._unsubscription = Interrupted(), Unsubscription()
        self._pause, self._runs = Pause(order, self._gate, listens=subscription.listens), []
        order.take_part(self._interrupted)
        order.take_part(self._pause)
        native = self._source = NativeSource(self.inner, self._wait_of)
        order.take_part(native)
        self._screen = self._redelivery.screen if self._redelivery.screens else None
        if self._screen is not None:
            self._screened = ScreenedSource(native, self._screen, harmless=self._redelivery.harmless, order=order)
            order.take_part(self._screened)
            self._source = self._screened
        elif subscription.fetches:
            self._prefetch = Prefetch(self._context, self.inner, native, self._message_class, subscription.fetches)
            order.take_part(self._prefetch)
            self._source = self._prefetch
        if subscription.listens:
            self._source = listened()
        elif self._screen is None:
            order.make_sieve = self._make_sieve
        refuse_after_fork(self)
        return self

    def _make_sieve(self) -> Sieve:
        """Give what looks at each message while acknowledged ones may be delivered again; the first time, make it."""
        if self._sieve is None:
            recorder = self._recorder
            sieve = Sieve(self._order, self._source if recorder is None else recorder.source, self._acks.came_again)
            self._order.take_part(sieve)
            if recorder is None:
                self._source = sieve
            else:
                recorder.source = sieve
            self._sieve = sieve
        return self._sieve

    def _came_again_(self, inner: Any) -> bool:
        """Whether a C++ message was acknowledged, so that it is not for the application, though it is delivered."""
        return self._acks.came_again(inner)

    def _is_wanted(self, inner: Any) -> bool:
        if self._screen is not None:
            return self._screen(inner)
        return not (self._order.is_doubted and self._acks.came_again(inner))

    @property
    def _screened_(self) -> ScreenedSource | None:
        """Give what looks at each message as it is received, if anything does."""
        return self._screened

    @property
    def _judges_(self) -> bool:
        """Whether Python looks at each message before the application does."""
        return self._screen is not None or super()._judges_

    @property
    def _locks_(self) -> tuple[OwnedLock, ...]:
        """What a signal's handler finds held where a close would meet something half done."""
        return (*super()._locks_, self._acks.lock)

    def receive(self, timeout_millis: int | None = None) -> Message[T]:  # noqa: C901, PLR0912  # a call would cost as much
        """Receive one message.

        A Ctrl-C ends the wait within 100 ms and loses no message.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            pulsar.Timeout: no message came in time.
            pulsar.AlreadyClosed: it is closed.
        """
        if timeout_millis is None or (type(timeout_millis) is int and timeout_millis >= POLL_MILLIS):
            order = self._order
            try:
                while order.sieve is None:
                    for made in order.made:
                        if (sieve := order.sieve) is None:
                            return made  # type: ignore[no-any-return]  # a call would cost as much
                        sieve.unseen.append(made.inner)  # in one step: a Ctrl-C finds it there
                        break
                    new = self._message_class  # first: Python 3.11 is slow to call what it finds in a slot
                    message = new()
                    run = order.run
                    if run is not None and run.thread == get_ident():
                        for message.inner, message.number in run.messages:
                            if (sieve := order.sieve) is None:
                                return message
                            sieve.unseen.append(message.inner)
                            break
                    for message.inner in order.ready:
                        if (sieve := order.sieve) is None:
                            return message
                        sieve.unseen.append(message.inner)
                        break
                    self._refill()
            except Timeout:
                if timeout_millis is not None:
                    timeout_millis -= POLL_MILLIS
            except AlreadyClosed:
                pass  # or replaced: the slower way finds out
        else:
            self._order.claim(get_ident())
        return self._receive_next_(timeout_millis)

    _receive_plain = receive  # pyright: ignore[reportAssignmentType]  # a method where a callable is declared

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

    def fetched_ahead(self) -> int:
        """Count the messages that were fetched out of the receiver queue before they are asked for.

        Loops over a fast topic do so; consumers of `pulsar_ext.asyncio` never do.
        """
        prefetch = self._prefetch
        return 0 if prefetch is None else prefetch.ahead

    def negative_acknowledge(self, message: Any) -> None:
        """Have one message redelivered after `negative_ack_redelivery_delay_ms`, whole, by the message or any id of it.

        On an Exclusive or Failover subscription the broker then redelivers everything that is not acknowledged.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            pulsar.AlreadyClosed: it is closed.
        """
        self._refuse_closed()
        self._order.number_no_more()  # what comes again comes some time later, in the midst of what is numbered
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
        """Have the broker deliver every unacknowledged message again."""
        self._acks.leave_now()  # so that it is known what was acknowledged
        # The broker counts redeliveries, for dead letters, until the last consumer leaves.
        keeps = self._splits and (self._redelivery.dead_letters or not self._acks.collector.may_have_chunks)
        if keeps or self._order.foundation is None:
            with self._order.passing(Transition.REDELIVERY, self._refuse_closed):
                self.inner.redeliver_unacknowledged_messages()
        else:
            self._order.replace()  # another C++ consumer keeps no half of a message from before

    def unsubscribe(self) -> None:
        """Delete the subscription, on all topics; the consumer is closed afterwards."""
        self._context.callbacks.refuse("unsubscribe")
        try:
            self._unsubscribe()
        except pulsar.UnknownError:
            # One of several topics failed, as where the broker had just closed it for a seek. That C++ consumer has
            # left the others, and fails for good: another one unsubscribes from all.
            several = is_of_several(self._topics, self._context.opener.get_topic_partitions)
            if not several or self._order.foundation is None:
                raise
            self._order.replace()
            self._unsubscribe()

    def _unsubscribe(self) -> None:
        with self._order.passing(Transition.UNSUBSCRIPTION, self._refuse_closed):
            if not self._unsubscription.is_done(self._context.operation_timeout_seconds):
                self._ask(self._unsubscribing, NotConnected)
            self._release_()

    def _unsubscribing(self, inner: Any) -> Callable[[Answer], object]:
        begin: Callable[[Answer], object] = self._unsubscription.noted(self._gate.unsubscribing(inner))
        return begin

    def _enter_cluster(self) -> None:
        super()._enter_cluster()
        if self._prefetch is not None:
            self._prefetch.make(self._message_class)
        if self._recorder is not None:
            self._recorder.drop()

    def _release_(self) -> None:
        """Be kept no longer, and hand out and take nothing: it is closed, or its client is."""
        self._order.look_no_more()
        self._sieve = None
        super()._release_()
        self._inbox = self._interrupted = closed("Consumer")
        self._prefetch = self._recorder = None
        self._acks.refuse()

    def get_last_message_id(self) -> MessageId:
        """Return the id of the topic's last entry; of a chunked message that is its last chunk, as bare numbers.

        Raises:
            pulsar.UnknownError: the topic is not persistent, as officially.
            pulsar.PulsarException: for the client's `operation_timeout_seconds` the broker could not be reached.
        """
        self._context.callbacks.refuse("get_last_message_id")
        last = from_inner(self._ask_stored(lambda inner: inner.get_last_message_id_async))
        last.origin = Origin.NUMBERS
        return last

    def _refuse(self, refusal: Any) -> None:
        super()._refuse(refusal)
        self._inbox = self._interrupted = refusal
        self._prefetch = self._recorder = self._sieve = None

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse every use in this child process; the locks of the parts may have been held at the fork, for good."""
        super()._after_fork_(refusal)
        self._acks = self._redelivery = refusal

    def _is_of_another_cluster(self, message: Any) -> bool:
        return isinstance(message, Message) and message.cluster != self._message_class.cluster

    def _own(self, message: Any) -> Message[T]:
        """Give a C++ message, or one of another consumer, as one of this consumer's; not one of another cluster."""
        if self._is_of_another_cluster(message):
            return message  # type: ignore[no-any-return]  # one of ours
        return self._message_of_(message if isinstance(message, InnerMessage) else inner_message_of(message))
