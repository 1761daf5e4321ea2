"""Stubs that raise on every use, for objects that are closed, were never opened, or were inherited by a fork."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NoReturn, Protocol

import pulsar

from pulsar_ext.errors import ForkedClientError, NotOpen

LISTENED = "this consumer's messages go to its message_listener. Nothing was received; subscribe without a listener"


class Refusing:
    """Replacement for a C++ object that raises one clear error on every use, instead of crashing or hanging."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error()

    def __call__(self, *_: object) -> NoReturn:
        raise self._error()

    def __iter__(self) -> Iterator[NoReturn]:
        raise self._error()


def never_opened(kind: str, how: str) -> Any:
    """Return a stub that raises `NotOpen`, for an object that the application made by its constructor."""
    return Refusing(lambda: NotOpen(f"This {kind} was never opened; get one from {how}, not from its constructor."))


@cache  # otherwise a closing client would make two for each of its consumers
def closed(kind: str) -> Any:
    return Refusing(lambda: closed_error(kind))


@cache
def listening_stub() -> Any:
    """Return a stub that raises the official error of receiving from a consumer with a listener."""
    return Refusing(lambda: pulsar.InvalidConfiguration(f"Pulsar error: InvalidConfiguration: {LISTENED}"))


def closed_error(kind: str) -> Exception:
    error: Exception = pulsar.AlreadyClosed(f"Pulsar error: AlreadyClosed: this {kind} was closed.")
    return error


_inherited: dict[weakref.ref[Inheritable], str] = {}
"""Handles to disable in a child process, and their names in errors."""
_forget = _inherited.pop


class Inheritable(Protocol):
    """Handle that a child process may inherit by a fork, with a C++ object that must never be destroyed there."""

    @property
    def inner(self) -> object: ...

    def _after_fork_(self, refusal: Any, /) -> None:
        """Replace everything through which the handle calls the C++ client; take no lock, it may have been held."""


def refuse_after_fork(handle: Inheritable, kind: str | None = None) -> None:
    """Make `handle` raise `ForkedClientError` in a child process; errors call it `kind`, or by its class name.

    The official client's threads do not exist in the child process: send, create and close hang there, and
    acknowledgements are silently lost.
    """
    _inherited[weakref.ref(handle, _forget)] = type(handle).__name__ if kind is None else kind


def _in_child() -> None:
    parent = os.getppid()
    for weak in list(_inherited):
        if (handle := weak()) is None:
            continue
        kind = _inherited[weak]
        # Its destructor would wait for threads that do not exist here, so never run it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle.inner))
        refusal = Refusing(
            lambda kind=kind: ForkedClientError(  # type: ignore[misc]
                f"This {kind} was inherited from process {parent} by a fork; its threads do not exist in process "
                f"{os.getpid()}. Create a Client in this process instead."
            )
        )
        handle._after_fork_(refusal)
    _inherited.clear()


os.register_at_fork(after_in_child=_in_child)
