"""Blocking calls of an event loop on threads of the asyncio client, and calls of other threads into the loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from inspect import isawaitable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

import pulsar

from pulsar_ext._runtime.ending import CancellableCall

from .errors import error_of, translating

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B", bound="_BlockingClosable")
W_co = TypeVar("W_co", covariant=True)

_MAX_THREADS = 64
_log = logging.getLogger("pulsar_ext")


class _BlockingClosable(Protocol):
    def close(self) -> object: ...


class Executor:
    """Threads of one client, started when needed; a call runs in a copy of its caller's context, so in its span."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_MAX_THREADS, "pulsar-ext-asyncio")
        self.closed = False
        """True after the client was closed."""

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call. A cancelled caller stops waiting; the call itself completes."""
        self._raise_if_closed()
        with translating():
            in_context = partial(contextvars.copy_context().run, call, *args, **kwargs)
            return await asyncio.get_running_loop().run_in_executor(self._pool, in_context)

    async def end(self, call: Callable[[], object], ended: Callable[[], None]) -> None:
        """Run a call that closes something, and then `ended()` in the loop, even if the caller is cancelled."""
        await asyncio.shield(asyncio.ensure_future(self._end(call, ended)))

    async def _end(self, call: Callable[[], object], ended: Callable[[], None]) -> None:
        await self.run(call)
        ended()

    async def open(self, call: Callable[[], T]) -> T:
        """Run a call that opens something; if the caller is cancelled, end the call and close what it opened."""
        return await self.ask(call, self._close_opened)

    async def ask(self, call: Callable[[], T], cancelled: Callable[[Future[T]], None] = lambda _: None) -> T:
        """Run a call that ends if the caller is cancelled; `cancelled` gets its future then."""
        self._raise_if_closed()
        cancellable = CancellableCall(call)
        running = self._pool.submit(contextvars.copy_context().run, cancellable)
        try:
            with translating():
                return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            cancellable.cancel()
            running.add_done_callback(cancelled)
            raise

    def close(self) -> None:
        """Reject new calls; running calls complete."""
        self.closed = True
        self._pool.shutdown(wait=False)

    def _raise_if_closed(self) -> None:
        if self.closed:
            raise error_of(pulsar.Result.AlreadyClosed)

    def _close_opened(self, opening: Future[Any]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            with contextlib.suppress(RuntimeError):  # the client was closed, which closed the opened object too
                self._pool.submit(opening.result().close)


class Closable:
    """Asynchronous context manager that closes itself at the end."""

    @property
    def _is_closed(self) -> bool:
        """True if the end of the block has nothing to close."""
        return False

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._is_closed:
            await self.close()


class Closing(Closable, Generic[B]):
    """Base of what a client opens and closes."""

    def __init__(self, blocking: B, executor: Executor) -> None:
        self.blocking, self._executor = blocking, executor

    async def close(self) -> None:
        """Close, like the blocking counterpart; may be called again, also after the client's close."""
        if not self._executor.closed:
            await self._executor.run(self.blocking.close)


class _Twin(Protocol[W_co]):
    _executor: Executor

    @property
    def blocking(self) -> W_co: ...


def awaited(
    method: Callable[Concatenate[W_co, P], T],
) -> Callable[Concatenate[_Twin[W_co], P], Coroutine[None, None, T]]:
    """Return the coroutine method that runs the blocking method on a thread, with its signature and docstring."""
    name = method.__name__

    @wraps(method)
    async def coroutine_method(self: _Twin[W_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        outcome: T = await self._executor.run(getattr(self.blocking, name), *args, **kwargs)
        return outcome

    return coroutine_method


def forwarded(method: Callable[Concatenate[W_co, P], T]) -> Callable[Concatenate[_Twin[W_co], P], T]:
    """Return the method that calls the blocking method, which does not block, with its signature and docstring."""
    name = method.__name__

    @wraps(method)
    def forwarding_method(self: _Twin[W_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with translating():
            outcome: T = getattr(self.blocking, name)(*args, **kwargs)
        return outcome

    return forwarding_method


def is_own_cancellation(error: BaseException) -> bool:
    """Return whether the error cancels the running task, and not something that the task awaited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)


async def call_listener(call: Callable[[], object], text: str, *values: object) -> None:
    """Call a listener in the loop, and await it if it is async; log an error, so that it is called again."""
    try:
        returned = call()
        if isawaitable(returned):
            await returned
    except (Exception, asyncio.CancelledError) as error:
        if is_own_cancellation(error):
            raise
        _log.exception(text, *values)


class LoopBridge:
    """Runs calls of other threads in an event loop, in the order in which they were added."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A weak reference: the loop is the dictionary key of this object.
        self._loop = weakref.ref(loop)
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._woken = False

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        """Run `call(*args)` in the loop soon; callable from any thread. A closed loop never runs it."""
        self._calls.append((call, args))
        if not self._woken:
            self._woken = True
            loop = self._loop()
            try:
                if loop is not None:
                    loop.call_soon_threadsafe(self._run_calls)
            except RuntimeError:  # the loop is closed; pending calls would keep it alive
                self._woken = False
                self._calls.clear()

    def _run_calls(self) -> None:
        self._woken = False  # before the calls are removed: a call added now wakes the loop again
        calls = self._calls
        while calls:
            call, args = calls.popleft()
            call(*args)


_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBridge] = weakref.WeakKeyDictionary()


def running_loop_bridge() -> LoopBridge:
    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = LoopBridge(loop)
    return bridge
