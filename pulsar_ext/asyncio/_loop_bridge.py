"""From other threads into an event loop, with one wake-up for all the calls that have gathered by then."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def is_own_cancellation(error: BaseException) -> bool:
    """Whether this error ends the running task; any other one is an error of what it called, as others are."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)


class LoopBridge:
    """Runs calls in an event loop, in the order in which threads hand them over.

    Args:
        loop: the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weakly: the loop is the key under which this is kept.
        self._loop = weakref.ref(loop)
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        """Have `call(*args)` run in the loop soon; from any thread. If the loop is closed it never runs."""
        self._calls.append((call, args))
        if not self._woken:
            self._woken = True
            loop = self._loop()
            try:
                if loop is not None:
                    loop.call_soon_threadsafe(self._run_calls)
            except RuntimeError:  # it is closed: what is kept for it would keep it, too
                self._woken = False
                self._calls.clear()

    def _run_calls(self) -> None:
        self._woken = False  # before the calls are taken: one that is added now wakes the loop again
        calls = self._calls
        while calls:
            call, args = calls.popleft()
            call(*args)


_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBridge] = weakref.WeakKeyDictionary()


def running_loop_bridge() -> LoopBridge:
    """Give the bridge into the running loop."""
    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = LoopBridge(loop)
    return bridge
