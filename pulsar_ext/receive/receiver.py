"""The receive loop of consumers and readers: fast, and a Ctrl-C loses nothing.

The official `receive()` hands a request to the C++ client and waits for the answer; a Ctrl-C abandons the request,
and the message that answers it later vanishes. Here the wait is native and short, and its result goes straight into
the message: nothing is ever on its way when Python looks for signals. What a thread had received of a list when a
Ctrl-C ended its call is kept for its next one.

A pause leaves messages where they are, and receives wait as if none came: nobody takes messages out of the receiver
queue, and the broker sends no more than it has room for. Mirrors `pause()` and `resume()` of Java's `Consumer`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, Self, cast

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import ANSWER_SECONDS, answered_within
from pulsar_ext._native.fork import closed, closed_error
from pulsar_ext._native.handles import adopt, consumers_of
from pulsar_ext._native.results import POLL_MILLIS, UNREACHABLE, AlreadyClosed, Timeout, cooperative
from pulsar_ext._runtime.condition import Condition
from pulsar_ext._runtime.statistics import consumer_stats
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import at_cluster
from pulsar_ext.schema.typed import T

from .order import NOTHING, OutdatedError, Part, ReceiveOrder, Transition, refuse_unless
from .seeks import Moving
from .source import PendingReceives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext._native.answer import Answer
    from pulsar_ext._native.locks import OwnedLock
    from pulsar_ext._native.seek_gate import SeekGate
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext._runtime.statistics import ConsumerStats
    from pulsar_ext.message import Message

    from .order import Foundation
    from .source import Source
    from .undecryptable import Flow


_LOOK_SECONDS = 0.005
LEAVING_SECONDS = {Transition.UNSUBSCRIPTION: 2.0, Transition.CLOSE: 0.5}
"""How many seconds those who wait for a batch are waited for: by default they do for 100 ms. An unsubscription forgets
who is left then; a close answers whoever surely waits."""


class Interrupted(Part):
    """What a thread had received when a Ctrl-C ended its call; its next call begins with it."""

    __slots__ = ("_has_ended", "_is_leaving", "ahead", "batches", "many")

    def __init__(self) -> None:
        self.many: dict[int, list[Message]] = {}
        """Of `receive_many()`, by thread."""
        self.batches: dict[int, list[Any]] = {}
        """Of `batch_receive()`, as C++ messages, by thread."""
        self.ahead: Iterator[Any] = NOTHING
        """The first messages of another C++ consumer, which its `batch_receive()` would not give."""
        self._is_leaving = self._has_ended = False

    @property
    def is_barred(self) -> bool:
        """Whether no thread may begin to wait for a batch."""
        return self._is_leaving or self._has_ended

    def bar(self) -> None:
        """Let no thread begin to wait for a batch any more."""
        self._has_ended = True

    def before(self, transition: Transition, /) -> None:
        """Let threads that wait for a batch come back: the C++ consumer may forget them."""
        if transition in LEAVING_SECONDS:
            self._is_leaving = True
            self.await_others(time.monotonic() + LEAVING_SECONDS[transition])

    def after(self, _: Transition, /) -> None:
        """Drop it: it comes again, or nothing is handed out any more."""
        self._is_leaving = False
        self.many.clear()
        self.batches.clear()

    def abandon(self, _: Transition, /) -> None:
        """Let threads wait again."""
        self._is_leaving = False

    def await_others(self, deadline: float) -> bool:
        """Wait for other threads that wait for a batch, until `deadline`; tell whether all of them have come back."""
        thread = get_ident()
        while any(one != thread and not batch for one, batch in list(self.batches.items())):
            if time.monotonic() >= deadline:
                return False
            threads.sleep(_LOOK_SECONDS)
        return True

    def renew(self, _: Any, ahead: Iterator[Any], /) -> None:
        """Keep what is ahead for those who receive batches."""
        self.ahead = ahead


class Pause(Part):
    """Where the receives of one consumer wait while its order is paused.

    Args:
        order: of the consumer's messages, which knows whether it is paused.
        gate: what the C++ consumer is asked through.
        listens: whether that has a listener; the gate must not be asked what is refused without one.
    """

    __slots__ = ("_changed", "_gate", "_listens", "_order")

    def __init__(self, order: ReceiveOrder, gate: SeekGate, *, listens: bool) -> None:
        self._order, self._gate, self._listens = order, gate, listens
        self._changed: Condition | None = None
        """Made by the first pause, for few consumers are ever paused. Where two threads make it at once, who waits on
        one of them looks again by itself."""

    def begin(self, inner: Any) -> None:
        """Hand out nothing from now on, nor have a listener of the C++ consumer called."""
        if self._changed is None:
            self._changed = Condition()
        self._order.pause()
        if self._listens:
            self._gate.ask(inner.pause_message_listener)

    def end(self, inner: Any) -> None:
        """Hand out again."""
        self._order.resume()
        changed = self._changed
        if changed is not None:
            with changed:
                changed.notify_all()
        if self._listens and not self._order.is_silent:
            self._gate.ask(inner.resume_message_listener)

    def silence(self, inner: Any) -> None:
        """Have the listener not called from now on, whether receives wait or not."""
        self._gate.ask(inner.pause_message_listener)
        self._order.is_silent = True

    def unsilence(self, inner: Any) -> None:
        """Have it called again, unless receives wait."""
        self._order.is_silent = False
        if not (self._order.is_paused and self._listens):
            self._gate.ask(inner.resume_message_listener)

    def wait(self, millis: int = POLL_MILLIS) -> None:
        """Wait until it is over, for so many milliseconds at most.

        Raises:
            pulsar.Timeout: it is not.
        """
        changed = self._changed
        if changed is not None:
            with changed:
                if self._order.is_paused:
                    changed.wait(millis / 1000)
        if self._order.is_paused:
            raise Timeout("Pulsar error: TimeOut")

    def renew(self, inner: Any, ahead: Iterator[Any], /) -> None:
        """Pause the listener of another C++ consumer as well."""
        del ahead
        if self._order.is_silent or (self._order.is_paused and self._listens):
            self._gate.ask(inner.pause_message_listener)


class Measured(Moving):
    """What a consumer says of itself, and the broker of it."""

    def subscribed_to(self) -> str:
        """Give what was subscribed to: a topic's full name, several joined by commas, or the text of a pattern.

        Where there are several topics, `topic()` is the official client's: a name of its own for each consumer.
        """
        topics = self._topics
        if isinstance(topics, re.Pattern):
            return str(topics.pattern)
        return ",".join(str(TopicName.parse(one)) for one in ([topics] if isinstance(topics, str) else topics))

    def stats(self) -> ConsumerStats:
        """Give statistics of this consumer, which the admin API is asked for; mirrors Java's `Consumer.getStats`.

        Raises:
            AdminError: the admin API refused, or did not answer.
            pulsar.AlreadyClosed: it is closed.
        """
        self._context.callbacks.refuse("stats")
        self._refuse_closed()
        admin, consumer = self._context.admin_api(), cast("Any", self)
        return consumer_stats(
            [(topic, admin.stats(topic)) for topic in self._topics_read()],
            consumer.subscription_name(),
            consumer.consumer_name(),
            is_connected=consumer.is_connected(),
            pending_acks=consumer.pending_acks(),
        )


_log = logging.getLogger("pulsar_ext")

_AGAIN_SECONDS = 0.1
_listening: set[Receiving] = set()
"""Those with a listener that are open: were one dropped, and with it its client, nobody would hear its messages."""


class Receiving(Moving, Generic[T]):
    """What `Consumer` and `Reader` share; it stands before the official class."""

    inner: Any
    _client: Any
    _closed: bool
    _context: ClientContext
    _flow: Flow | None
    _hear: Any
    _message_class: type[Message[T]]
    _order: ReceiveOrder
    _queued: bool
    _source: Source
    _topics: Any

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or its client was."""
        return self._closed

    @property
    def _message_class_(self) -> type[Message[T]]:
        """What the received messages are."""
        return self._message_class

    @property
    def _locks_(self) -> tuple[OwnedLock, ...]:
        """What the handler of a signal finds held by its own thread where a close would meet something half done."""
        return self._order.locks

    def _take_part_(self, part: Part) -> None:
        """Have a part that keeps messages hear of seeks, redeliveries and the like."""
        self._order.take_part(part)

    def _found_(self, foundation: Foundation, cluster: int = 0) -> None:
        """Take what opens another C++ object in the place of this one, and the number of the cluster that it is on."""
        self._order.foundation, self._order.cluster = foundation, cluster
        self._enter_cluster()

    @property
    def _cluster_(self) -> int:
        """Number of the cluster that the native object was opened on."""
        return self._order.cluster

    def _follow_cluster_(self, number: int) -> None:
        """Drop all that is of another cluster than this one; the native object is closed, and another one has to begin.

        Args:
            number: of the cluster that the client is connected to.

        Raises:
            pulsar.PulsarException: a transition before this one cannot be ended now; nothing was dropped.
        """
        order = self._order
        if self._closed or order.foundation is None:  # readers of several topics: each follows by itself
            order.cluster = number
            return
        with (
            contextlib.suppress(OutdatedError),
            order.passing(Transition.ANOTHER_CLUSTER, lambda: refuse_unless(lambda: not self._closed), renews=False),
        ):
            if order.foundation is not None:  # closed meanwhile, by the handler of a signal
                order.foundation.move_to_cluster()
            order.cluster = number

    @property
    def _judges_(self) -> bool:
        """Whether Python looks at each message before the application does."""
        return not self._queued or self._flow is not None

    def _receive_next_(self, timeout_millis: int | None = None) -> Message[T]:
        """Receive one message.

        A Ctrl-C ends the wait within 100 ms and loses no message.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            pulsar.Timeout: no message came in time.
            pulsar.AlreadyClosed: it is closed.
        """
        if timeout_millis is not None and (type(timeout_millis) is not int or timeout_millis < POLL_MILLIS):
            return self._receive_soon(self._message_class(), timeout_millis)
        deadline = tried = None
        left = POLL_MILLIS
        while True:
            message = self._message_class()  # again: the last wait may have ended on another cluster
            try:
                if self._order.is_paused:
                    self._wait_while_paused(POLL_MILLIS)
                for message.inner in self._source.each:
                    return message
            except Timeout:
                self._context.callbacks.refuse("a receive without messages")
                if timeout_millis is None:
                    continue
                if deadline is None:
                    deadline = time.monotonic() + (timeout_millis - POLL_MILLIS) / 1000
                left = int((deadline - time.monotonic()) * 1000)
            except AlreadyClosed:
                tried = self._other_than(tried, timeout_millis)
                continue
            if left < POLL_MILLIS:  # not in the handler, whose error would show above that of the timeout
                return self._receive_soon(message, left)

    def close(self) -> None:
        """Close, after sending pending acknowledgements; closing again does nothing.

        Raises:
            pulsar.PulsarException: the broker did not answer, or refused; it is closed all the same.
        """
        if self._closed:
            return
        self._context.callbacks.refuse("close")
        refused = None
        with self._order.passing(Transition.CLOSE):
            if not self._closed:  # by another thread meanwhile
                try:
                    self._release_()
                finally:  # also behind a Ctrl-C: closing again does nothing
                    try:
                        self.inner.close()
                    except pulsar.PulsarException as error:
                        refused = error
        consumers = consumers_of(self._client)
        if self in consumers:
            consumers.remove(self)
        answered_within(ANSWER_SECONDS, self._order.is_owed)  # what a client owes as it is closed, it keeps for good
        if refused is not None:
            raise refused

    @property
    def _is_owed_(self) -> bool:
        """Whether the C++ client has not answered everything that it was asked for here."""
        return self._order.is_owed()

    def _renew_(self, timeout_millis: int | None = None) -> None:
        """Stand on another C++ object, if the last one was closed for that; waits for whoever is at it.

        Args:
            timeout_millis: how long to try while the broker cannot be reached; None tries for ever, as a C++ consumer.

        Raises:
            pulsar.Timeout: it could not be reached in time.
            pulsar.AlreadyClosed: it is closed.
        """
        deadline = math.inf if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        while True:
            try:
                return self._order.renew()
            except UNREACHABLE as error:
                self._refuse_closed()
                if time.monotonic() >= deadline:
                    raise Timeout("Pulsar error: TimeOut") from error
                threads.sleep(_AGAIN_SECONDS)

    def _listen_(self, hear: Any) -> None:
        """Keep what the listener calls, and with a listener be kept, until it is closed."""
        self._hear = hear
        if hear is not None:
            _listening.add(self)
            if self._closed:  # by its client's end meanwhile
                _listening.discard(self)

    def _release_(self) -> None:
        """Be kept no longer, and refuse every use: it is closed, or its client is.

        An unsubscription that fails behind that has the C++ consumer take itself for open, and a receive wait for ever.
        """
        self._closed = True
        _listening.discard(self)
        self._source = closed(type(self).__name__)
        self._order.begin_epoch()

    def _bar_(self) -> None:
        """Let nobody enter the C++ object any more: the program ends."""
        self._refuse(closed(type(self).__name__))

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse every use in this child process."""
        self._refuse(refusal)

    def _refuse(self, refusal: Any) -> None:
        self.inner = self._source = refusal
        self._order.end(refusal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive_soon(self, message: Message[T], timeout_millis: int) -> Message[T]:
        """Receive within less than one poll."""
        if not isinstance(timeout_millis, int):
            found = type(timeout_millis).__name__
            raise ValueError(  # noqa: TRY004  # what the official client raises
                f"Argument timeout_millis is expected to be of type 'int' and not '{found}'"
            )
        tried = None
        self._wait_while_paused(timeout_millis)
        while True:
            try:
                for message.inner in map(self._source.wait, (max(timeout_millis, 0),)):
                    return message
            except AlreadyClosed:
                tried = self._other_than(tried, timeout_millis)
                message = self._message_class()

    def _wait_while_paused(self, timeout_millis: int) -> None:
        """Wait for the end of a pause, if this can be paused; raises `pulsar.Timeout` if it does not end in time."""

    def _stand_on_(self, official: Any) -> Any:
        """Go on with the C++ object of another official one; gives it.

        Raises:
            pulsar.AlreadyClosed: this was closed meanwhile, and the other one is as well now.
        """
        adopt(self, official, self._client)
        if self._message_class.cluster != self._order.cluster:
            self._enter_cluster()
        if self._closed:
            self.inner.close()
            raise closed_error(type(self).__name__)
        return self.inner

    def _enter_cluster(self) -> None:
        """Receive messages of the order's cluster from now on, which may be another one."""
        self._message_class = at_cluster(self._message_class, self._order.cluster)

    def _other_than(self, tried: Any, timeout_millis: int | None = None) -> Any:
        """Give the C++ object that took the place of one that was found closed, once it is there.

        Args:
            tried: what was given the last time, which is closed as well.
            timeout_millis: how long to try while the broker cannot be reached; None tries for ever.

        Raises:
            pulsar.AlreadyClosed: there is no other one.
            pulsar.Timeout: the broker could not be reached in time.
        """
        self._renew_(timeout_millis)
        self._refuse_closed()
        if self.inner is tried:
            raise closed_error(type(self).__name__)
        return self.inner

    def _ask(
        self,
        question: Callable[[Any], Callable[[Answer], object]],
        again: type[Exception] | tuple[type[Exception], ...],
    ) -> Any:
        """Ask the C++ object, and again behind another thread's seek, or while the broker cannot be reached.

        Args:
            question: gives the asynchronous call of the C++ object.
            again: what it says while the broker cannot be reached.

        Raises:
            pulsar.PulsarException: it failed, or the broker could not be reached for `operation_timeout_seconds`.
            pulsar.AlreadyClosed: it is closed.
        """
        tried = None
        while True:
            try:
                return self._context.insist(question(self.inner), again)
            except AlreadyClosed:
                tried = self._other_than(tried, self._context.operation_timeout_seconds * 1000)

    def _ask_stored(self, question: Callable[[Any], Callable[[Answer], object]]) -> Any:
        """Ask the C++ object for what its topic stores, as `_ask()`, again while the broker cannot be reached.

        Raises:
            pulsar.UnknownError: the topic is not persistent. The broker answers that, and would be asked again.
        """
        if isinstance(self._topics, str) and self._topics.startswith("non-persistent://"):
            raise pulsar.UnknownError(
                f"Pulsar error: UnknownError: {self._topics} is not persistent: it stores nothing"
            )
        return self._ask(question, UNREACHABLE)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise closed_error(type(self).__name__)

    def _wait_of(self, inner: Any) -> Any:
        """Give the receive with a timeout of a C++ object, or what stands in for it where there is no such receive."""
        wait, receive_async = self._receives_of(inner)
        if not self._queued:
            return PendingReceives(receive_async, self._get_queue, self._leaves_out)
        return wait if self._flow is None else self._flow.counting(wait)

    @staticmethod
    def _receives_of(inner: Any) -> tuple[Any, Any]:
        """Give the receive with a timeout of a C++ object, and the asynchronous one."""
        return cooperative(inner.receive), inner.receive_async

    def _leaves_out(self, inner: Any) -> bool:
        """Whether a C++ message is before what was sought, in the same entry."""
        foundation = self._order.foundation
        return foundation is not None and foundation.leaves_out(inner)

    def _get_queue(self, inner_id: Any) -> bool:
        """Have a receiver queue for one message from now on, and a batch come again, whose first message has this id.

        The C++ client without a queue hands out the first message of a batch, and drops the others.

        Returns:
            Whether that is possible.
        """
        foundation = self._order.foundation
        if foundation is None:
            return False
        _log.warning(
            "Batches come on %s, which receiver_queue_size=0 cannot receive whole; it is 1 from now on.", self._topics
        )
        self._queued = True
        foundation.have_queue()
        with self._order.passing(Transition.REPLACEMENT):
            foundation.move_before(inner_id)
        return True
