"""A consumer over a modelled broker: what it holds, what it delivers, and which of its next steps fails.

The consumer is the library's own, with all its parts that keep messages, and two more that record their calls. Beneath
it is a queue instead of the C++ consumer. A message has the number of the cursor's move since which it was sent, so an
outdated message is recognised by itself.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pulsar
from pulsar.schema import BytesSchema

import pulsar_ext.consumer
from pulsar_ext import ForkedClientError, Message
from pulsar_ext._native.core import IS_USED
from pulsar_ext._native.fork import Refusing
from pulsar_ext._native.results import AlreadyClosed, Timeout
from pulsar_ext.consumer import Consumer, Subscription
from pulsar_ext.errors import InvalidUse
from pulsar_ext.message import adopt_message, message_class
from pulsar_ext.receive import prefetch
from pulsar_ext.receive.order import ReceiveOrder, Transition, TransitionSubscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ERRORS", "MOVES", "PLACES", "WAYS", "World"]

MOVES: Final = ("seek", "redeliver", "replace", "reset", "cluster", "unsubscribe", "close", "fork", "reconnect")
PLACES: Final = ("first before", "before", "move", "moved", "retire", "first after", "after", "open", "renew")
"""Steps at which a transition fails, is interrupted, or coincides with another one."""
WAYS: Final = ("one", "many", "batch", "loop")
ERRORS: Final = (ConnectionError, KeyboardInterrupt)
_ENDED: Final = (AlreadyClosed, ForkedClientError)
_AHEAD: Final = 5
"""Initial number of messages of the broker beyond the delivered ones."""


class Came(NamedTuple):
    """A C++ message: the number of the move since which it was sent, and its index on the topic."""

    stamp: int
    place: int

    def length(self) -> int:
        """Return its size in bytes."""
        return 1


class Broker:
    """A subscription: the number of messages, its cursor, and the number of the cursor's moves."""

    def __init__(self) -> None:
        self.sent, self.cursor, self.stamp = _AHEAD, 0, 0
        self.trip: tuple[str, Callable[[], None]] | None = None
        """The step that is interrupted, and the interruption."""
        self.receives = -1
        """Number of receives before one is interrupted; negative for none."""

    def step(self, place: str) -> None:
        """Interrupt, if this is the step."""
        if self.trip is not None and self.trip[0] == place:
            (_, between), self.trip = self.trip, None
            between()


