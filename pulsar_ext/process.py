"""`process()` of the blocking client: handlers on threads, fed by the thread that calls it.

`Handling` (pure) contains the steps from a received message to its acknowledgement, or to the action after an error,
for the blocking and the asyncio client: a generator of calls, whose results or errors are sent back into it. `drive()`
drives it on a thread, `asyncio/_processing.py` in an event loop.

`BegunBatches` (pure) tracks batches that were partly handled when `process()` was ended. A broker that keeps only whole
batches redelivers every message of such a batch. So the rest of the batch, which is in the receiver queue already, is
handled before `process()` returns.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from queue import Empty, SimpleQueue
from typing import Final, Protocol

import pulsar

from ._native.locks import Lock
from ._native.messages import InnerMessageId
from ._native.results import POLL_MILLIS, AlreadyClosed, Timeout
from ._runtime.condition import Flag
from ._wire.message_id_data import decode
from .errors import InvalidUse
from .ids.message_id import MessageId
from .message import Message, handled_in
from .redelivery.letters import check_retry, reconsume_times
from .redelivery.schedule import Backoff, check_backoff, delay_of


class _Consumer(Protocol):
    """A consumer, whose methods return an awaitable if it is of the asyncio client."""

    def acknowledge(self, message: Message, /) -> object: ...
    def negative_acknowledge(self, message: Message | MessageId, /) -> object: ...
    def reconsume_later(self, message: Message, delay_ms: int, properties: dict[str, str] | None, /) -> object: ...
    def send_dead_letter(self, message: Message, properties: dict[str, str] | None, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledge the message although its handler raised."""

    def carry_out(self, consumer: _Consumer, message: Message) -> object:
        """Acknowledge the message; an async consumer returns an awaitable."""
        return consumer.acknowledge(message)


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Redeliver the message by a negative acknowledgement, with the delay or the backoff of the subscription.

    With a `dead_letter_policy` the message finally becomes a dead letter.
    """

    def carry_out(self, consumer: _Consumer, message: Message) -> object:
        """Negatively acknowledge the message; an async consumer returns an awaitable."""
        return consumer.negative_acknowledge(message)


@dataclass(frozen=True, slots=True)
class ReconsumeLater:
    """Send the message again as a retry letter, finally as a dead letter; see `Consumer.reconsume_later()`.

    Args:
        delay_ms: the delay in milliseconds, or a `MultiplierRedeliveryBackoff` or function that returns it for the
            number of earlier retries, 0 at first.
        properties: properties to add to the message's own.

    Raises:
        InvalidUse: an argument is invalid.
    """

    delay_ms: int | Backoff
    properties: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if callable(self.delay_ms):
            check_backoff("delay_ms", self.delay_ms)
        check_retry(0 if callable(self.delay_ms) else self.delay_ms, self.properties)

    def carry_out(self, consumer: _Consumer, message: Message) -> object:
        """Reconsume the message later; an async consumer returns an awaitable."""
        delay = self.delay_ms
        if callable(delay):
            delay = round(delay_of(delay, reconsume_times(message.properties())) * 1000)
        return consumer.reconsume_later(message, delay, self.properties)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Send the message to the dead letter topic at once; see `Consumer.send_dead_letter()`.

    Args:
        properties: properties to add to the message's own.

    Raises:
        InvalidUse: the properties are not a dict of str to str.
    """

    properties: dict[str, str] | None = None

    def __post_init__(self) -> None:
        check_retry(0, self.properties)

    def carry_out(self, consumer: _Consumer, message: Message) -> object:
        """Send a dead letter; an async consumer returns an awaitable."""
        return consumer.send_dead_letter(message, self.properties)


Action = Acknowledge | Redeliver | ReconsumeLater | DeadLetter
REDELIVER: Final = Redeliver()


def check_on_error(on_error: object, *, has_letters: bool) -> None:
    """Check the `on_error` of `process()` or of a replier, before any message is received."""
    if isinstance(on_error, type) or not callable(on_error):
        check_action(on_error, has_letters=has_letters)


def check_action(action: object, *, has_letters: bool) -> Action:
    """Return an action after checking it."""
    if not isinstance(action, Action):
        names = "Acknowledge(), Redeliver(), ReconsumeLater(delay_ms), DeadLetter()"
        raise InvalidUse(f"on_error must be one of {names}, or a function that returns one, got {action!r}.")
    if isinstance(action, ReconsumeLater | DeadLetter) and not has_letters:
        raise InvalidUse(f"{action!r} needs a consumer that was opened with subscribe(…, enable_retry=True).")
    return action


Steps = Generator[Callable[[], object], object, None]


