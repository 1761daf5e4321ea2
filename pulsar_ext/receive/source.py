"""Where a consumer or a reader takes its C++ messages from: the C++ object, or something that stands before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pulsar_ext._native.results import polling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


class NativeSource:
    """The C++ consumer or reader itself.

    Args:
        wait: its receive with a timeout in milliseconds.
    """

    __slots__ = ("each", "wait")

    def __init__(self, wait: Callable[[int], Any]) -> None:
        self.wait: Any = wait
        self.each: Iterator[Any] = polling(wait)
