"""The official errors of both worlds in one: each is the blocking client's own class and the asyncio client's too."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import pulsar
import pulsar.asyncio

from pulsar_ext.errors import PulsarExtError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PulsarException", "awaited", "both_worlds", "error_of", "raise_for"]


class PulsarException(pulsar.asyncio.PulsarException, pulsar.PulsarException):  # type: ignore[misc]  # untyped
    """An official error, whose `error()` is its `pulsar.Result`.

    Args:
        result: which error.
        msg: more about it.
    """

    def __init__(self, result: Any, msg: str | None = None) -> None:
        Exception.__init__(self, result, msg)
        self._result, self._msg = result, msg

    def __reduce__(self) -> tuple[Any, ...]:
        return _of, (self._result.name, self._msg)


def error_of(result: Any) -> PulsarException:
    """Give the error of a `pulsar.Result`."""
    return _of(result.name, None)


def raise_for(result: Any) -> NoReturn:
    """Raise the error of a `pulsar.Result`."""
    raise error_of(result)


def both_worlds(error: BaseException) -> BaseException:
    """Give the blocking client's official error as that of both worlds; any other error stays."""
    if isinstance(error, PulsarExtError | PulsarException) or not isinstance(error, pulsar.PulsarException):
        return error
    return _of(type(error).__name__, str(error))


@contextlib.contextmanager
def awaited() -> Iterator[None]:
    """Turn the blocking client's official errors into those of both worlds; those of this library stay."""
    try:
        yield
    except pulsar.PulsarException as error:
        if (turned := both_worlds(error)) is error:
            raise
        raise turned from None


def _of(name: str, msg: str | None) -> PulsarException:
    return _class_of(name)(getattr(pulsar.Result, name, pulsar.Result.UnknownError), msg)


@cache
def _class_of(name: str) -> type[PulsarException]:
    official = getattr(pulsar, name, None)
    if not (isinstance(official, type) and issubclass(official, pulsar.PulsarException)):
        return PulsarException
    return type(name, (PulsarException, official), {"__module__": __name__})