class Queue:
    """A substitute for the C++ consumer."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self.is_open = broker, True
        self._begin()

    def _begin(self) -> None:
        self._broker.stamp += 1
        self._stamp, self._next = self._broker.stamp, self._broker.cursor

    def _check(self) -> None:
        if not self.is_open:
            raise AlreadyClosed("Pulsar error: AlreadyClosed")

    def receive(self, _: int) -> Came:
        self._check()
        broker = self._broker
        if broker.receives == 0:
            broker.receives = -1
            raise KeyboardInterrupt
        if self._next >= broker.sent:
            raise Timeout("Pulsar error: TimeOut")
        broker.receives -= broker.receives > 0
        self._next += 1
        return Came(self._stamp, self._next - 1)

    receive_async = receive

    def batch_receive(self) -> list[Came]:
        """Return three messages, unless it is interrupted."""
        return self._take(3)

    def left(self) -> int:
        """Return the number of its messages."""
        return self._broker.sent - self._next if self.is_open else 0

    def fetch(self, cls: type[Message], most: int) -> list[Any]:
        """Return messages at once, as the native core does, unless it is interrupted."""
        return [adopt_message(SimpleNamespace(_message=one), cls) for one in self._take(most)]

    def _take(self, most: int) -> list[Came]:
        self._check()
        messages: list[Came] = []
        with contextlib.suppress(Timeout):
            messages.append(self.receive(0))
        self._broker.receives = -1
        with contextlib.suppress(Timeout):
            while len(messages) < most:
                messages.append(self.receive(0))
        return messages

    def seek(self, target: int) -> None:
        self._check()
        self._broker.step("move")
        self._broker.cursor = target
        self._begin()
        self._broker.step("moved")

    def redeliver_unacknowledged_messages(self) -> None:
        self.seek(self._broker.cursor)

    def unsubscribe_async(self, _: object) -> None:
        self._check()
        self._broker.step("move")
        self.is_open = False

    def close(self) -> None:
        """Close; a second call does nothing."""
        self.is_open = False


class Ground:
    """Opens another queue that replaces the consumer's."""

    def __init__(self, broker: Broker, consumer: Any) -> None:
        self._broker, self._consumer = broker, consumer

    def retire(self) -> None:
        self._broker.step("retire")
        self._consumer.inner.is_open = False

    def move(self, target: int) -> None:
        self._consumer.inner.seek(target)

    def move_to_cluster(self) -> None:
        """Fail, or be interrupted, if the broker says so; the cursor is unchanged on the other cluster."""
        self._broker.step("move")
        self._broker.step("moved")

    def reopen_native(self) -> tuple[Any, Iterator[Any]]:
        """Open a queue, and take its first message beforehand, as after a seek into a batch."""
        self._consumer.inner.is_open = False
        self._broker.step("open")
        inner = self._consumer._set_native_(_official(Queue(self._broker)))
        ahead = [inner.receive(0)] if self._broker.cursor % 2 and self._broker.cursor < self._broker.sent else []
        return inner, iter(ahead)


