"""Requests, responses and operations that both clients share, without sockets or clocks (pure).

An operation is a coroutine method. It describes each request as a value with a parser of the response, and awaits
nothing but `Session.send`. `AsyncPulsarAdmin` awaits the coroutine; `PulsarAdmin` runs it in one step over a transport
that never suspends.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="Shell")


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP response: the status, headers with lower-case names and Latin-1 values, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Decode the body as JSON; an empty body, which means "not set", is None."""
        return json.loads(self.body) if self.body else None

    def text(self) -> str:
        """Decode the body as UTF-8, with invalid bytes replaced."""
        return self.body.decode(errors="replace")


def nothing(_answer: Answer) -> None:
    """Parse the response of a call that only succeeds or fails."""


def names(answer: Answer) -> tuple[str, ...]:
    """Parse a list of names, and sort it."""
    return tuple(sorted(answer.json()))


def parsed(read: Callable[[Any], T]) -> Callable[[Answer], T]:
    """Return a parser of a JSON response."""
    return lambda answer: read(answer.json())


def optional(read: Callable[[Any], T]) -> Callable[[Answer], T | None]:
    """Return a parser of a policy, which returns None if the policy is not set."""

    def parse(answer: Answer) -> T | None:
        data = answer.json()
        return None if data is None else read(data)

    return parse


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A call of the admin REST API."""

    method: str
    path: str
    """The path below `/admin/v2/`, percent-encoded."""
    parse: Callable[[Answer], T]
    """Parser of a successful response."""
    params: Mapping[str, str | int | bool | None] = field(default_factory=dict)
    """The query; None values are omitted, booleans are written in Java's form."""
    body: object = None
    """Sent as JSON unless it is None."""
    idempotent: bool | None = None
    """If sending it twice has the effect of sending it once; None means only for GET and HEAD."""

    @property
    def may_repeat(self) -> bool:
        """True if it may be sent again although the broker may have processed it."""
        return self.method in {"GET", "HEAD"} if self.idempotent is None else self.idempotent

    def query(self) -> dict[str, str]:
        """Return the query parameters in the broker's form."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.params.items()
            if value is not None
        }

    def content(self) -> bytes | None:
        """Return the encoded body; None without a body."""
        return None if self.body is None else json.dumps(self.body).encode()


class Session(Protocol):
    """The interface that operations use to send requests."""

    async def send(self, request: Request[T]) -> T:
        """Send the request and parse the response; raise `AdminError` without a valid one."""
        raise NotImplementedError


class Shell:
    """Base of both clients."""

    _session: Session

    def _finish(self, operation: Coroutine[object, None, T]) -> object:
        """Return what an operation of this client returns."""
        raise NotImplementedError


class SyncShell(Shell):
    """Base of the synchronous client: operations finish before they return."""

    def _finish(self, operation: Coroutine[object, None, T]) -> T:
        # The synchronous transport blocks instead of suspending, so one step completes the coroutine.
        try:
            operation.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        operation.close()
        raise RuntimeError("an operation suspended on the synchronous transport")  # pragma: no cover


class AsyncShell(Shell):
    """Base of the asyncio client: operations return coroutines."""

    def _finish(self, operation: Coroutine[object, None, T]) -> Coroutine[object, None, T]:
        return operation


class Operation(Generic[P, T]):
    """Method of both clients, written once as a coroutine method."""

    def __init__(self, function: Callable[Concatenate[S, P], Coroutine[object, None, T]]) -> None:
        @functools.wraps(function)
        def method(self: S, *args: P.args, **kwargs: P.kwargs) -> object:
            return self._finish(function(self, *args, **kwargs))

        self._method = method
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Operation[P, T]: ...
    @overload
    def __get__(self, instance: SyncShell, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: AsyncShell, owner: type) -> Callable[P, Coroutine[object, None, T]]: ...
    def __get__(self, instance: SyncShell | AsyncShell | None, owner: type) -> object:
        return self if instance is None else MethodType(self._method, instance)
