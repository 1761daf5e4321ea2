"""Messages on their way from a C++ consumer or reader to whoever awaits them; none is lost to a cancellation.

The official `receive()` asks the C++ client for one message with a future of its own; when that is cancelled, the
message that answers it vanishes. Here an answer goes into a queue, and belongs to nobody until a caller takes it: what
a cancelled caller had asked for, the next one gets. A message that the C++ client already has is handed over within
the call, without waking any thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext.receive.order import Part, Transition
from pulsar_ext.receive.record import Records

from ._loop_bridge import running_loop_bridge
from .errors import error_of, raise_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ._loop_bridge import LoopBridge

__all__ = ["ReceiveQueue"]

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
