"""Receives of the asyncio consumer and reader, which lose no message to a cancellation.

The official `receive()` asks the C++ client for one message with a future of its own; if that is cancelled, the message
is lost. Here each message goes into a queue until a caller takes it: the next caller gets the message of a cancelled
one. A message that the C++ client already has is delivered within the call, without waking a thread. With the native
core it is not even requested, and while the application takes messages fast, all in the C++ queue are fetched at once.

If Python screens messages before the application gets them (dead letters, timeouts, key ranges, groups), and for
batches, the blocking receive runs with an interface like the C++ client's `receive_async`. It waits on a thread of
its own, so that waiting consumers block neither the client's other threads nor the end of the process. One thread
reopens a native object that has to be replaced, for all waiting receives together, also if they are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any, Generic, Self, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import InnerConsumer, InnerMessage, InnerReader
from pulsar_ext._native.results import Result
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.condition import Condition
from pulsar_ext.consumer import Consumer as BlockingConsumer
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.message import Message, handled_in
from pulsar_ext.receive.order import Transition, TransitionSubscriber
from pulsar_ext.receive.prefetch import require_max_messages
from pulsar_ext.receive.receiver import Receiving
from pulsar_ext.receive.source import Records
from pulsar_ext.schema.typed import T

from ._executor import Closable, Executor, LoopBridge, awaited, call_listener, forwarded, running_loop_bridge
from .errors import PulsarException, error_of, translated

Outcome = Result | BaseException
ReceiveAsync = Callable[[Callable[[Outcome, Any], None]], object]


R = TypeVar("R")
_LINGER_SECONDS = 1.0
"""Time in seconds that an idle thread waits for another request before it ends."""


class BlockingReceiver(Generic[R]):
    """Serves requests one after the other by a call of `receive`, which blocks, so that messages keep their order."""

    def __init__(self, receive: Callable[[], R]) -> None:
        self._receive = receive
        self._requests: deque[Callable[[Outcome, R | None], None]] = deque()
        self._changed = Condition()
        self._runs = False

    def receive_async(self, callback: Callable[[Outcome, R | None], None]) -> None:
        """Call `callback(pulsar.Result.Ok, received)` or `callback(error, None)` on a thread."""
        with self._changed:
            self._requests.append(callback)
            self._changed.notify()
            if self._runs:
                return
        # A daemon thread: a pending receive must not block the end of the process.
        threads.start(self._serve, name="pulsar-ext-receive")

    def future(self) -> Future[R]:
        """Return the future of one call of `receive`; a cancelled waiter does not cancel it."""
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()
        self.receive_async(partial(complete, future))
        return future

    def _serve(self) -> None:
        with self._changed:
            if self._runs:
                return  # only one thread serves; it sets the flag itself, as a signal may prevent its start
            self._runs = True
        while True:
            with self._changed:
                if not self._requests:
                    self._changed.wait(_LINGER_SECONDS)
                if not self._requests:
                    self._runs = False
                    return
                callback = self._requests.popleft()
            try:
                received = self._receive()
            except pulsar.AlreadyClosed:
                callback(pulsar.Result.AlreadyClosed, None)
            except BaseException as error:  # noqa: BLE001  # raised where the message is awaited
                callback(translated(error), None)
            else:
                callback(pulsar.Result.Ok, received)


def complete(future: Future[R], result: Outcome, received: Any) -> None:
    """Complete the future of a received object or an error, unless it is completed."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(result, BaseException):
            future.set_exception(result)
        elif result != _OK:
            future.set_exception(error_of(result))
        else:
            future.set_result(received)


_OK = pulsar.Result.Ok
_YIELD_EVERY = 64
"""Number of messages taken in a row before the loop runs other tasks."""