def drive(steps: Steps) -> None:
    """Make each call; raise what the steps do not catch."""
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
                raise InvalidUse("A function returned an awaitable, which only pulsar_ext.asyncio awaits.")  # noqa: TRY301
        except BaseException as raised:  # noqa: BLE001  # the steps decide
            error = raised


_log = logging.getLogger("pulsar_ext")


@dataclass(frozen=True, slots=True)
class Handling:
    """The arguments of `process()`."""

    handler: Callable[[Message], object]
    concurrency: int
    on_error: Action | Callable[[Message, Exception], object]
    has_letters: bool
    batch_timeout_ms: int = 0

    def __post_init__(self) -> None:
        if not callable(self.handler):
            raise InvalidUse(f"handler must be a function of a message, got {self.handler!r}.")
        if type(self.concurrency) is not int or self.concurrency < 1:
            raise InvalidUse(f"concurrency must be an int >= 1, got {self.concurrency!r}.")
        check_on_error(self.on_error, has_letters=self.has_letters)
        if type(self.batch_timeout_ms) is not int or self.batch_timeout_ms < 0:
            raise InvalidUse(
                f"batch_timeout_ms must be an int >= 0, got {self.batch_timeout_ms!r}; nothing was received."
            )

    def steps(self, consumer: _Consumer, message: Message) -> Steps:
        """Yield the steps of one message: its handler, and its acknowledgement or another action.

        Whatever fails, the message is acknowledged, sent on or redelivered. The steps raise only exceptions that end a
        program, such as `SystemExit`, or a cancellation.
        """
        action: Action = Acknowledge()
        try:
            try:
                with handled_in(message):
                    yield partial(self.handler, message)
            except Exception as error:  # noqa: BLE001  # every error needs an action
                if callable(self.on_error):
                    chosen = yield partial(self.on_error, message, error)
                    action = check_action(chosen, has_letters=self.has_letters)
                else:
                    action = self.on_error
                    _log.error("A handler raised; %r for %r", action, message.message_id(), exc_info=error)
            yield partial(action.carry_out, consumer, message)
        except pulsar.AlreadyClosed:  # the consumer, or what sends its letters
            yield from redelivery_steps(consumer, message)
        except Exception:  # noqa: BLE001  # from the application's on_error, or from a letter that was not persisted
            _log.exception("%r failed; its message %r is redelivered", self.on_error, message.message_id())
            yield from redelivery_steps(consumer, message)
        except GeneratorExit:
            raise
        except BaseException:
            yield from redelivery_steps(consumer, message)
            raise


def redelivery_steps(consumer: _Consumer, message: Message) -> Steps:
    """Yield the steps that redeliver a message without a handler, or whose handler was ended."""
    with suppress(pulsar.AlreadyClosed):
        try:
            yield partial(consumer.negative_acknowledge, message)
        except pulsar.AlreadyClosed:
            raise
        except Exception:  # noqa: BLE001  # from the subscription's backoff
            _log.exception("The redelivery backoff failed; %r is redelivered with count 0", message.message_id())
            yield partial(consumer.negative_acknowledge, message.message_id())


class BegunBatches:
    """The last received message of each topic and partition, and the time left for the rest of its batch.

    `ask` is called once, if a batch is open at the end: it begins to query if the broker keeps acknowledgements inside
    batches, without waiting, and passes the answer to its argument.
    """

    def __init__(self, timeout_ms: int, ask: Callable[[Callable[[bool | None], None]], object]) -> None:
        self._timeout_seconds, self._ask = timeout_ms / 1000, ask
        self._last: dict[str, InnerMessageId] = {}
        self._deadline: float | None = None
        self._is_over = timeout_ms == 0

    def note(self, message: Message) -> bool:
        """Note a received message, in their order; return False if it is not to be handled.

        After the end, a message of another entry shows that compaction removed the last messages of the previous batch:
        that batch is complete.
        """
        topic, inner_id = message.topic_name(), message.inner.message_id()
        last = self._last.get(topic)
        if self._deadline is not None and last is not None and _has_more(last) and not _is_same_entry(last, inner_id):
            del self._last[topic]
            return False
        self._last[topic] = inner_id
        return True

    def give_up(self) -> None:
        """Leave the rest of each batch to redelivery."""
        self._is_over = True

    def seconds_left(self, now: float) -> float:
        """Return the seconds in which messages are still received after the end; 0.0 for none."""
        if self._is_over or not any(map(_has_more, self._last.values())):
            return 0.0
        if self._deadline is None:
            self._deadline = now + self._timeout_seconds
            self._ask(self._answer)
        return max(self._deadline - now, 0.0)

    def _answer(self, keeps_indexes: bool | None) -> None:
        if keeps_indexes:
            self.give_up()


