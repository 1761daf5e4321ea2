"""Closing a C++ client after its last answer, and closing at the end of the program what is still open.

The C++ client never frees what it was asked for and has not answered when it is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any, Protocol

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import ANSWER_SECONDS, answered_within
from pulsar_ext._native.fork import refuse_after_fork
from pulsar_ext._native.locks import Lock
from pulsar_ext.consumer import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext._runtime.ending import OpenSenders
    from pulsar_ext.reader import Reader


_BATCH_SECONDS = 0.5
"""How long those who wait for a batch are waited for, before they are answered: by default they do for 100 ms."""

_late_ones: set[ClientClose] = set()


class ClientClose:
    """Closes a C++ client, in the background where it owes answers for longer than a close may take.

    A producer, consumer or reader that it is opening as it is closed would stay for good, and whoever waits for a
    message, or is asked for the last one; and with them the threads, the memory and the descriptors of the client.

    Args:
        inner: the C++ client.
        senders: of the client, which were ended.
        receiving: its consumers and readers that are open.
        seconds: how long it may take in the background.
    """

    def __init__(self, inner: Any, senders: OpenSenders, receiving: list[Consumer | Reader], seconds: float) -> None:
        self.inner = inner
        self._senders, self._receiving, self._seconds = senders, receiving, seconds
        self._closing = Lock()

    def close(self, close: Callable[[], object]) -> None:
        """Close it.

        Args:
            close: does that, if nothing, or nothing any more, is owed.

        Raises:
            pulsar.PulsarException: that failed.
        """
        if self._is_owed():
            for one in self._receiving:  # those who wait for a message are answered by that
                with contextlib.suppress(pulsar.PulsarException):
                    self._senders.answer_to(one.inner.close_async)
        if answered_within(ANSWER_SECONDS, self._is_owed) or not self._close_later():
            close()

    def close_now(self) -> None:
        """Close it whatever it owes; whoever comes second waits for the first."""
        with self._closing, contextlib.suppress(pulsar.PulsarException):
            self.inner.close()
        _late_ones.discard(self)

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse to close in this child process; the lock may have been held at the fork."""
        self.inner, self._closing = refusal, Lock()

    def _close_later(self) -> bool:
        """Have it closed in the background; False if no thread can be started any more."""

        def run() -> None:
            answered_within(self._seconds, self._is_owed)
            self.close_now()

        refuse_after_fork(self, "Client")
        try:
            threads.start(run, name="pulsar_ext-closing")
        except RuntimeError:
            return False
        _late_ones.add(self)
        return True

    def _is_owed(self) -> bool:
        """Whether the C++ client has not answered everything."""
        return self._senders.are_owed() or any(one._is_owed_ for one in self._receiving)


def stop_fetching(receiving: list[Consumer | Reader]) -> None:
    """Have nobody wait for a batch of a consumer any more: the C++ client would not answer."""
    consumers = [one for one in receiving if isinstance(one, Consumer)]
    for one in consumers:
        one._stop_fetching_()
    deadline = time.monotonic() + _BATCH_SECONDS
    for one in consumers:
        one._end_batches_(deadline)


_LEAVING_SECONDS = 0.05
"""How long a thread has, at the end of the program, to come back from the C++ client."""


class Barrable(Protocol):
    """A producer, a consumer or a reader."""

    def _bar_(self) -> None:
        """Let nobody enter the C++ object any more."""


class Closable(Protocol):
    """A client."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        ...

    def _handles_(self) -> Iterable[Barrable]:
        """Give what is open."""
        ...

    def close(self) -> None:
        """Close it."""


_open_clients: weakref.WeakSet[Closable] = weakref.WeakSet()
_workers: set[int] = set()


def close_at_exit(client: Closable) -> None:
    """Have a client closed at the end of the program, of a process that multiprocessing made as well."""
    _open_clients.add(client)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None and os.getpid() not in _workers:
        _workers.add(os.getpid())  # such a process skips what atexit knows
        Finalize(None, _close_all, exitpriority=100)


def _close_all() -> None:
    """Close what the program left open: an open C++ client aborts the process or loses what is pending."""
    for client in list(_open_clients):
        used = list(client._handles_())
        if not client.is_closed:
            with contextlib.suppress(Exception):
                client.close()
        for one in used:
            one._bar_()
    for late in list(_late_ones):  # what waits in the background
        late.close_now()
    if threads.IS_PATCHED or threading.active_count() > 1:
        # A daemon thread that goes on is ended by Python wherever it is. In the C++ client that aborts the process.
        threads.sleep(_LEAVING_SECONDS)


atexit.register(_close_all)
