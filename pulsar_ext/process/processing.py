"""`process()` of the blocking client: handlers on threads, fed by the thread that calls it.

`Handling` (pure) has the steps from a received message to its acknowledgement, for the blocking and the awaited client:
a generator of calls, whose results or errors are sent back into it. `drive()` drives it on a thread,
`asyncio/_processing.py` in a loop.

`BegunBatches` (pure) are batches whose first messages were handled when something ended `process()`. A broker that
keeps only whole batches redelivers every message of such a batch. So the rest of the batch, which is in the receiver
queue already, is handled before `process()` returns.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.results import POLL_MILLIS, AlreadyClosed, Timeout
from pulsar_ext._runtime.condition import Flag
from pulsar_ext._runtime.termination import at_termination
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.errors import InvalidUse
from pulsar_ext.message import handled_in
from pulsar_ext.redelivery.letters import Reconsuming
from pulsar_ext.schema.typed import T

from .actions import Acknowledge, Action, Redeliver, check_action, check_on_error

if TYPE_CHECKING:
    from pulsar_ext.message import Message


Steps = Generator[Callable[[], Any], Any, None]


def drive(steps: Steps) -> None:
    """Make each call; what the steps do not catch is raised."""
    result, error = None, None
    while True:
        try:
            step = steps.send(result) if error is None else steps.throw(error)
        except StopIteration:
            return
        result, error = None, None
        try:
            result = step()
            if isawaitable(result):
                getattr(result, "close", lambda: None)()
                raise InvalidUse("An async function was called, which only pulsar_ext.asyncio awaits.")  # noqa: TRY301
        except BaseException as raised:  # noqa: BLE001  # the steps decide
            error = raised


_log = logging.getLogger("pulsar_ext")
_AGAIN = Redeliver()


@dataclass(frozen=True, slots=True)
class Handling:
    """What `process()` was asked for.

    Args:
        handler: is given each message.
        concurrency: how many messages are handled at once, 1 or more.
        on_error: what becomes of a message whose handler raised: an action, or a function of the message and the error
            that gives one.
        has_letters: whether the consumer has retry letters.
        batch_timeout_ms: how long the rest of a batch that was begun is handled after the end, in milliseconds.

    Raises:
        InvalidUse: one of them is not valid.
    """

    handler: Callable[[Message], Any]
    concurrency: int
    on_error: Action | Callable[[Message, Exception], Any]
    has_letters: bool
    batch_timeout_ms: int = 0

    def __post_init__(self) -> None:
        if not callable(self.handler):
            raise InvalidUse(f"handler is expected to be a function of a message, not {self.handler!r}.")
        if type(self.concurrency) is not int or self.concurrency < 1:
            raise InvalidUse(f"concurrency is expected to be an int, 1 or more, not {self.concurrency!r}.")
        check_on_error(self.on_error, has_letters=self.has_letters)
        if type(self.batch_timeout_ms) is not int or self.batch_timeout_ms < 0:
            raise InvalidUse(
                f"batch_timeout_ms must be an int >= 0, got {self.batch_timeout_ms!r}; nothing was received."
            )

    def steps(self, consumer: Any, message: Message) -> Steps:
        """Give the steps of one message: its handler, and what becomes of it then.

        Whatever fails, the message is acknowledged, sent on, or comes again. The steps raise only what ends a program,
        such as `SystemExit`, or a cancellation.
        """
        action: Action = Acknowledge()
        try:
            try:
                with handled_in(message):
                    yield partial(self.handler, message)
            except Exception as error:  # noqa: BLE001  # whatever it is, something has to become of the message
                if callable(self.on_error):
                    chosen = yield partial(self.on_error, message, error)
                    action = check_action(chosen, has_letters=self.has_letters)
                else:
                    action = self.on_error
                    _log.error("A handler raised; %r for %r", action, message.message_id(), exc_info=error)
            yield partial(action.settle, consumer, message)
        except pulsar.AlreadyClosed:  # the consumer, or what sends its letters
            yield from self.refused(consumer, message)
        except Exception:  # noqa: BLE001  # the application's on_error, or a letter that was not persisted
            _log.exception("%r failed; its message %r is delivered again", self.on_error, message.message_id())
            yield from self.refused(consumer, message)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self.refused(consumer, message)
            raise

    def refused(self, consumer: Any, message: Message) -> Steps:
        """Give the steps of a message that no handler is begun for, or ends for: it comes again."""
        with suppress(pulsar.AlreadyClosed):
            try:
                yield partial(_AGAIN.settle, consumer, message)
            except pulsar.AlreadyClosed:
                raise
            except Exception:  # noqa: BLE001  # the subscription's backoff, for one that came so often
                _log.exception("%r is delivered again as one that came once", message.message_id())
                yield partial(consumer.negative_acknowledge, message.message_id())


class BegunBatches:
    """The last message that was received of each topic and partition, and how long the rest of its batch is handled.

    Args:
        timeout_ms: the longest time after the end in which messages are received, in milliseconds; 0 for none.
        ask: begins to ask if the broker keeps acknowledgements inside batches, waits for nothing, and passes the answer
            to the function that it is given, None if it is not known. Called once, and only if a batch is open.
    """

    def __init__(self, timeout_ms: int, ask: Callable[[Callable[[bool | None], None]], object]) -> None:
        self._timeout_seconds, self._ask = timeout_ms / 1000, ask
        self._last: dict[str, Any] = {}
        self._deadline: float | None = None
        self._is_over = timeout_ms == 0

    def note(self, message: Message) -> bool:
        """Note a message that was received: the messages of one batch arrive one after the other.

        Returns:
            If it is to be handled. After the end, a message of another entry shows that compaction removed the last
            messages of the batch before it: that batch is over, and this message was not begun.
        """
        topic, inner_id = message.topic_name(), message.inner.message_id()
        last = self._last.get(topic)
        if self._deadline is not None and last is not None and _goes_on(last) and not _is_same_entry(last, inner_id):
            del self._last[topic]
            return False
        self._last[topic] = inner_id
        return True

    def give_up(self) -> None:
        """Leave the rest of each batch to a redelivery."""
        self._is_over = True

    def seconds_left(self, now: float) -> float:
        """Return how long messages are still received after the end; 0.0 if no more are.

        Args:
            now: the time, in seconds of `time.monotonic()`.
        """
        if self._is_over or not any(map(_goes_on, self._last.values())):
            return 0.0
        if self._deadline is None:
            self._deadline = now + self._timeout_seconds
            self._ask(self._answer)
        return max(self._deadline - now, 0.0)

    def _answer(self, keeps_indexes: bool | None) -> None:
        if keeps_indexes:
            self.give_up()


def _goes_on(inner_id: Any) -> bool:
    """Return if more messages of the batch follow a message, by its C++ id."""
    data = decode(inner_id.serialize())
    return 0 <= data.batch_index < data.batch_size - 1


def _is_same_entry(one: Any, other: Any) -> bool:
    one, other = decode(one.serialize()), decode(other.serialize())
    return (one.ledger_id, one.entry_id) == (other.ledger_id, other.entry_id)


_REDELIVER = Redeliver()


class Processing(Reconsuming[T]):
    """What a `Consumer` does with handlers."""

    __slots__ = ()
    _runs: list[_Run]
    receive: Callable[[int], Message]

    def process(
        self,
        handler: Callable[[Message[T]], object],
        *,
        concurrency: int = 1,
        on_error: Action | Callable[[Message[T], Exception], Action] = _REDELIVER,
        batch_timeout_ms: int = 10_000,
    ) -> None:
        """Hand every message to `handler`, `concurrency` at a time on as many threads, until something ends it.

        A message is acknowledged when its handler returns, in whatever order. A message is received only when a
        handler can run for it. It ends when the consumer is closed, behind `stop_processing()`, and behind a SIGTERM,
        if this is the main thread and the application has no handler of its own for that signal. Handlers that are
        under way end first, and their acknowledgements are sent. So it is where a receive, or the handler of a signal,
        raises: that error is raised then. A second Ctrl-C waits for nobody. After `stop_processing()` and a SIGTERM the
        rest of a batch is handled too, if the broker keeps whole batches only: it would deliver all of the batch again.

        Args:
            handler: a function of one message.
            concurrency: how many messages are handled at once; with 1, one after the other in their order.
            on_error: what becomes of a message whose handler raised: `Redeliver()`, `ReconsumeLater(…)`, `DeadLetter()`
                or `Acknowledge()`, or a function of the message and the error that gives one of them. What fails here,
                such as a letter that cannot be sent, has the message redelivered.
            batch_timeout_ms: how long after the end, in milliseconds, the rest of a batch that was begun is handled;
                only if the broker keeps whole batches. 0 to handle no more messages.

        Raises:
            InvalidUse: one of these is not valid; nothing was received.
            pulsar.AlreadyClosed: it was closed before.
            pulsar.InvalidConfiguration: it has a message listener, which gets every message.
            pulsar.PulsarException: a receive failed.
        """
        self._context.callbacks.refuse("process")
        self._refuse_closed()
        if iscoroutinefunction(handler):
            raise InvalidUse("The handler is an async function: process() of pulsar_ext.asyncio awaits it.")
        run = _Run(self, Handling(handler, concurrency, on_error, self._has_letters_, batch_timeout_ms))
        try:
            self._runs.append(run)
            with at_termination(run):
                run.work()
        finally:
            if run in self._runs:  # a Ctrl-C may have come first
                self._runs.remove(run)

    def _ask_about_batches_(self, answer: Callable[[bool | None], object]) -> None:
        """Have `answer` called, on another thread, with `ClientContext.keeps_batch_indexes()`."""
        context = self._context
        context.inquiries.run(lambda: answer(context.keeps_batch_indexes()))

    def stop_processing(self) -> None:
        """Have every `process()` that runs now receive no more, and return when its handlers have ended.

        It waits for nothing, and may be called on any thread, in a handler, and in a signal's handler.
        """
        for run in list(self._runs):
            run.end()


class _Slot:
    """A place for one message that is being handled."""

    __slots__ = ("message",)

    def __init__(self) -> None:
        self.message: Message | None = None


class _Run:
    """One call of `process()`.

    A message goes from the receive straight into its slot, where a Ctrl-C cannot lose it. A slot that still has one
    when the handlers' threads have ended never came to a handler.
    """

    def __init__(self, consumer: Processing, handling: Handling) -> None:
        self._consumer, self._handling = consumer, handling
        self._context = contextvars.copy_context()
        self._batches = BegunBatches(handling.batch_timeout_ms, consumer._ask_about_batches_)
        self._slots = [_Slot() for _ in range(handling.concurrency)]
        self._unserved = iter(self._slots)
        self._threads: list[threading.Thread] = []
        self._beginning = Lock()
        self._begun = Flag()
        self._free: SimpleQueue[_Slot] = SimpleQueue()
        self._filled: SimpleQueue[_Slot | None] = SimpleQueue()
        self._is_ending = False
        self._error: BaseException | None = None

    def end(self) -> None:
        """Receive no more."""
        self._is_ending = True

    def work(self) -> None:
        """Receive and hand over, until something ends it; then wait for the handlers, and send acknowledgements."""
        try:
            self._begin()
            with contextlib.suppress(AlreadyClosed):
                self._hand_over()
            self._finish()
        except BaseException:  # wherever a signal's handler raised, in the end as well; a second one waits for nobody
            self._finish()
            raise
        if self._error is not None:
            raise self._error

    def _begin(self) -> None:
        """Have the handlers' threads begin, once.

        `Thread.start()` waits in Python, and an interrupted one leaves a lock that its thread hangs in: another thread
        makes these calls, and begins in one call of C.
        """
        start_new_thread(self._begin_threads, ())

    def _begin_threads(self) -> None:
        with self._beginning:
            try:
                for slot in self._unserved:
                    serve = partial(self._context.copy().run, self._serve)
                    thread = threading.Thread(target=serve, name="pulsar-ext-handler", daemon=True)
                    thread.start()
                    self._threads.append(thread)
                    self._free.put(slot)
            except BaseException as error:  # noqa: BLE001  # it is raised where process() was called
                self._error = error
                self.end()
            self._begun.set()

    def _hand_over(self) -> None:
        while self._wants_more():
            with contextlib.suppress(Empty):
                self._fill(self._free.get(timeout=POLL_MILLIS / 1000))

    def _fill(self, slot: _Slot) -> None:
        while self._wants_more():
            try:
                slot.message = self._consumer.receive(POLL_MILLIS)
            except Timeout:
                if self._is_ending:
                    self._batches.give_up()  # the rest of a batch is in the queue, or comes from a new connection
                continue
            if self._batches.note(slot.message):
                self._filled.put(slot)
                return
            self._refuse(slot)

    def _wants_more(self) -> bool:
        """Return if messages are received: until the end, and after it the rest of each batch that was begun."""
        if not self._is_ending:
            return True
        return self._error is None and self._batches.seconds_left(time.monotonic()) > 0

    def _finish(self) -> None:
        """Wait until the handlers have ended, and send acknowledgements; what no handler began with comes again."""
        self._is_ending = True
        self._begin()  # which an interrupted one may not have done
        self._begun.wait()
        self._filled.put(None)  # which each thread hands on to the next
        for thread in self._threads:
            thread.join()
        for slot in self._slots:
            self._refuse(slot)
        with contextlib.suppress(AlreadyClosed):
            self._consumer.flush_acks()

    def _refuse(self, slot: _Slot) -> None:
        """Have a message redelivered that no handler began with."""
        if slot.message is not None:
            drive(self._handling.refused(self._consumer, slot.message))
            slot.message = None

    def _serve(self) -> None:
        for slot in iter(self._filled.get, None):
            try:
                if slot.message is not None:
                    drive(self._handling.steps(self._consumer, slot.message))
            except BaseException as error:  # noqa: BLE001  # it is raised where process() was called
                self._error = error
                self.end()
            slot.message = None
            self._free.put(slot)
        self._filled.put(None)