def _has_more(inner_id: InnerMessageId) -> bool:
    """Return if more messages of the batch follow a message, by its C++ id."""
    data = decode(inner_id.serialize())
    return 0 <= data.batch_index < data.batch_size - 1


def _is_same_entry(one: InnerMessageId, other: InnerMessageId) -> bool:
    first, second = decode(one.serialize()), decode(other.serialize())
    return (first.ledger_id, first.entry_id) == (second.ledger_id, second.entry_id)


@dataclass(slots=True, eq=False)
class _Slot:
    message: Message | None = None


class _Receiving(_Consumer, Protocol):
    def receive(self, timeout_millis: int, /) -> Message: ...
    def flush_acks(self) -> object: ...
    def _ask_about_batches_(self, answer: Callable[[bool | None], None], /) -> object: ...


class ProcessRun:
    """A call of `process()`.

    A received message goes straight into its slot, where a Ctrl-C cannot lose it. A message that is still in a slot
    after the handler threads have ended was never handled.
    """

    def __init__(self, consumer: _Receiving, handling: Handling) -> None:
        self._consumer, self._handling = consumer, handling
        self._context = contextvars.copy_context()
        self._batches = BegunBatches(handling.batch_timeout_ms, consumer._ask_about_batches_)
        self._slots = [_Slot() for _ in range(handling.concurrency)]
        self._threadless = iter(self._slots)
        self._threads: list[threading.Thread] = []
        self._beginning = Lock()
        self._begun = Flag()
        self._free: SimpleQueue[_Slot] = SimpleQueue()
        self._filled: SimpleQueue[_Slot | None] = SimpleQueue()
        self._is_ending = False
        self._error: BaseException | None = None

    def end(self) -> None:
        """Stop receiving."""
        self._is_ending = True

    def work(self) -> None:
        """Receive and pass on messages until the end; then wait for the handlers, and send acknowledgements."""
        try:
            self._begin()
            with suppress(AlreadyClosed):
                self._feed()
            self._finish()
        except BaseException:  # from a signal handler at any point, also in `_finish()`; a second one waits for nothing
            self._finish()
            raise
        if self._error is not None:
            raise self._error

    def _begin(self) -> None:
        """Start the handler threads, once.

        `Thread.start()` waits in Python code, and if interrupted it leaves a lock that its thread waits for. So another
        thread makes these calls, and is itself started by a single C call.
        """
        start_new_thread(self._begin_threads, ())

    def _begin_threads(self) -> None:
        with self._beginning:
            try:
                for slot in self._threadless:
                    serve = partial(self._context.copy().run, self._serve)
                    thread = threading.Thread(target=serve, name="pulsar-ext-handler", daemon=True)
                    thread.start()
                    self._threads.append(thread)
                    self._free.put(slot)
            except BaseException as error:  # noqa: BLE001  # `work()` raises it
                self._error = error
                self.end()
            self._begun.set()

    def _feed(self) -> None:
        while self._wants_more():
            with suppress(Empty):
                self._fill(self._free.get(timeout=POLL_MILLIS / 1000))

    def _fill(self, slot: _Slot) -> None:
        while self._wants_more():
            try:
                slot.message = self._consumer.receive(POLL_MILLIS)
            except Timeout:
                if self._is_ending:
                    self._batches.give_up()  # the rest of a batch is in the queue, or redelivered later
                continue
            if self._batches.note(slot.message):
                self._filled.put(slot)
                return
            self._redeliver(slot)

    def _wants_more(self) -> bool:
        """Return if messages are received: until the end, and after it for the rest of each begun batch."""
        if not self._is_ending:
            return True
        return self._error is None and self._batches.seconds_left(time.monotonic()) > 0

    def _finish(self) -> None:
        """Wait for the handlers, send acknowledgements, and redeliver messages that were never handled."""
        self._is_ending = True
        self._begin()  # an interrupted `work()` may not have done it
        self._begun.wait()
        self._filled.put(None)  # each thread passes it on to the next
        for thread in self._threads:
            thread.join()
        for slot in self._slots:
            self._redeliver(slot)
        with suppress(AlreadyClosed):
            self._consumer.flush_acks()

    def _redeliver(self, slot: _Slot) -> None:
        if slot.message is not None:
            drive(redelivery_steps(self._consumer, slot.message))
            slot.message = None

    def _serve(self) -> None:
        for slot in iter(self._filled.get, None):
            try:
                if slot.message is not None:
                    drive(self._handling.steps(self._consumer, slot.message))
            except BaseException as error:  # noqa: BLE001  # `work()` raises it
                self._error = error
                self.end()
            slot.message = None
            self._free.put(slot)
        self._filled.put(None)
