"""One thread at a time, also where a signal's handler interrupts that thread and sends with the same producer.

Python runs a handler between any two steps of the main thread, which may hold the lock then: a re-entrant one lets the
handler pass, into the midst of a send. What the handler sends is therefore put off until that send is done.
"""

from __future__ import annotations

import logging
import operator
from collections import deque
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pulsar_ext._native.locks import OwnedLock
from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Exclusive"]

_log = logging.getLogger("pulsar_ext")


class Exclusive:
    """A re-entrant lock, and what has to wait because its holder is interrupted."""

    def __init__(self) -> None:
        self.lock = OwnedLock()
        self.inside: int | None = None
        """The thread that is at work with the lock held: who finds one there, with the lock, has interrupted it."""
        self.deferred: deque[Callable[[], object]] = deque()
        """What waits for the interrupted work."""

    def exclusively(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call `work(*args)` with the lock held, and give what it returns; None if it has to wait."""
        thread = get_ident()
        with self.lock:
            if self.inside is not None:
                self.deferred.append(partial(work, *args))
                return None
            self.inside = thread
            try:
                result = work(*args)
                self.run_deferred()
            finally:
                self.inside = None
        return result

    def run_deferred(self) -> None:
        """Do what had to wait; the lock is held, and `inside` set, so that what comes meanwhile waits behind it."""
        while self.deferred:
            work = self.deferred.popleft()
            try:
                work()
            except Exception:  # noqa: BLE001  # it concerns the handler, which has returned
                _log.exception("A message that a signal's handler sent was refused")

    def run_left_over(self) -> None:
        """Do what had to wait and was left when the work that was interrupted failed."""
        if self.deferred:
            self.exclusively(int)

    def unlocked(self, call: Callable[..., object], *args: Any) -> None:
        """Call `call(*args)` without the lock, which is held once."""
        inside, self.inside = self.inside, None
        for _ in map(operator.call, (self.lock.release,)):  # no call between it and the block that takes it again
            try:
                call(*args)
            finally:
                self.lock.acquire()
                self.inside = inside

    def refuse_inside(self, what: str) -> None:
        """Refuse a call that waits for outcomes in a signal's handler that interrupts a send.

        Raises:
            InvalidUse: the handler runs on the thread of that send, and would wait for it.
        """
        if self.inside == get_ident():
            raise InvalidUse(
                f"{what} in a signal's handler would wait for the send that it interrupts. Use send_async."
            )

    def renew(self) -> None:
        """Begin anew in a child process, where the lock may have been held at the fork, for good."""
        self.lock = OwnedLock()
        self.inside = None
        self.deferred.clear()
