"""Objects that refuse every use: closed ones, never opened ones, and those that a fork inherited."""

from __future__ import annotations

import ctypes
import os
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pulsar

from pulsar_ext.errors import ForkedClientError, NotOpen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LISTENED", "Refusing", "closed", "closed_error", "listened", "never_opened", "refuse_after_fork"]

LISTENED = "this consumer's messages go to its message_listener. Nothing was received; subscribe without a listener"


class Refusing:
    """Stands where a C++ object belongs and answers every use with one clear error instead of a crash or a hang."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error()

    def __call__(self, *_: Any) -> NoReturn:
        raise self._error()

    def __iter__(self) -> Iterator[Any]:
        raise self._error()


def never_opened(kind: str, how: str) -> Any:
    """Give what refuses every use of something that a user made by its constructor."""
    return Refusing(lambda: NotOpen(f"This {kind} was never opened: it comes from {how}, not from its constructor."))


@cache  # a client that closes would make two for each of its consumers
def closed(kind: str) -> Any:
    """Give what refuses every use of something that was closed, as the official client does."""
    return Refusing(lambda: closed_error(kind))


@cache
def listened() -> Any:
    """Return what refuses to receive from a consumer with a listener, as the official client does."""
    return Refusing(lambda: pulsar.InvalidConfiguration(f"Pulsar error: InvalidConfiguration: {LISTENED}"))


def closed_error(kind: str) -> Exception:
    """Give the error of a use of something that was closed, which is the official client's."""
    error: Exception = pulsar.AlreadyClosed(f"Pulsar error: AlreadyClosed: this {kind} was closed.")
    return error


_inherited: weakref.WeakKeyDictionary[Inheritable, str] = weakref.WeakKeyDictionary()
"""What refuses in a child process, and what errors call it."""


class Inheritable(Protocol):
    """A handle that a fork may take into a child process."""

    @property
    def inner(self) -> Any:
        """What must never be destroyed in the child: the C++ object."""
        ...

    def _after_fork_(self, refusal: Any, /) -> None:
        """Put `refusal` wherever the handle would enter the C++ client; a lock may have been held at the fork."""


def refuse_after_fork(handle: Inheritable, kind: str | None = None) -> None:
    """Make `handle`, called by its class if not by `kind`, refuse every use in a child process that inherits it.

    The official client's threads do not exist in the child: there it hangs in send, create and close, and loses
    acknowledgements without a word.
    """
    _inherited[handle] = type(handle).__name__ if kind is None else kind


def _in_child() -> None:
    parent = os.getppid()
    for handle, kind in list(_inherited.items()):
        # Its destructor would wait for threads that do not exist here: never let it run.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle.inner))
        refusal = Refusing(
            lambda kind=kind: ForkedClientError(  # type: ignore[misc]
                f"This {kind} was inherited from process {parent} by a fork; none of its threads exist in process "
                f"{os.getpid()}. Create a Client in this process instead."
            )
        )
        handle._after_fork_(refusal)
    _inherited.clear()


os.register_at_fork(after_in_child=_in_child)
