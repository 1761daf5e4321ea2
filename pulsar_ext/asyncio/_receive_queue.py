"""Messages on their way from a C++ consumer or reader to whoever awaits them; none is lost to a cancellation.

The official `receive()` asks the C++ client for one message with a future of its own; when that is cancelled, the
message that answers vanishes. Here an answer belongs to nobody until somebody takes it: a cancelled caller leaves it
to the next one. What the C++ client has already, it hands over within the call, without waking any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext.receive.order import Part

from ._loop_bridge import mailbox
from .errors import error_of, raise_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext.receive.order import Transition

    from ._loop_bridge import Mailbox

__all__ = ["Feed"]

_OK = pulsar.Result.Ok
_TURNS = 64
"""How many messages may be taken without letting the loop do something else."""


class Feed(Part):
    """Gives the messages of one consumer or reader, to any number of callers, first come first served.

    Args:
        ask: asks for one message: the C++ `receive_async` or `read_next_async`.
    """

    def __init__(self, ask: Callable[[Callable[[Any, Any], None]], object]) -> None:
        self._ask = ask
        self._arrived: deque[Any] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._mailbox: Mailbox | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._asked = self._promised = self._turns = 0
        self.heard: list[list[Any]] = []
        """Lists that note what is taken."""

    async def next(self) -> Any:
        """Take the next C++ message, waiting for it.

        Raises:
            PulsarException: it is closed, or the C++ client gave an error, which the next call is beyond.
        """
        self._turns += 1
        if not self._turns % _TURNS:
            await asyncio.sleep(0)
        inner = self.take()
        while inner is None:
            await self._arrival()
            inner = self._pop()
        return inner

    def take(self) -> Any:
        """Take a C++ message that is here already; None if there is none, or an error comes before it."""
        if len(self._arrived) <= self._promised:
            if self._waiters:
                return None
            if not self._arrived:
                self._request(1)
            if len(self._arrived) <= self._promised:
                return None
        return None if isinstance(self._arrived[0], BaseException) else self._pop()

    def give(self, come: Iterable[Any]) -> None:
        """Give back C++ messages, or an error, that nobody got; on any thread."""
        with self._lock:
            self._arrived.extend(come)
        self._tell()

    def before(self, transition: Transition) -> None:
        """Drop what has come and was not taken, if it comes again."""
        if transition.brings_back:
            self._arrived.clear()

    def close(self) -> None:
        """End: whoever waits is told that it is closed."""
        self._arrived.clear()
        self._end()

    @property
    def holds(self) -> bool:
        """Whether a message has come that nobody was promised."""
        return len(self._arrived) > self._promised

    @property
    def awaits(self) -> bool:
        """Whether a message was asked for that has not come."""
        return self._asked > 0

    def _pop(self) -> Any:
        if not self._arrived:
            return None
        inner = self._arrived.popleft()
        if isinstance(inner, BaseException):
            raise inner
        for noted in self.heard:
            noted.append(inner)
        return inner

    async def _arrival(self) -> None:
        """Wait until a message has come for this caller, or an error."""
        if self._closed:
            raise_for(pulsar.Result.AlreadyClosed)
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        self._mailbox = mailbox()
        self._request(len(self._waiters) + self._promised)
        self._wake()
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiters:
                self._waiters.remove(future)
            elif future.done() and not future.cancelled():
                self._promised -= 1
                self._wake()  # the message that woke this one is the next one's
            raise
        self._promised -= 1
        if self._closed and not self._arrived:
            raise_for(pulsar.Result.AlreadyClosed)

    def _request(self, wanted: int) -> None:
        """Have so many messages here or asked for."""
        while not self._closed:
            with self._lock:
                if self._asked + len(self._arrived) >= wanted:
                    return
                self._asked += 1
            try:
                self._ask(self._answer)
            except BaseException:
                with self._lock:
                    self._asked -= 1
                raise

    def _answer(self, result: Any, inner: Any) -> None:
        """Hear the answer, which is a `pulsar.Result` or an error; on any thread."""
        keep_thread_state()
        if result == _OK:
            with self._lock:
                self._asked -= 1
                self._arrived.append(inner)
            self._tell()
            return
        closed = result == pulsar.Result.AlreadyClosed
        with self._lock:
            self._asked -= 1
            if not closed:
                self._arrived.append(result if isinstance(result, BaseException) else error_of(result))
        if closed:
            self._end()
        else:
            self._tell()

    def _tell(self) -> None:
        """Wake whom something has come for; on any thread."""
        if self._waiters and self._mailbox is not None:
            self._mailbox.post(self._wake)

    def _end(self) -> None:
        self._closed = True
        if self._mailbox is not None:
            self._mailbox.post(self._wake)

    def _wake(self) -> None:
        """Wake as many callers as there are messages for; all of them when it is closed."""
        while self._waiters and (self._closed or len(self._arrived) > self._promised):
            future = self._waiters.popleft()
            if not future.done() and not future.get_loop().is_closed():
                self._promised += 1
                future.set_result(None)