class ReceiveQueue(TransitionSubscriber):
    """Delivers the messages of one consumer or reader to any number of callers, in the order of their calls.

    `receive_async_of` returns the function of the C++ object `inner` that requests one message, or a
    `BlockingReceiver`'s if `inner` is None. `fetch` returns messages that the C++ object has, without waiting.
    """

    def __init__(
        self,
        inner: InnerConsumer | InnerReader | None,
        receive_async_of: Callable[[InnerConsumer | InnerReader | None], ReceiveAsync],
        message_of: Callable[[Any], Message] = lambda message: message,
        fetch: Callable[[], Iterator[Message]] | None = None,
    ) -> None:
        self._receive_async_of, self._asks_inner = receive_async_of, inner is not None
        self._message_of, self._fetch = message_of, fetch
        self._ask(receive_async_of(inner))
        self._arrived: deque[Message | BaseException] = deque()
        self._stale: list[Message | BaseException] = []
        """What had arrived when a transition began; later messages may be redelivered ones already."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._bridge: LoopBridge | None = None
        self._closed = False
        self.is_replaced = False
        """True while the C++ object is being replaced."""
        self.paused: set[str] = set()
        """What the application has paused: the "consumer", the "listener"; then nothing is requested or delivered."""
        self._lock = Lock()
        self._requested = 0
        """Number of unanswered requests."""
        self._woken: set[asyncio.Future[None]] = set()
        """Futures of callers that were woken and have not run yet; one arrived message is reserved for each."""
        self._taken = 0
        self.drops: Callable[[Message], bool] | None = None
        """Returns true for a message that was acknowledged and redelivered, and must be dropped."""
        self._checked: Message | BaseException | None = None
        """The last message that was checked and must be delivered."""
        self.records = Records()
        """Records messages as they are taken."""

    def get_next(self) -> Message | None:
        """Take an available message; return None if the caller must wait for `get()`, perhaps for other tasks."""
        if self._taken >= _YIELD_EVERY or self._waiters or self._woken:
            return None
        self._taken += 1
        return self.get_ready()

    async def get(self) -> Message:
        """Wait for the next message and take it; raise if the queue is closed, or an error that arrived instead."""
        if self._taken >= _YIELD_EVERY:
            self._taken = 0
            await asyncio.sleep(0)
        self._taken += 1
        message = None if self._waiters or self._woken else self.get_ready()  # earlier callers get the oldest messages
        while message is None:
            await self._wait()
            self._drop_acknowledged()
            message = None if self._is_held or not self._arrived else self._pop()
        return message

    def get_ready(self) -> Message | None:
        """Take an available message; return None without one, or if an error comes first."""
        if self._is_held:
            return None
        if not (self._arrived or self._waiters):
            self._request(1)
        self._drop_acknowledged()
        if len(self._arrived) <= self._reserved or isinstance(self._arrived[0], BaseException):
            return None
        return self._pop()

    def pause(self, what: str = "consumer") -> None:
        """Deliver and request nothing; requested messages may still arrive and are kept."""
        self.paused.add(what)

    def resume(self, what: str = "consumer") -> None:
        """Deliver messages again, unless something else is paused."""
        self.paused.discard(what)
        self._continue()

    def put(self, items: Iterable[Message | BaseException]) -> None:
        """Append the messages or the error of a cancelled caller; callable from any thread."""
        with self._lock:
            self._arrived.extend(items)
        self._notify()

    def on_before(self, transition: Transition, /) -> None:
        """Request and deliver nothing while the C++ object is being replaced."""
        self.is_replaced = self._asks_inner and transition.replaces
        self._stale = list(self._arrived)

    def on_after(self, transition: Transition, /) -> None:
        """Drop the arrived messages if they will be redelivered."""
        if transition.replaces:
            self._arrived.clear()
        elif transition.redelivers:
            stale = set(map(id, self._stale))
            self._keep(lambda one: id(one) not in stale)
        self._stale = []
        if transition is Transition.ANOTHER_CLUSTER:
            self.records.drop()

    def drop_topics(self, is_affected: Callable[[InnerMessage], bool], /) -> None:
        self._keep(lambda one: isinstance(one, BaseException) or not is_affected(one.inner))

    def _keep(self, is_kept: Callable[[Message | BaseException], bool]) -> None:
        with self._lock:
            kept = list(filter(is_kept, self._arrived))  # no condition in a loop here: see `_native/locks.py`
            self._arrived.clear()
            self._arrived.extend(kept)

    def on_abandon(self, _: Transition, /) -> None:
        self.is_replaced = False
        self._continue()

    def on_reopen(self, inner: InnerConsumer | InnerReader, ahead: Iterator[InnerMessage], /) -> None:
        """Continue with the new C++ object, and repeat the requests of the old one; callable from any thread."""
        if self._asks_inner:
            with self._lock:
                self._ask(self._receive_async_of(inner))
                self._requested = 0
                self._arrived.extend(map(self._message_of, ahead))
        self.is_replaced = False
        self._continue()

    def close(self) -> None:
        """Drop the arrived messages; every waiting and later `get()` raises `AlreadyClosed`."""
        self._arrived.clear()
        self._close_requests()

    @property
    def has_ready(self) -> bool:
        """True if a message has arrived that is not reserved for a caller."""
        self._drop_acknowledged()
        return not self._is_held and len(self._arrived) > self._reserved

    def awaits_answer(self) -> bool:
        """Return whether a requested message has not arrived."""
        return self._requested > 0

    @property
    def _reserved(self) -> int:
        """Number of arrived messages reserved for callers that were woken and have not run yet."""
        for waiter in list(self._woken):
            if waiter.get_loop().is_closed():  # the caller never runs
                self._woken.discard(waiter)
        return len(self._woken)

    @property
    def _is_held(self) -> object:
        """True in a condition if arrived messages must not be delivered now."""
        return self.is_replaced or self.paused

    def _continue(self) -> None:
        self._request_for_all()
        self._notify()

    def _drop_acknowledged(self) -> None:
        """Drop the next messages if they were acknowledged, and request others instead."""
        while self.drops is not None and self._arrived and self._arrived[0] is not self._checked:
            first = self._arrived[0]
            if isinstance(first, BaseException) or not self.drops(first):
                self._checked = first
            else:
                self._arrived.popleft()
                self._request_for_all()

    def _pop(self) -> Message:
        message, self._checked = self._arrived.popleft(), None
        if isinstance(message, BaseException):
            raise message
        if self.records.lists:
            self.records.note((message.inner,))
        return message

    async def _wait(self) -> None:
        """Wait until a message or an error has arrived for this caller."""
        if self._closed:
            raise error_of(pulsar.Result.AlreadyClosed)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._bridge = running_loop_bridge()
        self._request_for_all()
        self._wake_waiters()
        try:
            if waiter.done():
                await asyncio.sleep(0)  # callers woken earlier run first
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif waiter.done() and not waiter.cancelled():
                self._woken.discard(waiter)
                self._wake_waiters()  # the next caller gets the message that was reserved for this one
            raise
        self._woken.discard(waiter)
        if self._closed and not self._arrived:
            raise error_of(pulsar.Result.AlreadyClosed)

    def _request_for_all(self) -> None:
        self._request(len(self._waiters) + self._reserved)

    def _request(self, wanted: int) -> None:
        """Request messages until `wanted` ones have arrived or are requested."""
        while not (self._closed or self._is_held):
            if self._fetch is not None and not (self._requested or self._arrived):
                self._arrived.extend(self._fetch())  # no Python code in between: a transition drops all of them
            with self._lock:
                if self._requested + len(self._arrived) >= wanted:
                    return
                self._requested += 1
            try:
                self._receive_async(self._answer)
            except BaseException:
                with self._lock:
                    self._requested -= 1
                raise

    def _ask(self, receive_async: ReceiveAsync) -> None:
        self._receive_async = receive_async
        self._answer = partial(self._on_answer, receive_async)

    def _on_answer(self, requested_from: ReceiveAsync, result: Outcome, message: object) -> None:
        """Add the message or error of a request; callable from any thread."""
        keep_thread_state()
        if requested_from is not self._receive_async:
            return  # the answer of a replaced C++ object
        if result == _OK:
            with self._lock:
                self._requested -= 1
                self._arrived.append(self._message_of(message))
            self._notify()
            return
        closed = result == pulsar.Result.AlreadyClosed
        with self._lock:
            self._requested -= 1
            if closed and self.is_replaced:
                return  # the request is repeated with the new C++ object
            if not closed:
                self._arrived.append(result if isinstance(result, BaseException) else error_of(result))
        if closed:
            self._close_requests()
        else:
            self._notify()

    def _notify(self) -> None:
        """Wake the callers for which something has arrived; callable from any thread."""
        if self._waiters and self._bridge is not None:
            self._bridge.call_soon(self._wake_waiters)

    def _close_requests(self) -> None:
        """Request nothing more, and wake all callers; callable from any thread."""
        self._closed = True
        if self._bridge is not None:
            self._bridge.call_soon(self._wake_waiters)

    def _wake_waiters(self) -> None:
        """Wake one caller per available message; all of them once the queue is closed."""
        while self._waiters and (self._closed or self.has_ready):
            waiter = self._waiters.popleft()
            if not waiter.done() and not waiter.get_loop().is_closed():
                self._woken.add(waiter)
                waiter.set_result(None)


_log = logging.getLogger("pulsar_ext")


class AsyncReceiving(Closable, Generic[T]):
    """Methods that receive messages; a base class before the official asyncio class."""

    blocking: Any
    _executor: Executor
    _queue: ReceiveQueue
    _reopener: BlockingReceiver[None]
    _reopening: Future[None] | None = None
    """The last replacement of the C++ object, for which all receives wait."""

    def _begin(
        self,
        blocking: Any,
        executor: Executor,
        receive_async_of: Callable[[InnerConsumer | InnerReader | None], ReceiveAsync] | None,
        receive: Callable[[], Message[T]],
    ) -> None:
        """Set up receives by what `receive_async_of` an object returns, or by `receive` if Python screens messages."""
        self.blocking = blocking
        self._executor = executor
        self._reopener = BlockingReceiver(lambda: blocking._reopen_(None))  # retries until it is open, or a close
        if receive_async_of is None:
            receiver = BlockingReceiver(receive)
            self._queue = ReceiveQueue(None, lambda _: receiver.receive_async)
        else:
            self._queue = ReceiveQueue(blocking.inner, receive_async_of, blocking._message_of_, blocking._fetcher_)
            self._queue.drops = getattr(blocking, "_is_redelivered_duplicate_", None)  # readers do not acknowledge
        if isinstance(blocking, Receiving):
            blocking._add_subscriber_(self._queue)

    async def _receive(self, timeout_millis: int | None) -> Message[T]:
        queue = self._queue
        if timeout_millis is not None and not isinstance(timeout_millis, int):
            found = type(timeout_millis).__name__
            raise ValueError(  # the official client's error
                f"Argument timeout_millis is expected to be of type 'int' and not '{found}'"
            )
        if (message := queue.get_next()) is not None:
            return message
        # Replaced by a seek that is in progress, or that could not finish.
        take = self._take_after_reopening if queue.is_replaced else queue.get
        if timeout_millis is None:
            return await take()
        try:
            async with asyncio.timeout(timeout_millis / 1000):
                return await take()
        except TimeoutError:
            raise error_of(pulsar.Result.Timeout) from None

    _receive_plain = _receive

    async def _take_after_reopening(self) -> Message[T]:
        if self._reopening is None or self._reopening.done():
            self._reopening = self._reopener.future()
        await asyncio.wrap_future(self._reopening)  # a cancelled caller does not cancel it
        message: Message[T] = await self._queue.get()
        return message

    async def _receive_many(self, max_messages: int, timeout_millis: int | None) -> list[Message[T]]:
        """Wait for one message, and take all available ones with it."""
        require_max_messages(max_messages)
        try:
            messages = [await self._receive_plain(timeout_millis)]  # a subclass screens all of them together
        except PulsarException as error:
            if error.error() == pulsar.Result.Timeout:
                return []
            raise
        while len(messages) < max_messages and (message := self._queue.get_ready()) is not None:
            messages.append(message)
        return messages

    async def close(self) -> None:
        """Send pending acknowledgements and close, also if cancelled; all receives then raise `AlreadyClosed`."""
        if self.blocking.is_closed:
            raise error_of(pulsar.Result.AlreadyClosed)
        await self._executor.end(self.blocking.close, self._end_receives_)

    def _end_receives_(self) -> None:
        """Make every waiting and later receive raise `AlreadyClosed`: the blocking counterpart is closed."""
        self._queue.close()
        if self._reopening is not None:
            complete(self._reopening, pulsar.Result.AlreadyClosed, None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        try:
            return await self._receive(None)
        except PulsarException as error:
            if error.error() == pulsar.Result.AlreadyClosed:
                raise StopAsyncIteration from None
            raise

    @property
    def _is_closed(self) -> bool:
        return self.blocking.is_closed or self._executor.closed


class AsyncSeeking(AsyncReceiving[T]):
    """A consumer or reader that can seek and may have a listener."""

    _listener_task: asyncio.Task[None] | None = None
    """Calls the listener; None without one."""

    seek = awaited(BlockingConsumer.seek)
    get_last_message_ids = awaited(BlockingConsumer.get_last_message_ids)
    has_reached_end_of_topic = awaited(BlockingConsumer.has_reached_end_of_topic)
    is_connected = forwarded(BlockingConsumer.is_connected)

    @property
    def key_hash_ranges(self) -> KeyHashRanges:
        """Key ranges of a range consumer or reader; AttributeError for others, as in the blocking client."""
        ranges: KeyHashRanges = self.blocking.key_hash_ranges
        return ranges

    def pause_message_listener(self) -> None:
        """Pause the listener until `resume_message_listener()`; raise `InvalidConfiguration` without one."""
        self._listener_queue().pause("listener")

    def resume_message_listener(self) -> None:
        """Resume the listener; raises like `pause_message_listener()`."""
        self._listener_queue().resume("listener")

    def _listener_queue(self) -> ReceiveQueue:
        if self._listener_task is None:
            raise error_of(pulsar.Result.InvalidConfiguration)
        return self._queue

    def _start_listener_(self, listener: Callable[[Self, Message[T]], object]) -> None:
        self._listener_task = asyncio.create_task(self._listen(listener))

    async def _listen(self, listener: Callable[[Self, Message[T]], object]) -> None:
        while True:
            try:
                message = await anext(self)
            except StopAsyncIteration:
                return
            except Exception:  # noqa: BLE001  # such as an admin API that does not answer
                _log.exception("A listener's receive failed; retrying in 1 s")
                await asyncio.sleep(1)
                continue
            with handled_in(message):
                text = "A listener raised; its message %r stays unacknowledged"
                await call_listener(partial(listener, self, message), text, message.message_id())
