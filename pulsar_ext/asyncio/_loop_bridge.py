"""Calls from other threads into an event loop, with one wake-up for all pending calls."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable
from inspect import isawaitable

_log = logging.getLogger("pulsar_ext")


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
    """Return the bridge of the running loop."""
    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = LoopBridge(loop)
    return bridge
