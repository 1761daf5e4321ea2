"""Sources that hand on only the messages that are for the application."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from pulsar_ext._native.results import POLL_MILLIS, Timeout
from pulsar_ext.errors import MisroutedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


__all__ = ["Filtered", "Screened"]

_LOOK_AT_CLOCK = 256


class Filtered(Iterator[Any]):
    """What a receive loop takes its C++ messages from: an endless iterator, and a call with a timeout.

    Args:
        source: the endless iterator that waits for messages; raises `pulsar.Timeout` when none came within 100 ms, as
            this one does when none was wanted.
        call: the wait with a timeout in milliseconds.
        wanted: whether to hand on a C++ message.

    `passed_by` counts the messages that were not wanted; `kept` holds what earlier calls left behind.
    """

    __slots__ = ("_call", "_ready", "_source", "_unseen", "_wanted", "kept", "passed_by")

    def __init__(self, source: Iterator[Any], call: Callable[[int], Any], wanted: Callable[[Any], bool]) -> None:
        self._source = source
        self._call = call
        self._wanted = wanted
        self._ready: deque[Any] = deque()
        self._unseen: deque[Any] = deque()
        self.kept = self._ready, self._unseen
        self.passed_by = 0

    def __next__(self) -> Any:
        if self._ready or self._unseen:
            found = self._kept()
            if found is not None:
                return found
        began = 0.0
        for inner in self._source:
            try:
                if self._wanted(inner):
                    return inner
            except MisroutedMessage:
                raise  # it carries the message
            except BaseException:
                self._unseen.append(inner)
                raise
            self.passed_by += 1
            if not self.passed_by % _LOOK_AT_CLOCK:
                now = time.monotonic()
                began = began or now
                if now - began > POLL_MILLIS / 1000:
                    raise Timeout("Pulsar error: TimeOut")
        raise StopIteration

    def __call__(self, millis: int) -> Any:
        """Wait for a wanted message.

        Raises:
            pulsar.Timeout: none came in time.
        """
        found = self._kept()
        if found is not None:
            return found
        deadline = time.monotonic() + millis / 1000
        while True:
            for inner in map(self._call, (millis,)):
                try:
                    if self._wanted(inner):
                        return inner
                    self.passed_by += 1
                except MisroutedMessage:
                    raise  # it carries the message
                except BaseException:
                    self._unseen.append(inner)
                    raise
            millis = int((deadline - time.monotonic()) * 1000)
            if millis <= 0:
                raise Timeout("Pulsar error: TimeOut")

    def wants(self, inner: Any) -> bool:
        """Whether a C++ message is wanted, which is counted if it is not."""
        wanted = self._wanted(inner)
        self.passed_by += not wanted
        return wanted

    def peek(self) -> bool:
        """Wait for a wanted message and keep it for the next receive; False if nothing came within 100 ms."""
        if not self._ready:
            try:
                for inner in self:
                    self._ready.append(inner)
                    break
            except Timeout:
                return False
        return True

    @property
    def holds(self) -> bool:
        """Whether the next receive has a wanted message at once."""
        if not self._ready:
            found = self._kept()
            if found is None:
                return False
            self._ready.append(found)
        return True

    @property
    def holds_unseen(self) -> bool:
        """Whether messages wait that an earlier call left behind."""
        return bool(self._ready or self._unseen)

    def put_back(self, inners: Iterable[Any]) -> None:
        """Have these messages looked at first, in their order, by what is received next."""
        self._unseen.extendleft(reversed(list(inners)))

    def drain(self) -> tuple[list[Any], Exception | None]:
        """Give the wanted ones among the messages that wait, up to an error about one of them, and that error."""
        found: list[Any] = []
        try:
            while (inner := self._kept()) is not None:
                found.append(inner)
        except Exception as error:  # noqa: BLE001  # the caller raises it when nothing would be lost
            return found, error
        return found, None

    def forget(self) -> None:
        """Drop what is kept, as a seek does."""
        self._ready.clear()
        self._unseen.clear()

    def _kept(self) -> Any:
        """Give the next message that an earlier call left behind, or None."""
        while not self._ready and self._unseen:
            # Looked at where it lies: an error leaves it there, unless the error carries it.
            try:
                if self._wanted(self._unseen[0]):
                    self._ready.append(self._unseen[0])
            except MisroutedMessage:
                del self._unseen[0]
                raise
            del self._unseen[0]
        if not self._ready:
            return None
        found = self._ready[0]
        del self._ready[0]
        return found


class Screened:
    """Stands before a consumer's native receive and lets pass what is for the application.

    Args:
        source: the endless iterator of C++ messages.
        call: the wait with a timeout in milliseconds.
        screen: whether a message is for the application.
    """

    def __init__(self, source: Any, call: Any, screen: Callable[[Any], bool]) -> None:
        self._source, self._call, self._screen = source, call, screen
        self._unseen: deque[Any] = deque()
        self._ready: deque[Any] = deque()
        self._lock = threading.RLock()
        self._waiting = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if (seen := self._seen()) is not None:
            return seen
        self._waiting += 1
        try:
            with self._lock:  # until nobody looks ahead
                pass
            for inner in self._source:
                self._unseen.append(inner)  # where a Ctrl-C finds it
                if (seen := self._seen()) is not None:
                    return seen
        finally:
            self._waiting -= 1
        raise StopIteration

    def __call__(self, millis: int) -> Any:
        """Wait for a message that is for the application."""
        deadline = time.monotonic() + millis / 1000
        self._waiting += 1
        try:
            with self._lock:  # until nobody looks ahead
                pass
            while (seen := self._seen()) is None:
                self._unseen.extend(map(self._call, (max(int((deadline - time.monotonic()) * 1000), 0),)))
            return seen
        finally:
            self._waiting -= 1

    def look_ahead(self) -> None:
        """Look at what waits, as far as it is not for the application: nobody may be receiving."""
        with self._lock, contextlib.suppress(Timeout):
            while not (self._waiting or self._ready):
                self._unseen.append(self._call(0))
                self._look()

    def forget(self) -> None:
        """Drop what was looked at and not received: it is from before a seek or a redelivery."""
        self._unseen.clear()
        self._ready.clear()

    def _seen(self) -> Any:
        """Give the next message for the application among those that came; None if there is none."""
        self._look()
        try:
            for inner in iter(self._ready.popleft, None):  # no call behind it, where a Ctrl-C would lose it
                return inner
        except IndexError:
            return None

    def _look(self) -> None:
        """Look at what has come, in its order: that is also the order of dead letters."""
        with self._lock, contextlib.suppress(IndexError):  # that it was forgotten meanwhile
            while self._unseen:
                inner = self._unseen[0]
                wanted = self._screen(inner)
                del self._unseen[0]
                if wanted:
                    self._ready.append(inner)