class Noting(TransitionSubscriber):
    """Counts its calls, and fails if the broker says so."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self._broker, self._prefix = broker, prefix
        self.begun: Counter[Transition] = Counter()
        self.ended: Counter[Transition] = Counter()

    def on_before(self, transition: Transition, /) -> None:
        self.begun[transition] += 1
        self._broker.step(self._prefix + "before")

    def on_after(self, transition: Transition, /) -> None:
        self.ended[transition] += 1
        self._broker.step(self._prefix + "after")

    def on_abandon(self, transition: Transition, /) -> None:
        self.ended[transition] += 1
        self._broker.step(self._prefix + "abandon")

    def on_reopen(self, *_: Any) -> None:
        self._broker.step("renew")


def _official(queue: Queue) -> Any:
    official: Any = pulsar.Consumer()
    official._consumer, official._schema = queue, None
    return official


class World:
    """A consumer, and what it may deliver.

    `taken` has the deliveries since the cursor was last moved, in order.
    """

    def __init__(self, *, is_shared: bool, fetches: bool) -> None:
        self.broker = Broker()
        self.order = ReceiveOrder()
        self._noting = Noting(self.broker, "first "), Noting(self.broker, "")
        nothing = SimpleNamespace(screens=False, messages=[], may_have_chunks=False, dead_letters=None)
        nothing.send_pending = nothing.mark_closed = nothing.end_screening_if_received = lambda: None
        nothing.is_redelivered_duplicate = lambda _: False
        nothing.inbox = nothing.collector = nothing
        nothing.unsubscribe_starter = lambda inner: (
            lambda answer, begun: (begun.append(0), inner.unsubscribe_async(answer))
        )
        client = SimpleNamespace(_consumers=[])
        context: Any = SimpleNamespace(
            opener=client,
            callbacks=SimpleNamespace(raise_inside=lambda _: None),
            cluster=SimpleNamespace(may_change=False, number=lambda: self.order.cluster),
            resolver=None,
            call_with_retries=lambda begin, _: begin(None),
            operation_timeout_seconds=0,
        )
        self.order.add_subscriber(self._noting[0])
        subscription: Any = Subscription(
            context,
            self.order,
            nothing,
            nothing,
            nothing,
            message_class(BytesSchema()),
            "topic",
            is_shared=is_shared,
            fetches=100 if fetches and IS_USED else 0,
        )
        with _on(1):
            self.consumer: Any = Consumer._assemble_(_official(Queue(self.broker)), subscription)
            self.consumer._set_reopener_(Ground(self.broker, self.consumer))
        self.order.add_subscriber(self._noting[1])
        self.ended: str | None = None
        self.floor = 0
        self.threads: dict[tuple[str, int], Came] = {}
        self.stamp = 0
        self.came: set[Came] = set()
        self.last: Came | None = None
        self.is_unreached = False
        """True after a move without the step at which it should fail, which is thus a move that does not fail."""
        self._ending = False

    # -- what the application does -----------------------------------------------------------------------------------

    def send(self, count: int = 3) -> None:
        """Add messages to the topic."""
        self.broker.sent += count

    def acknowledge(self) -> None:
        """Acknowledge everything up to the last message, if the cursor was not moved since."""
        if self.last is not None and self.last.stamp == self.broker.stamp:
            self.broker.cursor = max(self.broker.cursor, self.last.place + 1)

    def receive(self, how: str, thread: int = 1, count: int = 3, interrupted: int = -1) -> list[Came]:
        """Receive in one of the consumer's ways, and check the messages.

        Args:
            how: `one`, `many`, `batch` or `loop`.
            thread: 1 or 2.
            count: maximum number of messages.
            interrupted: number of messages before a Ctrl-C; negative for no Ctrl-C.
        """
        self.broker.receives = interrupted
        with _on(thread):
            came = self._receive(how, count)
        self.broker.receives = -1
        for one in came:
            self._check_one(one, how, thread)
        return came

    def _receive(self, how: str, count: int) -> list[Came]:
        consumer, came = self.consumer, []
        # Stored by the next instruction, as in a program that loses nothing itself.
        try:
            if how == "one":
                while len(came) < count:
                    came.append(consumer.receive(100).inner)
            elif how == "many":
                came = [one.inner for one in consumer.receive_many(count, 100)]
            elif how == "batch":
                came = [one.inner for one in consumer.batch_receive()]
            elif self.ended or self._has(count):  # a loop waits forever
                for one in consumer:
                    came.append(one.inner)
                    if len(came) == count:
                        break
        except (Timeout, KeyboardInterrupt):
            pass
        except _ENDED:
            assert self.ended, "raised while the consumer is open"
        return came

    def _has(self, count: int) -> bool:
        """Return True if the queue certainly has `count` messages."""
        return self.consumer.inner.left() >= count

    def _check_one(self, one: Came, how: str, thread: int) -> None:
        assert not self.ended, f"{one} was delivered after {self.ended}"
        assert one.stamp >= self.floor, f"{one} is from before the last move, number {self.floor}"
        self.stamp = max(self.stamp, one.stamp)
        # An interrupted call's messages are returned by the next one of its kind; others may have continued before it.
        before = self.threads.get((how, thread))
        assert before is None or one > before, f"{one} came after {before} by {how} on thread {thread}"
        assert one not in self.came, f"{one} came twice"
        self.threads[how, thread] = self.last = one
        self.came.add(one)

    def doubt(self, *, begins: bool) -> None:
        """Begin or end the screening of messages: the connection may be another one."""
        (self.order.start_screening if begins else self.order.end_screening)()

    # -- what moves it -----------------------------------------------------------------------------------------------

    def move(self, what: str, place: str | None = None, error: type[BaseException] = ConnectionError) -> bool:
        """Carry out a move, which fails at a step; return True if it succeeded."""

        def fail() -> None:
            raise error(place)

        return self._do(what, place, fail)

    def move_within(self, what: str, place: str, other: str) -> bool:
        """Carry out a move, during which another one happens; return True if it succeeded."""
        return self._do(what, place, lambda: self._do(other, None, None) and None)

    def _do(self, what: str, place: str | None, between: Any) -> bool:
        self.broker.trip = None if place is None else (place, between)
        ended = self.ended
        ends, self._ending = self._ending, self._ending or what in ("close", "unsubscribe")
        try:
            with _on(1):
                self._move(what)
        except InvalidUse:  # a signal handler calls it, which is what a call during a move simulates
            if place is not None:
                raise
            return False
        except (*ERRORS, *_ENDED) as raised:
            if not (isinstance(raised, ERRORS) or self.ended or self._ending):
                raise AssertionError(f"{what} raised while the consumer is open") from raised
            return False
        finally:
            self._ending = ends
            self.is_unreached |= place is not None and self.broker.trip is not None
            self.broker.trip = None
            if what in ("close", "unsubscribe") and not self.consumer_is_open:
                self.ended = ended or what
        if ended and what == "close":
            return True
        self._moved(what)
        return True

    @property
    def consumer_is_open(self) -> bool:
        """Return True if the consumer is open for the application."""
        return not self.consumer.is_closed and (
            not isinstance(self.consumer.inner, Queue) or self.consumer.inner.is_open or self.order._is_retired
        )

    def _move(self, what: str) -> None:
        consumer, order = self.consumer, self.order
        if what == "seek":
            with order.run_transition(Transition.SEEK):
                reopener = order.reopener
                (consumer.inner.seek if reopener is None else reopener.move)(self.broker.sent // 2)
        elif what == "reset":
            with order.run_transition(Transition.CURSOR_RESET):
                self.broker.step("move")
                self.broker.cursor = 0
        elif what == "cluster":
            consumer._follow_cluster_(consumer._cluster_ + 1)
        elif what == "fork":
            self.consumer._after_fork_(Refusing(lambda: ForkedClientError("forked")))
            self.ended = self.ended or what
        elif what == "reconnect":
            order.drop_ready()
        elif what == "replace":
            order.replace()
        elif what == "redeliver":
            consumer.redeliver_unacknowledged_messages()
        else:
            getattr(consumer, what)()

    def _moved(self, what: str) -> None:
        redelivers = what in ("seek", "redeliver") or (
            what in ("replace", "reset", "cluster") and self.order.reopener is not None
        )
        if redelivers and not self.ended:
            self.floor = self.broker.stamp

    # -- what always holds -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the invariants between any two steps."""
        for lock in (self.order._lock, self.order._moving):
            assert not lock._is_owned()
        for noting in self._noting:
            assert noting.begun == noting.ended, f"notified of beginnings {noting.begun}, of ends {noting.ended}"

    def drain(self) -> None:
        """Receive the remaining messages: nothing is missing, or every call raises."""
        if self.ended:
            for how in WAYS:
                assert self.receive(how) == []
            return
        self.send()
        for thread, how in product((1, 2, 1), ("one", "many", "batch")):
            while self.receive(how, thread):
                pass
        assert self.last is not None
        came = {one.place for one in self.came if one.stamp == self.stamp}
        missing = set(range(self.broker.cursor, self.broker.sent)) - came
        assert not missing, f"{missing} were not received"


@contextlib.contextmanager
def _on(thread: int) -> Iterator[None]:
    """Simulate another thread, and a queue that returns all at once without a wait.

    Args:
        thread: 1 or 2.
    """
    replaced = (
        (vars(pulsar_ext.consumer), {"get_ident": lambda: thread}),
        (vars(prefetch), _FETCHING),
    )
    before = [{name: names[name] for name in values} for names, values in replaced]
    for names, values in replaced:
        names.update(values)
    try:
        yield
    finally:
        for (names, _), values in zip(replaced, before, strict=True):
            names.update(values)


_FETCHING: Final[dict[str, object]] = {
    "drain": lambda received, most, _, queue: queue.fetch(received.message_class, most),
    "_FAST_SECONDS": 1.0,
    "_PACE": 2,
    "_MAX_FETCH": 8,
}
"""Names of the prefetch with the modelled queue; the numbers are small, so that few messages reach them."""
