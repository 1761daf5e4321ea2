"""Common base of consumers and readers: the receive loop, in which a Ctrl-C loses no message, and seeks.

The official `receive()` queues a request in the C++ client and waits for the answer. A Ctrl-C abandons the request, and
the message that answers it later is lost. Here the wait is native and at most 100 ms, and its result goes straight into
the message, so no request is open when Python checks for signals. Messages that a thread had already received into a
list when a Ctrl-C ended its call are kept for its next call.

A pause leaves messages in the receiver queue, and receives wait as if none had arrived. The broker sends no more than
the queue holds. Mirrors `pause()` and `resume()` of Java's `Consumer`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from threading import get_ident
from typing import Any, Generic, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import ANSWER_SECONDS, Answer, answered_within
from pulsar_ext._native.fork import closed, closed_error
from pulsar_ext._native.handles import adopt, consumers_of
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerConsumer, InnerMessage, InnerMessageId
from pulsar_ext._native.results import POLL_MILLIS, UNREACHABLE, AlreadyClosed, Timeout
from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext._runtime.condition import Condition
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.admin import InternalStats
from pulsar_ext.chunks.resolver import seek_target
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message, adopt_message, at_cluster, received
from pulsar_ext.schema.typed import T

from .order import (
    NOTHING,
    Native,
    OutdatedError,
    Part,
    ReceiveOrder,
    Reopener,
    Target,
    Transition,
    TransitionSubscriber,
    raise_unless,
)
from .seeks import Topics, partitions_of_each, targets_by_topic
from .source import PendingReceives, ReceiveAsync, Source, of_one_cluster
from .undecryptable import Flow

_POLL_SECONDS = 0.005
CLOSING_SECONDS = {Transition.UNSUBSCRIPTION: 2.0, Transition.CLOSE: 0.5}
"""Seconds that a transition waits for threads inside `batch_receive()`, which by default return after 100 ms. An
unsubscription drops the waits that remain; a close answers them."""


class Interrupted(TransitionSubscriber):
    """Messages that a thread had received when a Ctrl-C ended its call; its next call begins with them."""

    __slots__ = ("_has_ended", "_is_closing", "ahead", "batches", "many")
    part = Part.INTERRUPTED

    def __init__(self) -> None:
        self.many: dict[int, list[Message]] = {}
        """Messages of `receive_many()`, by thread."""
        self.batches: dict[int, list[InnerMessage]] = {}
        """C++ messages of `batch_receive()`, by thread."""
        self.ahead: Iterator[InnerMessage] = NOTHING
        """First messages of a reopened C++ consumer, which its `batch_receive()` does not return."""
        self._is_closing = self._has_ended = False

    @property
    def is_blocked(self) -> bool:
        """True if new waits for a batch are blocked."""
        return self._is_closing or self._has_ended

    def block(self) -> None:
        """Block new waits for a batch permanently."""
        self._has_ended = True

    def on_before(self, transition: Transition, /) -> None:
        """Wait for threads inside `batch_receive()`: the C++ consumer may never answer them later."""
        if transition in CLOSING_SECONDS:
            self._is_closing = True
            self.wait_for_others(time.monotonic() + CLOSING_SECONDS[transition])

    def on_after(self, _: Transition, /) -> None:
        """Drop the messages: they are redelivered, or nothing is delivered any more."""
        self._is_closing = False
        self.many.clear()
        self.batches.clear()

    def on_abandon(self, _: Transition, /) -> None:
        """Allow new waits for a batch again."""
        self._is_closing = False

    def wait_for_others(self, deadline: float) -> bool:
        """Wait until `deadline` for other threads inside `batch_receive()`; return whether all of them returned."""
        thread = get_ident()
        while any(one != thread and not batch for one, batch in list(self.batches.items())):
            if time.monotonic() >= deadline:
                return False
            threads.sleep(_POLL_SECONDS)
        return True

    def on_reopen(self, _: InnerConsumer, ahead: Iterator[InnerMessage], /) -> None:
        """Keep the messages that are ahead for `batch_receive()`."""
        self.ahead = ahead


class Pause(TransitionSubscriber):
    """The pause of one consumer, during which its receives wait; its `ReceiveOrder` stores the state.

    A C++ consumer without a listener rejects pausing it.
    """

    __slots__ = ("_changed", "_gate", "_listens", "_order")
    part = Part.PAUSE

    def __init__(self, order: ReceiveOrder, gate: SeekGate, *, listens: bool) -> None:
        self._order, self._gate, self._listens = order, gate, listens
        self._changed: Condition | None = None
        """Created by the first pause, as few consumers are ever paused. If two threads create it at once, a waiter on
        the discarded one polls again by itself."""

    def begin(self, inner: InnerConsumer) -> None:
        """Stop delivering messages, and pause the listener of the C++ consumer."""
        if self._changed is None:
            self._changed = Condition()
        self._order.pause()
        if self._listens:
            self._gate.ask(inner.pause_message_listener)

    def end(self, inner: InnerConsumer) -> None:
        """Deliver messages again."""
        self._order.resume()
        changed = self._changed
        if changed is not None:
            with changed:
                changed.notify_all()
        if self._listens and not self._order.is_silent:
            self._gate.ask(inner.resume_message_listener)

    def silence(self, inner: InnerConsumer) -> None:
        """Pause the listener, independent of `begin()` and `end()`."""
        self._gate.ask(inner.pause_message_listener)
        self._order.is_silent = True

    def unsilence(self, inner: InnerConsumer) -> None:
        """Resume the listener, unless receives are paused."""
        self._order.is_silent = False
        if not (self._order.is_paused and self._listens):
            self._gate.ask(inner.resume_message_listener)

    def wait(self, millis: int = POLL_MILLIS) -> None:
        """Wait up to `millis` milliseconds for the end of the pause; raise `pulsar.Timeout` if it has not ended."""
        changed = self._changed
        if changed is not None:
            with changed:
                if self._order.is_paused:
                    changed.wait(millis / 1000)
        if self._order.is_paused:
            raise Timeout("Pulsar error: TimeOut")

    def on_reopen(self, inner: InnerConsumer, _: Iterator[InnerMessage], /) -> None:
        """Pause the listener of the reopened C++ consumer if the old one's was paused."""
        if self._order.is_silent or (self._order.is_paused and self._listens):
            self._gate.ask(inner.pause_message_listener)


