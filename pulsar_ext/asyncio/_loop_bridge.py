"""From the C++ client's threads into an event loop, with one wake-up for whatever has come together."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Mailbox", "mailbox"]


class Mailbox:
    """Runs calls in an event loop, in the order in which threads post them.

    Args:
        loop: which.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weakly: the loop is the key under which this is kept.
        self._loop = weakref.ref(loop)
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Have `call(*args)` run in the loop, soon; from any thread. In a loop that is closed it never runs."""
        self._calls.append((call, args))
        if not self._woken:
            self._woken = True
            loop = self._loop()
            if loop is not None:
                with contextlib.suppress(RuntimeError):  # it is closed
                    loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._woken = False  # before the calls are taken: one that is posted now wakes the loop again
        calls = self._calls
        while calls:
            call, args = calls.popleft()
            call(*args)


_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = weakref.WeakKeyDictionary()


def mailbox() -> Mailbox:
    """Give the running loop's mailbox."""
    loop = asyncio.get_running_loop()
    found = _mailboxes.get(loop)
    if found is None:
        found = _mailboxes[loop] = Mailbox(loop)
    return found
