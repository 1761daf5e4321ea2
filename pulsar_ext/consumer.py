"""Consumers: receive at full speed and without loss; seek, acknowledge and redeliver whole messages.

Correct parts of the official consumer are kept: a received message is acknowledged by the C++ code that knows all its
chunks. These defects are fixed: a Ctrl-C in `receive()` loses the next message; a deserialized or rebuilt id of a
chunked message acknowledges only one chunk; a negative acknowledgement on a Shared or Key_Shared subscription
redelivers only some chunks, which cannot be assembled. Mirrors Java's `ConsumerImpl`.

A consumer has its parts: `receive/` (its base, its sources and its order), `ack/`, `redelivery/` and `process/`. The
receives and `acknowledge()` are here whole, because each call costs time. `receive.order.Part` lists the order in which
a seek, a close and other transitions call the parts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from itertools import repeat
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

import pulsar

from ._native.answer import Answer
from ._native.core import wrap
from ._native.fork import closed, listening_stub, refuse_after_fork
from ._native.handles import ConsumerHandle, adopt
from ._native.locks import OwnedLock
from ._native.messages import InnerConsumer, InnerMessage, inner_message_of
from ._native.results import POLL_MILLIS, AlreadyClosed, NotConnected, Timeout, cooperative
from ._native.seek_gate import SeekGate
from ._runtime.context import ClientContext
from ._runtime.statistics import ConsumerStats, consumer_stats
from ._runtime.termination import at_termination
from .ack.acknowledger import Acknowledger
from .ack.confirm import AckScope, flush_acks
from .admin import InternalStats
from .chunks.resolver import as_message_id
from .errors import InvalidUse
from .ids.message_id import AnyMessageId, MessageId, Origin, from_inner
from .ids.topic_name import TopicName
from .message import Message
from .process import REDELIVER, Action, Handling, ProcessRun
from .receive.filter import RedeliveryFilter, ScreenedSource
from .receive.native import Unsubscription, is_of_several
from .receive.order import ReceiveOrder, Transition, TransitionSubscriber
from .receive.prefetch import Prefetch, require_max_messages
from .receive.receiver import CLOSING_SECONDS, Interrupted, Pause, Receiving
from .receive.seeks import Topics
from .receive.source import NativeSource, ReceiveAsync, Recorder
from .receive.undecryptable import Flow
from .redelivery.letters import RetryLetters, check_retry
from .redelivery.tracker import Redelivery
from .schema.typed import T

if TYPE_CHECKING:
    from typing_extensions import TypeIs


__all__ = ["Consumer", "Subscription"]

_RECONNECT_MILLIS = 100
"""Milliseconds to wait for an unreachable broker before a batch is returned empty; the official default timeout."""


@dataclass(slots=True)
class Subscription:
    """The parts of a consumer besides the official one."""

    context: ClientContext
    order: ReceiveOrder
    gate: SeekGate
    acks: Acknowledger
    redelivery: Redelivery
    message_class: type[Message]
    topics: Topics
    is_shared: bool
    """Whether the broker redelivers single entries (Shared and Key_Shared subscriptions)."""
    listens: bool = False
    """Whether the C++ consumer has a listener."""
    queued: bool = True
    """Whether it has a receiver queue, so that a receive with a timeout is possible."""
    fetches: int = 0
    """The size of a fetch of the prefetch, see `prefetch_size()`."""
    flow: Flow | None = None
    """The counts of messages, if undecryptable messages can use up permits."""


class Consumer(Receiving[InnerConsumer, T], ConsumerHandle):
    """A `pulsar.Consumer` that treats a chunked message as one, by any id; created by `Client.subscribe()`."""

    __slots__ = (
        "_acks",
        "_client",
        "_closed",
        "_context",
        "_flow",
        "_gate",
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

    _gate: SeekGate
    _acks: Acknowledger
    _inbox: list[Message]
    """Messages acknowledged one by one, before `_acks` reads them."""
    _is_shared: bool
    _redelivery: Redelivery
    _interrupted: Interrupted
    _pause: Pause
    _prefetch: Prefetch | None
    _recorder: Recorder | None
    _redelivery_filter: RedeliveryFilter | None
    _screen: Callable[[InnerMessage], bool] | None
    _screened: ScreenedSource | None
    _runs: list[ProcessRun]
    """Running calls of `process()`."""
    _unsubscription: Unsubscription

    def __init__(self) -> None:
        super().__init__()
        raising: Any = self.inner  # never opened
        self._client = self._context = self._gate = self._source = self._order = self._pause = self._runs = raising
        self._inbox = self._acks = self._redelivery = self._interrupted = self._unsubscription = raising
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
        native = self._source = NativeSource(self.inner, self._receive_of)
        parts: list[TransitionSubscriber] = [self._interrupted, self._pause, native]
        self._screen = self._redelivery.screen if self._redelivery.screens else None
        if self._screen is not None:
            harmless = self._redelivery.harmless
            self._source = self._screened = ScreenedSource(native, self._screen, harmless=harmless, order=order)
            parts.append(self._screened)
        elif subscription.fetches:
            self._source = self._prefetch = Prefetch(
                self.inner, native, self._message_class, subscription.fetches, self._is_on_its_cluster_
            )
            parts.append(self._prefetch)
        order.add_subscriber(*parts)
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

    def _is_redelivered_duplicate_(self, message: Message[T]) -> bool:
        """Return whether a message was acknowledged already, and is not for the application."""
        return self._order.is_screening and self._acks.is_redelivered_duplicate(message.inner)

    def _is_wanted(self, inner: InnerMessage) -> bool:
        if self._screen is not None:
            return self._screen(inner)
        return not (self._order.is_screening and self._acks.is_redelivered_duplicate(inner))

    @property
    def _fetcher_(self) -> Callable[[], Iterator[Message[T]]] | None:
        return None if self._prefetch is None else self._prefetch.fetch_arrived

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

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive(self, timeout_millis: int | None = None) -> Message[T]:  # noqa: C901  # each call costs time
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
                while order.redelivery_filter is None or (self._prefetch is not None and self._fetching() is not None):
                    for made in order.made:
                        if (redelivery_filter := order.redelivery_filter) is None:
                            return made
                        if made._is_highest_:
                            order.passed += 1
                            return made
                        redelivery_filter.unseen.append(made.inner)  # atomic: a Ctrl-C finds it there
                        break
                    else:
                        ready = order.ready  # before the class: a failover changes the class first
                        new = self._message_class  # Python 3.11 is slow to call what it finds in a slot
                        message = new()
                        for message.inner in ready:
                            if (redelivery_filter := order.redelivery_filter) is None:
                                return message
                            redelivery_filter.unseen.append(message.inner)
                            break
                        else:
                            self._refill()
            except Timeout:
                if timeout_millis is not None:
                    timeout_millis -= POLL_MILLIS
            except AlreadyClosed:
                pass  # or replaced: the slow path distinguishes them
        return self._receive_next_(timeout_millis)

    def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message[T]]:
        """Receive several messages at once: wait for the first, and return it with those that have arrived.

        Messages that are not in the list stay available to other receives, seeks and redeliveries. After a Ctrl-C, the
        next call on the same thread returns the messages of the interrupted one.

        Args:
            max_messages: the most messages to return; a hundred are faster than a thousand, which exceed the CPU cache.
            timeout_millis: the milliseconds to wait for the first message; None waits forever.

        Returns:
            The messages, in order; an empty list if none arrived in time.

        Raises:
            InvalidUse: `max_messages` is not an int >= 1.
            pulsar.AlreadyClosed: the consumer is closed.
        """
        require_max_messages(max_messages)
        thread, kept_by = get_ident(), self._interrupted.many
        kept = kept_by.setdefault(thread, [])
        try:
            if not kept:
                kept.append(Consumer.receive(self, timeout_millis))  # without interceptors
                self._take(kept, max_messages)
        except Timeout:
            pass
        except AlreadyClosed:  # or replaced: messages received before that are returned first
            if not kept:
                raise
        try:  # noqa: SIM105  # no call from here on: a Ctrl-C would lose messages that are in no list
            del kept_by[thread]
        except KeyError:  # a seek on another thread has dropped it
            pass
        return kept

    def batch_receive(self) -> list[Message[T]]:
        """Receive as many messages at once as the `batch_receive_policy` defines.

        After a Ctrl-C, the next call on the same thread returns the messages of the interrupted one.

        Returns:
            The messages, in order; an empty list if none arrived within the policy's timeout.
        """
        thread, batches = get_ident(), self._interrupted.batches
        while True:
            batch = self._receive_batch(thread)
            screens = self._screen is not None or self._order.is_screening
            wanted = list(filter(self._is_wanted, batch)) if screens else batch
            messages = wrap(self._message_class, wanted)  # now: the wait may have ended on another cluster
            if self._recorder is not None:
                self._recorder.note(wanted)
            try:  # noqa: SIM105  # no call from here on: a Ctrl-C would lose the messages
                del batches[thread]
            except KeyError:  # a seek on another thread has dropped it, or no messages arrived
                pass
            if messages or not batch:  # else none of them was for the application
                return messages

    def __iter__(self) -> Iterator[Message[T]]:  # noqa: C901  # as in `receive()`
        """Receive one message after the other until the consumer is closed."""
        order, tried = self._order, None
        while not self._closed:
            try:
                if order.redelivery_filter is not None and self._fetching() is None:
                    yield self._receive_next_(POLL_MILLIS)
                    continue
                self._refill()
                made = order.made
                for message in made:
                    if (redelivery_filter := order.redelivery_filter) is not None:
                        if not message._is_highest_:
                            redelivery_filter.unseen.append(message.inner)  # in one step: a Ctrl-C finds it there
                            break
                        order.passed += 1
                    yield message
                    if order.made is not made:
                        break
                ready, new = order.ready, self._message_class  # in this order: a failover changes the class first
                message = new()
                for message.inner in ready:
                    if (redelivery_filter := order.redelivery_filter) is not None:
                        redelivery_filter.unseen.append(message.inner)
                        break
                    yield message
                    if order.ready is not ready:
                        break
                    message = new()
            except Timeout:
                self._context.callbacks.raise_inside("a receive without messages")
            except AlreadyClosed:
                if not self._closed:
                    tried = self._replacement_of(tried)

    def pause(self) -> None:
        """Deliver no messages until `resume()`: receives, loops and the listener wait as if none had arrived.

        A receive that waits already may still return one message. A listener may still be called with one after a
        concurrent seek. The receiver queue stays full, and the broker sends no more messages. In a `batch_receive()` a
        pause counts as a time without messages. Java's `Consumer.pause` still delivers the messages in the queue.

        Raises:
            pulsar.AlreadyClosed: the consumer is closed.
        """
        self._raise_if_closed()
        self._pause.begin(self.inner)

    def resume(self) -> None:
        """Deliver messages again after `pause()`; mirrors Java's `Consumer.resume`.

        Raises:
            pulsar.AlreadyClosed: the consumer is closed.
        """
        self._raise_if_closed()
        self._pause.end(self.inner)

    def pause_message_listener(self) -> None:
        """Pause the listener until `resume_message_listener()`, across seeks and redeliveries.

        It may still be called with messages that arrive while a seek replaces the native consumer.

        Raises:
            pulsar.InvalidConfiguration: the consumer has no listener.
            pulsar.AlreadyClosed: the consumer is closed.
        """
        self._pause.silence(self.inner)

    def resume_message_listener(self) -> None:
        """Resume the listener; during a `pause()`, once that ends. Raises as `pause_message_listener()`."""
        self._pause.unsilence(self.inner)

    @property
    def is_paused(self) -> bool:
        """True if the consumer is paused by `pause()`."""
        return self._order.is_paused

    def fetched_ahead(self) -> int:
        """Return the number of messages that were prefetched from the receiver queue.

        Loops over a fast topic prefetch; consumers of `pulsar_ext.asyncio` never do.
        """
        prefetch = self._prefetch
        return 0 if prefetch is None else prefetch.ahead

    def _receive_batch(self, thread: int) -> list[InnerMessage]:
        """Receive several C++ messages, and keep them for the thread's next call."""
        batches, tried = self._interrupted.batches, None
        while True:
            try:
                self._wait_while_paused(POLL_MILLIS)
            except Timeout:
                return batches.setdefault(thread, [])
            try:
                batch: list[InnerMessage] = batches.setdefault(thread, [])
                if not batch and self._interrupted.is_blocked:  # checked last: the blocker waits for registered threads
                    batches.pop(thread, None)
                    self._order.wait_for_transition()
                    self._context.senders.raise_if_ended()
                    continue
                self._take_ahead(batch)
                if not batch:
                    if self._prefetch is not None:
                        self._prefetch.drain_to(batch)
                        self._prefetch.unnoted += 1  # permanently: these messages are noted by no one
                    self._take_native(batch)
                return batch  # noqa: TRY300  # an `else` could not distinguish the branches
            except AlreadyClosed:
                try:
                    tried = self._replacement_of(tried, _RECONNECT_MILLIS)
                except Timeout:
                    return batches.setdefault(thread, [])

    def _take_native(self, batch: list[InnerMessage]) -> None:
        """Append the C++ consumer's next batch."""
        for more in iter(self.inner.batch_receive, None):
            batch += more  # no call in between: a Ctrl-C leaves the batch to the next call
            break
        if not self._is_on_its_cluster_():
            batch.clear()
        if self._flow is not None:
            self._flow.received += len(batch)
            self._flow.empty += not batch

    def _take_ahead(self, batch: list[InnerMessage]) -> None:
        """Move the messages that precede the C++ consumer's batches into an empty batch."""
        if not batch:
            batch += self._interrupted.ahead
        for kept in (self._screened, self._redelivery_filter):
            if not batch and kept is not None:
                kept.drain_to(batch)

    def _take(self, kept: list[Message], limit: int) -> None:
        """Append messages that have arrived to a list until it has `limit` of them, or raise `pulsar.Timeout`."""
        while len(kept) < limit:
            wait, new = self._source.wait, self._message_class  # in this order: a failover changes the class first
            before, left = len(kept), limit - len(kept)
            if self._order.redelivery_filter is None and (ahead := self._fetching()) is not None:
                kept.extend(ahead.available_messages(left))
                if len(kept) == before:
                    return
                continue
            message = new()
            for message.inner in map(wait, repeat(0, left)):
                kept.append(message)
                message = new()

    def _receives_of(self, inner: InnerConsumer) -> tuple[Callable[[int], InnerMessage], ReceiveAsync]:
        return cooperative(inner.receive), inner.receive_async

    def _record_(self) -> list[InnerMessage]:
        """Record the C++ messages received from now on in the list that is returned."""
        if self._recorder is None:
            self._recorder = Recorder(self._source)
            self._source = self._recorder
            self._order.drop_ready()
        return self._recorder.begin()

    def _end_record_(self, noted: list[InnerMessage]) -> list[Message[T]]:
        """Stop recording in a list that `_record_()` returned, and return its messages."""
        recorder = self._recorder
        if recorder is not None:
            noted = recorder.end(noted)
            if not recorder.lists:
                self._recorder, self._source = None, recorder.source
                self._order.drop_ready()
        return [self._message_of_(inner) for inner in noted]

    def _refill(self) -> None:
        """Offer messages to the next receives."""
        self._wait_while_paused(POLL_MILLIS)
        ahead = self._fetching()
        if ahead is None:
            self._order.offer(self._fast_source())
            return
        if self._order.is_screening:
            self._acks.end_screening_if_received()
        self._order.offer_made(ahead.next_messages())

    def _wait_while_paused(self, timeout_millis: int) -> None:
        if self._order.is_paused and not self._closed:
            self._pause.wait(timeout_millis)

    def _fetching(self) -> Prefetch | None:
        """Return the prefetch; None without prefetching, or if another source precedes it."""
        if self._recorder is not None or (self._redelivery_filter is not None and self._redelivery_filter.holds):
            return None
        return self._prefetch

    def _fast_source(self) -> Iterator[InnerMessage]:
        """Return an endless iterator for loops that check for a redelivery filter after each wait."""
        return (
            self._source.each
            if self._recorder is not None or self._redelivery_filter is None
            else self._redelivery_filter.fast
        )

    def _stop_fetching_(self) -> None:
        """Stop waiting for the C++ consumer's answers: its client ends, and may never answer."""
        interrupted = self._interrupted  # first: later this raises only if it is closed
        if not self._closed:
            interrupted.block()

    def _end_batches_(self, deadline: float) -> None:
        """Wait until `deadline` for threads inside `batch_receive()`; close the C++ consumer to answer the others."""
        interrupted = self._interrupted  # first: later this raises only if it is closed
        if not (self._closed or interrupted.wait_for_others(deadline)):
            untyped: Any = self.inner
            untyped.close_async(None)
            interrupted.wait_for_others(time.monotonic() + CLOSING_SECONDS[Transition.CLOSE])

    # -- acknowledging -------------------------------------------------------------------------------------------------

    def acknowledge(self, message: object) -> None:
        """Acknowledge a message with all its chunks, by the message or any id of it.

        A message of a cluster to which the client is no longer connected is not acknowledged.

        Args:
            message: a received message, or an id: live, deserialized, parsed or built from numbers.

        Raises:
            TopicRequired: the consumer reads several topics and the id has no topic.
            MessageIdUnresolved: the chunks of the message were not found; nothing was acknowledged.
        """
        if type(message) is self._message_class:
            inbox = self._inbox
            inbox.append(message)
            acks = self._acks
            if len(inbox) >= acks.limit:
                acks.process_inbox()
            elif not acks.scheduled:
                acks.schedule()
        elif type(message) is MessageId and self._acks.collector.is_self_contained(message):
            self._acks.put(self._acks.inbox.ids, message)
        elif isinstance(message, InnerMessage | pulsar.Message):
            if type(own := self._own(message)) is self._message_class:
                self.acknowledge(own)
        else:
            self._acks.add_id(message)

    def acknowledge_many(self, messages: Iterable[Any]) -> None:
        """Acknowledge several messages; see `acknowledge()`.

        Args:
            messages: received messages or ids, in any order.

        Raises:
            TopicRequired, MessageIdUnresolved: see `acknowledge()`; the messages before this one are acknowledged.
        """
        messages = list(messages)
        if {*map(type, messages)} <= {self._message_class}:
            self._acks.add_messages(messages)
        else:
            for message in messages:
                self.acknowledge(message)

    def acknowledge_cumulative(self, message: object) -> None:
        """Acknowledge every message up to and including this one with all its chunks, by the message or any id of it.

        A message of a cluster to which the client is no longer connected acknowledges nothing.

        A chunked message of another producer with chunks before and after this message is acknowledged in part only:
        the broker's cursor allows nothing else, for any client. Acknowledge one by one if such producers share a topic.

        Raises:
            pulsar.CumulativeAcknowledgementNotAllowedError: the subscription is Shared or Key_Shared.
        """
        if self._is_shared:
            if not isinstance(message, InnerMessage | pulsar.Message):
                self._acks.collector.topic_of(as_message_id(message))
            raise pulsar.CumulativeAcknowledgementNotAllowedError(
                "Pulsar error: CumulativeAcknowledgementNotAllowedError: cumulative acknowledgements are not allowed "
                "on a Shared or Key_Shared subscription. Nothing was acknowledged; acknowledge messages one by one."
            )
        acks = self._acks
        if type(message) is self._message_class:
            acks.put(acks.inbox.positions, message)
        elif type(message) is MessageId and acks.collector.is_self_contained(message):
            acks.put(acks.inbox.position_ids, message)
        elif isinstance(message, InnerMessage | pulsar.Message):
            if type(own := self._own(message)) is self._message_class:
                acks.put(acks.inbox.positions, own)
        else:
            acks.add_cumulative(message)

    def flush_acks(self, confirm: bool = False, timeout_ms: int = 10_000) -> None:
        """Send pending acknowledgements, and optionally confirm that the broker has them.

        Args:
            confirm: True to return only when the subscription's cursor on the broker shows every acknowledged message.
                A non-persistent topic has no cursor: the call returns when they were sent.
            timeout_ms: timeout of the confirmation, in milliseconds.

        Raises:
            AckNotConfirmed: the cursor does not show all of them in time; see `missing`.
            AdminError: the admin API rejects the request.
            pulsar.AlreadyClosed: the consumer or its client is closed.
        """
        self._context.callbacks.raise_inside("flush_acks")
        flush_acks(self._context, self._acks, confirm=confirm, timeout_ms=timeout_ms)

    def pending_acks(self) -> int:
        """Return the number of acknowledgements that were not sent: entries and partly acknowledged batches."""
        return self._acks.pending

    def ack_scope(
        self, messages: Iterable[object] | None = None, *, confirm: bool = True, timeout_ms: int = 10_000
    ) -> AckScope:
        """Process some messages; acknowledge all at the end, or redeliver all after an exception.

        with consumer.ack_scope(consumer.receive_many(500)) as messages: …

        Args:
            messages: the messages; None for every message that this consumer receives inside the block.
            confirm: whether to return only when the broker's cursor shows the acknowledgements.
            timeout_ms: the timeout of that, in milliseconds.
        """
        return AckScope(self, messages, confirm=confirm, timeout_ms=timeout_ms)

    # -- redelivering --------------------------------------------------------------------------------------------------

    def negative_acknowledge(self, message: object) -> None:
        """Redeliver one whole message after `negative_ack_redelivery_delay_ms`, by the message or any id of it.

        On an Exclusive or Failover subscription the broker then redelivers every unacknowledged message.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not contain its topic.
            pulsar.AlreadyClosed: the consumer is closed.
        """
        if self._closed:  # a call costs time
            self._raise_if_closed()
        if type(message) is self._message_class:
            self._redelivery.nack_message(message)
            return
        if isinstance(message, InnerMessage | pulsar.Message):
            if type(own := self._own(message)) is self._message_class:
                self._redelivery.nack_message(own)
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

    def reconsume_later(self, message: object, delay_ms: int, properties: dict[str, str] | None = None) -> None:
        """Send a message to the retry topic to be redelivered after a delay, and acknowledge it.

        The call returns when the letter is persisted. After `max_redeliver_count` retries the letter is sent to the
        dead letter topic. After an error the message stays unacknowledged, and may be delivered twice. Java's
        `reconsumeLater`.

        Args:
            message: a received message: one message of a batch, or a whole chunked message.
            delay_ms: delay in milliseconds; the broker ignores it on an Exclusive or Failover subscription.
            properties: added to the message's own, and take precedence.

        Raises:
            InvalidUse: the consumer was opened without `enable_retry`, the delay or the properties are invalid, or the
                call is made in a callback of the client; nothing was sent.
            pulsar.PulsarException: the letter was not persisted, or this is unknown.
        """
        ours, letters = self._check_reconsume("reconsume_later", message, delay_ms, properties)
        letters.send(ours.inner, delay_ms, properties)
        self.acknowledge(ours)

    def reconsume_later_cumulative(
        self, message: object, delay_ms: int, properties: dict[str, str] | None = None
    ) -> None:
        """Send a message to the retry topic, and acknowledge cumulatively up to and including it.

        With several topics or partitions, only messages of the message's own one are acknowledged. Java's
        `reconsumeLaterCumulative`.

        Raises:
            InvalidUse, pulsar.PulsarException: see `reconsume_later()`.
            pulsar.CumulativeAcknowledgementNotAllowedError: the subscription is Shared or Key_Shared; nothing was sent.
        """
        if self._is_shared:
            self.acknowledge_cumulative(message)  # raises before anything is sent
        ours, letters = self._check_reconsume("reconsume_later_cumulative", message, delay_ms, properties)
        letters.send(ours.inner, delay_ms, properties)
        self.acknowledge_cumulative(ours)

    def send_dead_letter(self, message: object, properties: dict[str, str] | None = None) -> None:
        """Send a message to the dead letter topic at once, and acknowledge it: a retry would not help.

        The call returns when the letter is persisted. After an error the message stays unacknowledged, and may be
        delivered twice.

        Args:
            message: a received message: one message of a batch, or a whole chunked message.
            properties: added to the message's own, and take precedence.

        Raises:
            InvalidUse, pulsar.PulsarException: see `reconsume_later()`.
        """
        ours, letters = self._check_reconsume("send_dead_letter", message, 0, properties)
        letters.send_dead(ours.inner, properties)
        self.acknowledge(ours)

    @property
    def _has_letters_(self) -> bool:
        """True if the consumer was opened with `enable_retry=True`."""
        return self._redelivery.retry_letters is not None

    def _check_reconsume(
        self, method: str, message: object, delay_ms: int, properties: dict[str, str] | None
    ) -> tuple[Message, RetryLetters]:
        """Check the call; return the message as one of this consumer's, and the sender of its letter."""
        self._context.callbacks.raise_inside(method)
        self._raise_if_closed()
        letters = self._redelivery.retry_letters
        if letters is None:
            raise InvalidUse(f"{method}() needs a consumer opened with subscribe(…, enable_retry=True).")
        if not isinstance(message, InnerMessage | pulsar.Message):
            raise InvalidUse(f"{method}() needs a received message, got {type(message).__name__}: an id has no data.")
        check_retry(delay_ms, properties)
        return self._own(message), letters

    # -- processing ----------------------------------------------------------------------------------------------------

    def process(
        self,
        handler: Callable[[Message[T]], object],
        *,
        concurrency: int = 1,
        on_error: Action | Callable[[Message[T], Exception], Action] = REDELIVER,
        batch_timeout_ms: int = 10_000,
    ) -> None:
        """Call `handler` with every message, `concurrency` at a time on as many threads, until something ends it.

        A message is acknowledged when its handler returns, in any order, and is received only when a handler is free.
        It ends when the consumer is closed, after `stop_processing()`, and after a SIGTERM on the main thread if the
        application has no handler for that signal. Running handlers end first, and their acknowledgements are sent; so
        they do before an error of a receive or of a signal handler is raised. A second Ctrl-C waits for no handler.
        After `stop_processing()` and a SIGTERM, the rest of a begun batch is handled too if the broker keeps only whole
        batches, as it would redeliver the entire batch.

        Args:
            handler: a function of one message.
            concurrency: the number of messages handled at once; with 1, one after the other in their order.
            on_error: the action for a message whose handler raised: `Redeliver()`, `ReconsumeLater(…)`, `DeadLetter()`
                or `Acknowledge()`, or a function of the message and the error that returns one of them. If the action
                fails, for example because a letter cannot be sent, the message is redelivered.
            batch_timeout_ms: milliseconds after the end in which the rest of a begun batch is handled, if the broker
                keeps only whole batches. 0 to handle no more messages.

        Raises:
            InvalidUse: an argument is invalid; nothing was received.
            pulsar.AlreadyClosed: the consumer was closed before.
            pulsar.InvalidConfiguration: the consumer has a message listener, which gets every message.
            pulsar.PulsarException: a receive failed.
        """
        self._context.callbacks.raise_inside("process")
        self._raise_if_closed()
        if iscoroutinefunction(handler):
            raise InvalidUse("The handler is an async function; use process() of pulsar_ext.asyncio.")
        run = ProcessRun(self, Handling(handler, concurrency, on_error, self._has_letters_, batch_timeout_ms))
        try:
            self._runs.append(run)
            with at_termination(run):
                run.work()
        finally:
            if run in self._runs:  # a Ctrl-C may have come first
                self._runs.remove(run)

    def _ask_about_batches_(self, answer: Callable[[bool | None], object]) -> None:
        """Call `answer` on another thread with `ClientContext.keeps_batch_indexes()`."""
        context = self._context
        context.inquiries.run(lambda: answer(context.keeps_batch_indexes()))

    def stop_processing(self) -> None:
        """Stop every running `process()`: it receives no more, and returns when its handlers have ended.

        This does not wait, and may be called on any thread, in a handler, and in a signal handler.
        """
        for run in list(self._runs):
            run.end()

    # -- moving --------------------------------------------------------------------------------------------------------

    def seek(self, messageid: AnyMessageId | int | Mapping[str, AnyMessageId | int]) -> None:
        """Move to a message, or to a publish time in milliseconds.

        Any id of a chunked message stands for its first chunk. With `start_message_id_inclusive=True` the target is the
        next message to be received, otherwise the one after it, as in Java. The broker searches for a time as if
        publish times increased along the topic: if producers' clocks differ, later messages may precede the target.

        A consumer of several topics or partitions also accepts a dict of an id or a time by topic. Only these topics
        are moved; on the others, unacknowledged messages are redelivered.

        Raises:
            IncompleteChunkedMessage: chunks of the message were trimmed, so it cannot be delivered any more.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidUse: the target is neither an id nor an int.
        """
        self._seek(messageid)

    def get_last_message_ids(self) -> list[MessageId]:
        """Return the id of the last message of each topic and partition; mirrors Java's `Consumer.getLastMessageIds`.

        Each id knows its topic. On an empty topic the entry is -1; for a chunked message it is the last chunk's, as
        plain numbers. The ids come from the admin API.

        Raises:
            AdminError: the admin API rejected the request, or did not answer.
        """
        return self._get_last_message_ids()

    def has_reached_end_of_topic(self) -> bool:
        """Return whether every topic was terminated and completely consumed.

        A consumer has consumed what its subscription has acknowledged: call `flush_acks()` first. Mirrors Java's
        `Consumer.hasReachedEndOfTopic`. The C++ client does not expose it, so the admin API is queried.

        Raises:
            AdminError: the admin API rejected the request, or did not answer; a topic that is not persistent cannot be
                terminated.
        """
        return self._has_reached_end(self._has_acknowledged_all)

    def _has_acknowledged_all(self, stats: list[InternalStats]) -> bool:
        subscription = self.inner.subscription_name()
        cursors = [(one, one.cursors.get(subscription)) for one in stats]
        return all(
            cursor is not None and cursor.mark_delete_position >= one.last_confirmed_entry for one, cursor in cursors
        )

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

    # -- state and end -------------------------------------------------------------------------------------------------

    def subscribed_to(self) -> str:
        """Return the subscribed topics: a topic's full name, several joined by commas, or the text of a pattern.

        With several topics, `topic()` returns the official client's name, which is different for each consumer.
        """
        topics = self._topics
        if isinstance(topics, re.Pattern):
            return str(topics.pattern)
        return ",".join(str(TopicName.parse(one)) for one in ([topics] if isinstance(topics, str) else topics))

    def stats(self) -> ConsumerStats:
        """Return statistics of this consumer from the admin API; mirrors Java's `Consumer.getStats`.

        Raises:
            AdminError: the admin API rejected the request, or did not answer.
            pulsar.AlreadyClosed: the consumer is closed.
        """
        self._context.callbacks.raise_inside("stats")
        self._raise_if_closed()
        admin = self._context.admin_api()
        return consumer_stats(
            [(topic, admin.stats(topic)) for topic in self._topics_read()],
            self.subscription_name(),
            self.consumer_name(),
            is_connected=self.is_connected(),
            pending_acks=self.pending_acks(),
        )

    @property
    def is_closed(self) -> bool:
        """True if this or its client was closed."""
        return self._closed

    def is_connected(self) -> bool:
        """Return whether the consumer is connected to the broker on every topic and partition."""
        return bool(self._gate.ask(self.inner.is_connected))

    def close(self) -> None:
        """Close, after sending pending acknowledgements; closing again does nothing.

        Raises:
            pulsar.PulsarException: the broker did not answer, or rejected the close; this is closed nevertheless.
        """
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def _unsubscribing(self, inner: InnerConsumer) -> Callable[[Answer], object]:
        return self._unsubscription.noted(self._gate.unsubscribe_starter(inner))

    def _enter_cluster(self) -> None:
        super()._enter_cluster()
        if self._prefetch is not None:
            self._prefetch.message_class = self._message_class
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

    def _disable(self, raising: Any) -> None:
        super()._disable(raising)
        self._inbox = self._interrupted = raising
        self._prefetch = self._recorder = self._redelivery_filter = None

    def _after_fork_(self, raising: Any) -> None:
        """Make every use raise in this child process; the locks of the parts may have been held at the fork."""
        super()._after_fork_(raising)
        self._acks = self._redelivery = raising

    def _is_of_another_cluster(self, message: object) -> TypeIs[Message[T]]:
        return isinstance(message, Message) and message.cluster != self._message_class.cluster

    def _own(self, message: pulsar.Message | InnerMessage) -> Message[T]:
        """Return a C++ message, or another consumer's, as this consumer's; another cluster's message unchanged."""
        if self._is_of_another_cluster(message):
            return message
        return self._message_of_(message if isinstance(message, InnerMessage) else inner_message_of(message))