_log = logging.getLogger("pulsar_ext")

_RETRY_SECONDS = 0.1
_listening: set[object] = set()
"""Open consumers with a listener; they are kept alive, as a collected one would not call its listener any more."""
N = TypeVar("N", bound="Native")


class Receiving(Generic[N, T]):
    """Common base of `Consumer` and `Reader`, placed before the official class in the MRO."""

    inner: N
    _client: pulsar.Client
    _closed: bool
    _context: ClientContext
    _flow: Flow | None
    _on_message: object
    _message_class: type[Message[T]]
    _order: ReceiveOrder
    _queued: bool
    _source: Source
    _topics: Topics

    @property
    def _message_class_(self) -> type[Message[T]]:
        """Class of the received messages."""
        return self._message_class

    @property
    def _locks_(self) -> tuple[OwnedLock, ...]:
        """Locks that a signal handler checks: if its own thread holds one, a close would see an inconsistent state."""
        return self._order.locks

    def _message_of_(self, inner: Any) -> Message[T]:
        """Return a C++ message as a message of this consumer or reader."""
        return received(inner, self._message_class)

    @property
    def _fetcher_(self) -> Callable[[], Iterator[Message[T]]] | None:
        """Function that fetches messages without waiting; None if there is none."""
        return None

    def _add_subscriber_(self, subscriber: TransitionSubscriber) -> None:
        """Notify a subscriber of seeks, redeliveries and other transitions from now on."""
        self._order.add_subscriber(subscriber)

    def _set_reopener_(self, reopener: Reopener, cluster: int = 0) -> None:
        """Set the reopener of the native object, and the number of the cluster that it is connected to."""
        self._order.reopener, self._order.cluster = reopener, cluster
        if self._message_class.cluster != cluster:
            self._enter_cluster()

    @property
    def _cluster_(self) -> int:
        """Number of the cluster that the native object was opened on."""
        return self._order.cluster

    def _follow_cluster_(self, number: int) -> None:
        """Drop everything of the old cluster; the next receive opens a native object on the one with this number.

        If an earlier transition cannot be completed now, its error is raised and nothing is dropped.
        """
        order = self._order
        if self._closed or order.reopener is None:  # readers of several topics: each follows by itself
            order.cluster = number
            return
        with (
            contextlib.suppress(OutdatedError),
            order.run_transition(
                Transition.ANOTHER_CLUSTER, lambda: raise_unless(lambda: not self._closed), reopens=False
            ),
        ):
            if order.reopener is not None:  # not closed by a signal handler in between
                order.reopener.move_to_cluster()
            order.cluster = number

    @property
    def _screens_(self) -> bool:
        """True if Python screens each message before the application receives it."""
        return not self._queued or self._flow is not None

    def _receive_next_(self, timeout_millis: int | None = None) -> Message[T]:
        """Receive one message, or raise `pulsar.Timeout`; None waits forever."""
        if timeout_millis is not None and (type(timeout_millis) is not int or timeout_millis < POLL_MILLIS):
            return self._receive_briefly(timeout_millis)
        deadline = tried = None
        left = POLL_MILLIS
        while True:
            try:
                if self._order.is_paused:
                    self._wait_while_paused(POLL_MILLIS)
                each = self._source.each  # before the class: a failover changes the class first
                message = self._message_class()
                for message.inner in each:
                    return message
            except Timeout:
                self._context.callbacks.raise_inside("a receive without messages")
                if timeout_millis is None:
                    continue
                if deadline is None:
                    deadline = time.monotonic() + (timeout_millis - POLL_MILLIS) / 1000
                left = int((deadline - time.monotonic()) * 1000)
            except AlreadyClosed:
                tried = self._replacement_of(tried, timeout_millis)
                continue
            if left < POLL_MILLIS:  # not in the handler, whose error would show above that of the timeout
                return self._receive_briefly(left)

    def _close(self) -> None:
        if self._closed:
            return
        self._context.callbacks.raise_inside("close")
        failure = None
        with self._order.run_transition(Transition.CLOSE):
            if not self._closed:  # not closed by another thread in between
                try:
                    self._release_()
                finally:  # also after a Ctrl-C: closing again does nothing
                    try:
                        self.inner.close()
                    except pulsar.PulsarException as error:
                        failure = error
        consumers = consumers_of(self._client)
        if self in consumers:
            consumers.remove(self)
        answered_within(ANSWER_SECONDS, self._order.awaits_answer)  # a closed client leaks an open request
        if failure is not None:
            raise failure

    @property
    def _awaits_answer_(self) -> bool:
        """True if the C++ client has requests of this one without an answer."""
        return self._order.awaits_answer()

    def _reopen_(self, timeout_millis: int | None = None) -> None:
        """Reopen the native object if it was closed for a replacement; wait for a thread that is reopening it.

        Raise `pulsar.Timeout` if the broker cannot be reached for the timeout; without one, retry forever.
        """
        deadline = math.inf if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        while True:
            try:
                return self._order.reopen()
            except UNREACHABLE as error:
                self._raise_if_closed()
                if time.monotonic() >= deadline:
                    raise Timeout("Pulsar error: TimeOut") from error
                threads.sleep(_RETRY_SECONDS)

    def _listen_(self, on_message: object) -> None:
        """Keep the listener's callback, and stay referenced until closed if there is one."""
        self._on_message = on_message
        if on_message is not None:
            _listening.add(self)
            if self._closed:  # by its client in between
                _listening.discard(self)

    def _release_(self) -> None:
        """Drop the reference of `_listening`, and make every later use raise: this or its client is closed.

        After a failed unsubscription the C++ consumer believes that it is open, and a receive would wait forever.
        """
        self._closed = True
        _listening.discard(self)
        self._source = closed(type(self).__name__)
        self._order.drop_ready()

    def _block_(self) -> None:
        """Make every later use raise, as the program ends."""
        self._disable(closed(type(self).__name__))

    def _after_fork_(self, raising: Any) -> None:
        """Make every use raise in this child process."""
        self._disable(raising)

    def _disable(self, raising: Any) -> None:
        self.inner = self._source = raising
        self._order.end(raising)

    def _receive_briefly(self, timeout_millis: int) -> Message[T]:
        """Receive with a timeout of less than one poll."""
        if not isinstance(timeout_millis, int):
            found = type(timeout_millis).__name__
            raise ValueError(  # noqa: TRY004  # what the official client raises
                f"Argument timeout_millis is expected to be of type 'int' and not '{found}'"
            )
        tried = None
        self._wait_while_paused(timeout_millis)
        while True:
            try:
                wait = self._source.wait  # before the class: a failover changes the class first
                message = self._message_class()
                for message.inner in map(wait, (max(timeout_millis, 0),)):
                    return message
            except AlreadyClosed:
                tried = self._replacement_of(tried, timeout_millis)

    def _wait_while_paused(self, timeout_millis: int) -> None:
        """Wait for the end of a pause, if this can be paused; raise `pulsar.Timeout` if it does not end in time."""

    def _set_native_(self, official: pulsar.Consumer | pulsar.Reader) -> N:
        """Use and return the C++ object of another official one; if this was closed in between, close it, and raise."""
        adopt(self, official, self._client)
        if self._message_class.cluster != self._order.cluster:
            self._enter_cluster()
        if self._closed:
            self.inner.close()
            raise closed_error(type(self).__name__)
        return self.inner

    def _enter_cluster(self) -> None:
        """Receive messages of the order's current cluster from now on."""
        self._message_class = at_cluster(self._message_class, self._order.cluster)

    def _replacement_of(self, tried: N | None, timeout_millis: int | None = None) -> N:
        """Return the C++ object that replaced one that was found closed, once it is open; see `_reopen_()`.

        `tried` is the one that the last call returned, which was found closed as well; if it was not replaced, raise.
        """
        self._reopen_(timeout_millis)
        self._raise_if_closed()
        if self.inner is tried:
            raise closed_error(type(self).__name__)
        return self.inner

    def _ask(
        self,
        call_of: Callable[[N], Callable[[Answer], object]],
        again: type[Exception] | tuple[type[Exception], ...],
    ) -> Any:
        """Return the answer of the C++ object to an asynchronous call; call again after another thread's seek.

        The errors `again` are retried for the client's `operation_timeout_seconds`.
        """
        tried = None
        while True:
            try:
                return self._context.call_with_retries(call_of(self.inner), again)
            except AlreadyClosed:
                tried = self._replacement_of(tried, self._context.operation_timeout_seconds * 1000)

    def _ask_stored(self, call_of: Callable[[N], Callable[[Answer], object]]) -> Any:
        """Query the C++ object for stored data of its topic, as `_ask()`; retry while the broker cannot be reached.

        Raise `pulsar.UnknownError` on a non-persistent topic, where retrying the broker's error would never succeed.
        """
        if isinstance(self._topics, str) and self._topics.startswith("non-persistent://"):
            raise pulsar.UnknownError(
                f"Pulsar error: UnknownError: {self._topics} is not persistent: it stores no messages"
            )
        return self._ask(call_of, UNREACHABLE)

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise closed_error(type(self).__name__)

    def _receive_of(self, inner: N) -> Callable[[int], InnerMessage]:
        """Return the receive with a timeout of a C++ object, or a replacement if it does not have one."""
        wait, receive_async = self._native_receives(inner)
        if not self._queued:
            return PendingReceives(receive_async, self._enable_queue, self._is_excluded)
        return wait if self._flow is None else self._flow.counting(wait)

    def _native_receives(self, inner: N) -> tuple[Callable[[int], InnerMessage], ReceiveAsync]:
        """Return the receive with a timeout of a C++ object, and the asynchronous one, for messages of its cluster."""
        receives = self._receives_of(inner)
        return of_one_cluster(*receives, self._is_on_its_cluster_) if self._context.cluster.may_change else receives

    def _is_on_its_cluster_(self) -> bool:
        """Return whether the client is connected to the cluster of received messages.

        The C++ client connects the native object to another cluster by itself, perhaps before it is closed here.
        """
        return self._context.cluster.number() == self._message_class.cluster

    def _listened_(self, message: pulsar.Message) -> Message[T] | None:
        """Return a message for the listener, which may be called before the native object is used here.

        Return None for one of a cluster that is not followed yet: another native object receives it again.
        """
        cluster = self._order.cluster
        if self._context.cluster.number() != cluster:
            return None
        return adopt_message(message, at_cluster(self._message_class, cluster))

    def _receives_of(self, inner: N) -> tuple[Callable[[int], InnerMessage], ReceiveAsync]:
        """Return the receive with a timeout of a C++ object, and the asynchronous one."""
        raise NotImplementedError

    def _is_excluded(self, inner: InnerMessage) -> bool:
        """Return whether a C++ message precedes the sought message in the same entry."""
        reopener = self._order.reopener
        return reopener is not None and reopener.is_excluded(inner)

    def _enable_queue(self, inner_id: InnerMessageId) -> bool:
        """Use a receiver queue of one message from now on, if possible; the batch of this id is redelivered.

        Without a queue, the C++ client returns the first message of a batch and drops the others.
        """
        reopener = self._order.reopener
        if reopener is None:
            return False
        _log.warning(
            "receiver_queue_size=0 cannot receive the batches of %s completely; using receiver_queue_size=1.",
            self._topics,
        )
        self._queued = True
        reopener.enable_queue()
        with self._order.run_transition(Transition.REPLACEMENT):
            reopener.move_before(inner_id)
        return True

    # -- seeks ---------------------------------------------------------------------------------------------------------

    def _seek(self, target: object) -> None:
        self._context.callbacks.raise_inside("seek")
        if isinstance(target, Mapping):
            self._seek_each(target)
            return
        found = seek_target(self._context.resolver, self._topics, target)
        with self._order.run_transition(Transition.SEEK, lambda: self._begin_seek(None)):
            self._move_native(found)

    def _move_native(self, target: Target) -> None:
        reopener = self._order.reopener
        (self.inner.seek if reopener is None else reopener.move)(target)

    def _seek_each(self, targets: Mapping[str, object]) -> None:
        """Move on some of several topics and partitions."""
        self._raise_if_closed()
        topics = self._topics_read()
        found = targets_by_topic(targets, topics)
        if not found:
            return
        if isinstance(self._topics, str) and topics == [str(TopicName.parse(self._topics))]:
            self._seek(found[topics[0]])
            return
        resolver = self._context.resolver
        resolved = {topic: seek_target(resolver, topic, target) for topic, target in found.items()}
        with self._order.run_transition(Transition.SEEK, lambda: self._begin_seek(resolved)):
            if (reopener := self._order.reopener) is not None:  # `_begin_seek()` has checked it
                reopener.seek_each(resolved)

    def _begin_seek(self, targets: Mapping[str, Target] | None) -> None:
        """Note which of several topics the seek moves; None for all."""
        self._raise_if_closed()
        reopener = self._order.reopener
        if reopener is not None:
            reopener.note_moved_topics(targets)
        elif targets is not None:
            raise closed_error(type(self).__name__)

    def _get_last_message_ids(self) -> list[MessageId]:
        self._context.callbacks.raise_inside("get_last_message_ids")
        self._raise_if_closed()
        admin = self._context.admin_api()
        return [admin.last_message_id(topic) for topic in self._topics_read()]

    def _has_reached_end(self, has_consumed_all: Callable[[list[InternalStats]], bool]) -> bool:
        self._context.callbacks.raise_inside("has_reached_end_of_topic")
        self._raise_if_closed()
        admin = self._context.admin_api()
        stats = [admin.internal_stats(topic) for topic in self._topics_read()]
        return bool(stats) and all(one.state == "Terminated" for one in stats) and has_consumed_all(stats)

    def _topics_read(self) -> list[str]:
        """Return the full names of all topics and partitions."""
        return partitions_of_each(self._context, self._topics)
