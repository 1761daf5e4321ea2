"""Where a consumer or a reader takes its C++ messages from: the C++ object, or something that stands before it."""

from __future__ import annotations

from itertools import chain
from operator import length_hint
from typing import TYPE_CHECKING, Any, Protocol

from pulsar_ext._native.results import polling

from .order import NOTHING, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .order import Transition

__all__ = ["NativeSource", "Source"]


class Source(Protocol):
    """Gives C++ messages, one after the other."""

    @property
    def each(self) -> Any:
        """Give an endless iterator, which raises `pulsar.Timeout` where none came within 100 ms."""
        ...

    def wait(self, timeout_millis: int, /) -> Any:
        """Wait so many milliseconds for a message, and raise `pulsar.Timeout` if none came."""
        ...


class NativeSource(Part):
    """The C++ consumer or reader itself.

    Args:
        inner: the C++ consumer or reader.
        wait_of: gives its receive with a timeout in milliseconds.
    """

    __slots__ = ("_native", "_wait_of", "each", "wait")
    wait: Any
    each: Iterator[Any]

    def __init__(self, inner: Any, wait_of: Callable[[Any], Callable[[int], Any]]) -> None:
        self._wait_of = wait_of
        self.renew(inner, NOTHING)

    def renew(self, inner: Any, ahead: Iterator[Any], /) -> None:
        """Receive from another C++ object, and before it what is ahead."""
        native = self.wait = self._native = self._wait_of(inner)
        self.each = polling(native)
        if length_hint(ahead):

            def wait(timeout_millis: int) -> Any:
                for one in ahead:
                    return one
                return native(timeout_millis)

            self.wait, self.each = wait, chain(ahead, self.each)

    def before(self, transition: Transition, /) -> None:
        """Have what stands in for a receive with a timeout look at what it has."""
        if isinstance(self._native, Part):
            self._native.before(transition)

    def after(self, transition: Transition, /) -> None:
        """Have it drop that."""
        if isinstance(self._native, Part):
            self._native.after(transition)

    def is_owed(self) -> bool:
        """Whether it owes an answer to what stands in for a receive with a timeout."""
        return isinstance(self._native, Part) and self._native.is_owed()
