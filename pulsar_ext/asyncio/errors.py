"""Official errors that are subclasses of both the blocking and the asyncio client's classes."""

from __future__ import annotations

from functools import cache

import pulsar
import pulsar.asyncio

from pulsar_ext._native.results import Result, name_of
from pulsar_ext.errors import PulsarExtError


class PulsarException(pulsar.asyncio.PulsarException, pulsar.PulsarException):  # type: ignore[misc]  # untyped
    """An official error; `error()` returns its `pulsar.Result`."""

    def __init__(self, result: Result, msg: str | None = None) -> None:
        Exception.__init__(self, result, msg)
        self._result, self._msg = result, msg

    def __reduce__(self) -> tuple[object, ...]:
        return _error_named, (self._result.name, self._msg)


def error_of(result: Result, why: str | None = None) -> PulsarException:
    """Return the error of a `pulsar.Result` with a reason."""
    return _error_named(name_of(result), why)


def translated(error: BaseException) -> BaseException:
    """Return an official error of the blocking client as one of both clients; return any other error unchanged."""
    if isinstance(error, PulsarExtError | PulsarException) or not isinstance(error, pulsar.PulsarException):
        return error
    return _error_named(type(error).__name__, str(error))


class translating:  # noqa: N801  # used like a function; contextlib's would take 1 us of each acknowledgement
    """Context that translates the blocking client's official errors to those of both clients."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and (other := translated(error)) is not error:
            raise other from None


def _error_named(name: str, msg: str | None) -> PulsarException:
    return _class_of(name)(getattr(pulsar.Result, name, pulsar.Result.UnknownError), msg)


@cache
def _class_of(name: str) -> type[PulsarException]:
    official = getattr(pulsar, name, None)
    if not (isinstance(official, type) and issubclass(official, pulsar.PulsarException)):
        return PulsarException
    return type(name, (PulsarException, official), {"__module__": __name__})
