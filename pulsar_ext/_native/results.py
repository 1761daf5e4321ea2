"""Result codes and waits of the C++ client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from typing import NoReturn, TypeVar

import _pulsar
import pulsar

from . import threads

T = TypeVar("T")
Result = _pulsar.Result
Timeout = _pulsar.Timeout
AlreadyClosed = _pulsar.AlreadyClosed
NotConnected = _pulsar.NotConnected

UNREACHABLE = (
    pulsar.ConnectError,
    pulsar.Timeout,
    NotConnected,
    pulsar.ServiceUnitNotReady,
    pulsar.LookupError,
    pulsar.TooManyLookupRequestException,
    pulsar.BrokerMetadataError,
    pulsar.UnknownError,  # the result of a lost connection
)
"""Errors of opening a topic that no broker serves; an open C++ consumer retries forever."""
_DISCONNECTED = 46
"""Result code if the connection ends before the response; the official client has no name for it."""
POLL_MILLIS = 100
"""Duration of one native wait in milliseconds: the longest delay of a Ctrl-C."""


def polling(call: Callable[[int], T]) -> Iterator[T]:
    """Turn a native wait with a timeout into an endless iterator of its results.

    A C iterator is faster than calling a bound method. It also loses nothing to a Ctrl-C: Python checks for signals
    only between calls, and the iteration stores the result directly.
    """
    return map(call, repeat(POLL_MILLIS))


def cooperative(call: Callable[[int], T]) -> Callable[[int], T]:
    """Wrap a native wait with a timeout in milliseconds so that other greenlets run during it, if there are any."""
    if not threads.IS_PATCHED:
        return call

    def wait(timeout_millis: int) -> T:
        if not threads.shares_thread():
            return call(timeout_millis)
        for _ in chain((None,), threads.pauses(timeout_millis / 1000)):
            with suppress(Timeout):
                for result in map(call, (0,)):
                    return result
        raise Timeout("Pulsar error: TimeOut")

    return wait


def raise_result(result: Result | Exception, why: str = "") -> NoReturn:
    raise exception_of(result, why)


def exception_of(result: Result | Exception, why: str = "") -> Exception:
    """Return an exception, or the official one of a result with the C++ client's message if it has one."""
    if isinstance(result, Exception):
        return result
    name = name_of(result)
    if name == "NotConnected":
        why = "the connection to the broker was lost or missing; the outcome is unknown. Try again"
    kind: type[Exception] = NotConnected if name == "NotConnected" else getattr(pulsar, name, pulsar.UnknownError)
    return kind(f"Pulsar error: {name}{f': {why}' if why else ''}")


def result_of(error: BaseException) -> Result:
    """Return the `pulsar.Result` of an official exception, `UnknownError` for any other."""
    result: Result = getattr(Result, type(error).__name__, Result.UnknownError)
    return result


def name_of(result: Result) -> str:
    return "NotConnected" if result.value == _DISCONNECTED else result.name
