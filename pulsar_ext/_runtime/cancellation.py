"""Blocking calls that another thread may cancel while they wait for the C++ client."""

from __future__ import annotations

from concurrent.futures import CancelledError
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.answer import Answer

__all__ = ["CancellableCall", "end_if_cancelled"]

T = TypeVar("T")


class CancellableCall(Generic[T]):
    """A blocking call; once it is cancelled, its present or next wait for the C++ client raises `CancelledError`.

    Args:
        call: what to call, once.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._awaited: Answer | None = None
        self._cancelled = False

    def __call__(self) -> T:
        """Make the call."""
        token = _running.set(self)
        try:
            return self._call()
        finally:
            _running.reset(token)

    def cancel(self) -> None:
        """Cancel the call, from any thread."""
        self._cancelled = True
        if self._awaited is not None:
            self._awaited.give_up(CancelledError())

    def end_with(self, answer: Answer) -> None:
        """Have a cancellation from now on end the wait for an answer.

        Raises:
            CancelledError: the call was cancelled before.
        """
        self._awaited = answer  # first: who cancels in between sees it
        if self._cancelled:
            raise CancelledError


_running: ContextVar[CancellableCall[Any] | None] = ContextVar("pulsar_ext_cancellable_call", default=None)


def end_if_cancelled(answer: Answer) -> None:
    """Have the wait for an answer end when the call that waits is cancelled, if that is a `CancellableCall`.

    Raises:
        CancelledError: it was cancelled before.
    """
    if (call := _running.get()) is not None:
        call.end_with(answer)
