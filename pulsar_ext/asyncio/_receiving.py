"""What the awaited consumer and the awaited reader share: receives that lose nothing to a cancellation.

The official `receive()` asks the C++ client for one message with a future of its own; when that is cancelled, the
message that answers it vanishes. Here an answer goes into a queue, and belongs to nobody until a caller takes it: what
a cancelled caller had asked for, the next one gets. A message that the C++ client already has is delivered within the
call, without waking any thread.

Where Python sees a message before the application does (dead letters, timeouts, key ranges, groups), and for whole
batches, the blocking receive does the work in the shape of the C++ client's `receive_async`. It waits on a thread of
its own, so that no other thread of the client is blocked, however many consumers wait, nor the end of the process. For
the native object that replaces another one, perhaps while the broker cannot be reached, one thread tries, however many
receives wait for it, also such as are cancelled soon.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from concurrent.futures import Future, InvalidStateError
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.locks import Lock
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.condition import Condition
from pulsar_ext.consumer import Consumer as BlockingConsumer
from pulsar_ext.message import Message, Received, handled_in
from pulsar_ext.receive.many import check_max_messages
from pulsar_ext.receive.order import Part, Transition
from pulsar_ext.receive.receiver import Receiving
from pulsar_ext.receive.source import Records
from pulsar_ext.schema.typed import T

from ._executor import Executor, awaited
from ._loop_bridge import LoopBridge, is_own_cancellation, running_loop_bridge
from .errors import PulsarException, error_of, raise_for, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges


_LINGER_SECONDS = 1.0
"""How long a thread without requests waits for another one before it ends."""


class BlockingReceiver:
    """Serves one request after the other, so that what is received keeps its order.

    Args:
        receive: waits, and returns what was received, or raises.
    """

    def __init__(self, receive: Callable[[], Any]) -> None:
        self._receive = receive
        self._requests: deque[Callable[[Any, Any], None]] = deque()
        self._changed = Condition()
        self._runs = False

    def receive_async(self, callback: Callable[[Any, Any], None]) -> None:
        """Have `callback(pulsar.Result.Ok, what was received)` called, or `callback(the error, None)`, on a thread."""
        with self._changed:
            self._requests.append(callback)
            self._changed.notify()
            if self._runs:
                return
        # A daemon: a message that never comes must not hold up the end of the process.
        threads.start(self._serve, name="pulsar-ext-receive")

    def _serve(self) -> None:
        with self._changed:
            if self._runs:
                return  # only one serves; it says so itself, for a signal's handler may keep a thread from starting
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
            except BaseException as error:  # noqa: BLE001  # it is raised where the message is awaited
                callback(translated(error), None)
            else:
                callback(pulsar.Result.Ok, received)


_OK = pulsar.Result.Ok
_YIELD_EVERY = 64
"""How many messages may be taken in a row before the loop gets to run something else."""


class ReceiveQueue(Part):
    """Gives the messages of one consumer or reader to any number of callers, first come first served.

    Args:
        inner: the C++ consumer or reader; None where a `BlockingReceiver` is asked, which asks whichever there is.
        receive_async_of: gives what asks it for one message and has a callback called with a `pulsar.Result`, or an
            error, and the C++ message: its `receive_async` or `read_next_async`, or that of a `BlockingReceiver`.
    """

    def __init__(self, inner: Any, receive_async_of: Callable[[Any], Callable[[Any], object]]) -> None:
        self._receive_async_of, self._asks_inner = receive_async_of, inner is not None
        self._ask(receive_async_of(inner))
        self._arrived: deque[Any] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._bridge: LoopBridge | None = None
        self._closed = False
        self.is_replaced = False
        """Whether another C++ object is about to take the place of the one that is asked."""
        self.is_paused = False
        """Whether nothing is handed out, because the application wants that."""
        self.is_silent = False
        """The same, because its listener is paused."""
        self._lock = Lock()
        self._requested = 0
        """How many requests have no answer yet."""
        self._woken: set[asyncio.Future[None]] = set()
        """What callers wait for that were woken and have not run yet: one of the arrived messages is for each."""
        self._taken = 0
        self.drops: Callable[[Any], bool] | None = None
        """Tells whether a C++ message is not for the application: it was acknowledged, and is delivered again."""
        self._passed: Any = None
        """The message that it was asked about last and that is for the application."""
        self.records = Records()
        """What notes the messages as they are taken."""

    async def get(self) -> Any:
        """Take the next C++ message, waiting for it.

        Raises:
            PulsarException: it is closed; or an error that arrived in place of a message, which is raised once.
        """
        self._taken += 1
        if not self._taken % _YIELD_EVERY:
            await asyncio.sleep(0)
        inner = None if self._waiters or self._woken else self.get_ready()  # those who came first take the oldest
        while inner is None:
            await self._wait()
            inner = None if self._is_held else self._pop()
        return inner

    def get_ready(self) -> Any:
        """Take a C++ message that needs no waiting; None if there is no such message, or an error is before it."""
        if self._is_held:
            return None
        self._drop_acknowledged()
        if len(self._arrived) <= self._reserved:
            if self._waiters:
                return None
            if not self._arrived:
                self._request(1)
            if len(self._arrived) <= self._reserved:
                return None
        return None if isinstance(self._arrived[0], BaseException) else self._pop()

    def pause(self) -> None:
        """Hand out nothing, and ask for nothing; what was asked for may still arrive, and stays here."""
        self.is_paused = True

    def resume(self) -> None:
        """Hand out again."""
        self.is_paused = False
        self._go_on()

    def silence(self) -> None:
        """Hand out nothing to the listener, as `pause()`."""
        self.is_silent = True

    def unsilence(self) -> None:
        """Hand out again to the listener."""
        self.is_silent = False
        self._go_on()

    def put(self, items: Iterable[Any]) -> None:
        """Append C++ messages, or an error, whose caller was cancelled; from any thread."""
        with self._lock:
            self._arrived.extend(items)
        self._notify()

    def before(self, transition: Transition, /) -> None:
        """Ask for nothing, and hand out nothing, while another C++ object takes the place of this one."""
        self.is_replaced = self._asks_inner and transition.replaces

    def after(self, transition: Transition, /) -> None:
        """Drop what has arrived and was not taken, if it comes again."""
        if transition.brings_back:
            self._arrived.clear()
        if transition is Transition.ANOTHER_CLUSTER:
            self.records.drop()

    def drop_some(self, is_of_them: Callable[[Any], bool], /) -> None:
        """Drop what has arrived of some of several topics and was not taken."""
        with self._lock:
            # No condition in a loop here: see `_native/locks.py`.
            kept = list(filter(lambda one: isinstance(one, BaseException) or not is_of_them(one), self._arrived))
            self._arrived.clear()
            self._arrived.extend(kept)

    def abandon(self, _: Transition, /) -> None:
        """Go on as before."""
        self.is_replaced = False
        self._go_on()

    def renew(self, inner: Any, ahead: Iterator[Any], /) -> None:
        """Ask another C++ object, also for what the one before was asked for; on any thread."""
        if self._asks_inner:
            with self._lock:
                self._ask(self._receive_async_of(inner))
                self._requested = 0
                self._arrived.extend(ahead)
        self.is_replaced = False
        self._go_on()

    def close(self) -> None:
        """Drop what has arrived; every waiting and later `get()` raises `AlreadyClosed`."""
        self._arrived.clear()
        self._close_requests()

    @property
    def has_ready(self) -> bool:
        """Whether a message has arrived that is not reserved for a caller."""
        self._drop_acknowledged()
        return not self._is_held and len(self._arrived) > self._reserved

    def is_owed(self) -> bool:
        """Whether a message was asked for that has not arrived."""
        return self._requested > 0

    @property
    def _reserved(self) -> int:
        """How many of the arrived messages are for callers that were woken and have not run yet."""
        for waiter in list(self._woken):
            if waiter.get_loop().is_closed():  # that caller never runs
                self._woken.discard(waiter)
        return len(self._woken)

    @property
    def _is_held(self) -> bool:
        """Whether what has arrived stays here: it may come again, or nobody wants it now."""
        return self.is_replaced or self.is_paused or self.is_silent

    def _go_on(self) -> None:
        self._request_for_all()
        self._notify()

    def _drop_acknowledged(self) -> None:
        """Drop the next messages if they were acknowledged, and ask for others in their place."""
        while self.drops is not None and self._arrived and self._arrived[0] is not self._passed:
            first = self._arrived[0]
            if isinstance(first, BaseException) or not self.drops(first):
                self._passed = first
            else:
                self._arrived.popleft()
                self._request_for_all()

    def _pop(self) -> Any:
        self._drop_acknowledged()
        if not self._arrived:
            return None
        inner, self._passed = self._arrived.popleft(), None
        if isinstance(inner, BaseException):
            raise inner
        if self.records.lists:
            self.records.note((inner,))
        return inner

    async def _wait(self) -> None:
        """Wait until a message, or an error, has arrived for this caller."""
        if self._closed:
            raise_for(pulsar.Result.AlreadyClosed)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._bridge = running_loop_bridge()
        self._request_for_all()
        self._wake_waiters()
        try:
            if waiter.done():
                await asyncio.sleep(0)  # those who were woken before run first
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif waiter.done() and not waiter.cancelled():
                self._woken.discard(waiter)
                self._wake_waiters()  # the message that was reserved for this caller goes to the next one
            raise
        self._woken.discard(waiter)
        if self._closed and not self._arrived:
            raise_for(pulsar.Result.AlreadyClosed)

    def _request_for_all(self) -> None:
        self._request(len(self._waiters) + self._reserved)

    def _request(self, wanted: int) -> None:
        """Ask for messages until so many have arrived or are asked for."""
        while not (self._closed or self._is_held):
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

    def _ask(self, receive_async: Callable[[Any], object]) -> None:
        """Ask for messages here from now on."""
        self._receive_async = receive_async
        self._answer = partial(self._on_answer, receive_async)

    def _on_answer(self, asked: Callable[[Any], object], result: Any, inner: Any) -> None:
        """Add what a request was answered with, a message or an error; on any thread."""
        keep_thread_state()
        if asked is not self._receive_async:
            return  # a C++ object that was replaced
        if result == _OK:
            with self._lock:
                self._requested -= 1
                self._arrived.append(inner)
            self._notify()
            return
        closed = result == pulsar.Result.AlreadyClosed
        with self._lock:
            self._requested -= 1
            if closed and self.is_replaced:
                return  # the next one is asked instead
            if not closed:
                self._arrived.append(result if isinstance(result, BaseException) else error_of(result))
        if closed:
            self._close_requests()
        else:
            self._notify()

    def _notify(self) -> None:
        """Wake the callers for whom something has arrived; from any thread."""
        if self._waiters and self._bridge is not None:
            self._bridge.call_soon(self._wake_waiters)

    def _close_requests(self) -> None:
        """Ask for nothing more, and wake all callers; from any thread."""
        self._closed = True
        if self._bridge is not None:
            self._bridge.call_soon(self._wake_waiters)

    def _wake_waiters(self) -> None:
        """Wake as many callers as there are messages for; all of them once it is closed."""
        while self._waiters and (self._closed or self.has_ready):
            waiter = self._waiters.popleft()
            if not waiter.done() and not waiter.get_loop().is_closed():
                self._woken.add(waiter)
                waiter.set_result(None)


class Renewal:
    """What the receives of one consumer or reader wait for together.

    Args:
        renew: has another C++ object take the place; tries until it is there, or until a close.
    """

    def __init__(self, renew: Callable[[], None]) -> None:
        self._renew = renew
        self._under_way: Future[None] | None = None

    async def wait(self) -> None:
        """Wait until another C++ object is there. Cancelling leaves it under way, for the next caller.

        Raises:
            PulsarException: `AlreadyClosed`; or what the broker refused it with.
        """
        renewing = self._under_way
        if renewing is None or renewing.done():
            renewing = self._under_way = Future()
            renewing.set_running_or_notify_cancel()
            threads.start(self._run, renewing, name="pulsar-ext-renew")
        await asyncio.wrap_future(renewing)

    def end(self) -> None:
        """Have whoever waits raise `AlreadyClosed`."""
        if self._under_way is not None:
            _settle(self._under_way, error_of(pulsar.Result.AlreadyClosed))

    def _run(self, renewing: Future[None]) -> None:
        try:
            self._renew()
        except BaseException as error:  # noqa: BLE001  # it is raised where it is awaited
            _settle(renewing, translated(error))
        else:
            _settle(renewing, None)


def _settle(renewing: Future[None], error: BaseException | None) -> None:
    """Settle it, unless a close has."""
    with contextlib.suppress(InvalidStateError):
        if error is None:
            renewing.set_result(None)
        else:
            renewing.set_exception(error)


_log = logging.getLogger("pulsar_ext")


class AsyncReceiving(Generic[T]):
    """What receives messages; stands before the official asyncio class in the order of base classes."""

    blocking: Any
    _executor: Executor
    _queue: ReceiveQueue
    _renewal: Renewal

    def _begin(
        self,
        blocking: Any,
        executor: Executor,
        receive_async_of: Callable[[Any], Callable[[Any], object]] | None,
        receive: Callable[[], Any],
    ) -> None:
        """Stand over the blocking counterpart.

        Args:
            blocking: the counterpart.
            executor: runs the calls that wait.
            receive_async_of: gives what asks a C++ object for one message; None where Python looks at each message
                first.
            receive: the counterpart's own receive, which is used there.
        """
        self.blocking = blocking
        self._executor = executor
        self._renewal = Renewal(lambda: blocking._renew_(None))
        if receive_async_of is None:
            receiver = BlockingReceiver(lambda: receive().inner)
            self._queue = ReceiveQueue(None, lambda _: receiver.receive_async)
        else:
            self._queue = ReceiveQueue(blocking.inner, receive_async_of)
            self._queue.drops = getattr(blocking, "_came_again_", None)  # a reader acknowledges nothing
        if isinstance(blocking, Receiving):
            blocking._take_part_(self._queue)

    @property
    def _message_class(self) -> type[Message[T]]:
        messages: type[Message[T]] = getattr(self.blocking, "_message_class_", Received)
        return messages

    async def _receive(self, timeout_millis: int | None) -> Message[T]:
        queue = self._queue
        if timeout_millis is not None and not isinstance(timeout_millis, int):
            found = type(timeout_millis).__name__
            raise ValueError(  # what the official client raises
                f"Argument timeout_millis is expected to be of type 'int' and not '{found}'"
            )
        # Replaced by a seek that is at work, or by one that could not finish.
        take = self._take_renewed if queue.is_replaced else queue.get
        if timeout_millis is None:
            inner = await take()
        else:
            try:
                async with asyncio.timeout(timeout_millis / 1000):
                    inner = await take()
            except TimeoutError:
                raise_for(pulsar.Result.Timeout)
        message: Message[T] = self._message_class()
        message.inner = inner
        return message

    _receive_plain = _receive

    async def _take_renewed(self) -> Any:
        await self._renewal.wait()
        return await self._queue.get()

    async def _receive_many(self, max_messages: int, timeout_millis: int | None) -> list[Message[T]]:
        """Wait for one message, and take with it those that need no waiting."""
        check_max_messages(max_messages)
        try:
            messages = [await self._receive_plain(timeout_millis)]  # a subclass looks at all of them
        except PulsarException as error:
            if error.error() == pulsar.Result.Timeout:
                return []
            raise
        new, get_ready = self._message_class, self._queue.get_ready
        while len(messages) < max_messages and (inner := get_ready()) is not None:
            message = new()
            message.inner = inner
            messages.append(message)
        return messages

    async def close(self) -> None:
        """Close, after sending pending acknowledgements; every receive that waits raises `AlreadyClosed`.

        Cancelling leaves it under way.

        Raises:
            PulsarException: `AlreadyClosed`, if it is closed, as officially.
        """
        if self.blocking.is_closed:
            raise_for(pulsar.Result.AlreadyClosed)
        await self._executor.end(self.blocking.close, self._end_receives_)

    def _end_receives_(self) -> None:
        """Have every waiting and later receive raise `AlreadyClosed`: the blocking counterpart is closed."""
        self._queue.close()
        self._renewal.end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        try:
            return await self._receive(None)
        except PulsarException as error:
            if error.error() == pulsar.Result.AlreadyClosed:
                raise StopAsyncIteration from None
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not (self.blocking.is_closed or self._executor.closed):
            await self.close()


class AsyncSeeking(AsyncReceiving[T]):
    """A consumer or a reader, which can be moved, and may have a listener."""

    _listener_task: asyncio.Task[None] | None = None
    """Hands messages to the listener; None without one."""

    seek = awaited(BlockingConsumer.seek)
    get_last_message_ids = awaited(BlockingConsumer.get_last_message_ids)
    has_reached_end_of_topic = awaited(BlockingConsumer.has_reached_end_of_topic)

    @property
    def key_hash_ranges(self) -> KeyHashRanges:
        """The ranges of a consumer or a reader of key ranges; an AttributeError for others, as in the blocking ones."""
        ranges: KeyHashRanges = self.blocking.key_hash_ranges
        return ranges

    def pause_message_listener(self) -> None:
        """Have the listener wait, until `resume_message_listener()`.

        Raises:
            PulsarException: `InvalidConfiguration`, if there is no listener.
        """
        self._listened().silence()

    def resume_message_listener(self) -> None:
        """Have the listener go on; raises as `pause_message_listener()`."""
        self._listened().unsilence()

    def _listened(self) -> ReceiveQueue:
        if self._listener_task is None:
            raise_for(pulsar.Result.InvalidConfiguration)
        return self._queue

    def _start_listener_(self, listener: Callable[[Any, Message[T]], object]) -> None:
        """Begin to hand every message to a listener, until this is closed."""
        self._listener_task = asyncio.create_task(self._listen(listener))

    async def _listen(self, listener: Callable[[Any, Message[T]], object]) -> None:
        while True:
            try:
                message = await anext(self)
            except StopAsyncIteration:
                return
            except Exception:  # noqa: BLE001  # such as an admin API that does not answer
                _log.exception("A listener's receive failed; it is tried again in a second")
                await asyncio.sleep(1)
                continue
            try:
                with handled_in(message):
                    returned = listener(self, message)
                    if isawaitable(returned):
                        await returned
            except (Exception, asyncio.CancelledError) as error:  # the next message has to be handed out
                if is_own_cancellation(error):
                    raise
                _log.exception("A listener raised; its message %r stays unacknowledged", message.message_id())

    def is_connected(self) -> bool:
        """Tell whether it is connected to the broker."""
        connected: bool = self.blocking.is_connected()
        return connected
