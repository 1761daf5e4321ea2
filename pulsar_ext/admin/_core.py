"""Requests, answers and operations: what the two shells share, without a socket or a clock (pure).

An operation is a coroutine function over a `Session`. It describes each request as a value with the parser of its
answer, and awaits nothing but `Session.send`. So one description serves both shells: `AsyncPulsarAdmin` awaits it, and
`PulsarAdmin` steps through it with a transport that never suspends.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

__all__ = [
    "Answer",
    "AsyncShell",
    "Operation",
    "Request",
    "Session",
    "SyncShell",
    "nothing",
    "optional",
    "refuse_page",
    "set_policy",
]

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the status, headers with names in lower case and Latin-1 values, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Decode the body; an empty one, by which the broker says 'not set', is None.

        Raises:
            ValueError: the body is not JSON.
        """
        return json.loads(self.body) if self.body else None

    def text(self) -> str:
        """Decode the body as UTF-8, bad bytes replaced."""
        return self.body.decode(errors="replace")


def refuse_page(answer: Answer) -> None:
    """Raise `ValueError` at a web page, which no broker gives for a success."""
    if answer.headers.get("content-type", "").lower().startswith("text/html"):
        raise ValueError("a web page")


def nothing(_answer: Answer) -> None:
    """Parse the answer of a call that only succeeds or fails."""


def optional(read: Callable[[Any], T]) -> Callable[[Answer], T | None]:
    """Parse the answer of a call that gives a policy, None if it is not set."""

    def parse(answer: Answer) -> T | None:
        data = answer.json()
        return None if data is None else read(data)

    return parse


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One call of the admin REST API.

    Args:
        method: the HTTP method.
        path: what follows `/admin/v2/`, percent-encoded.
        parse: reads a successful answer.
        params: the query; None values are left out, booleans are written as Java reads them.
        body: sent as JSON unless it is None.
        idempotent: whether sending it twice does what sending it once does; None: only if the method is a reading one.
    """

    method: str
    path: str
    parse: Callable[[Answer], T]
    params: Mapping[str, str | int | bool | None] = field(default_factory=dict)
    body: Any = None
    idempotent: bool | None = None

    @property
    def may_repeat(self) -> bool:
        """Whether it may be sent again when it is not known if the broker has seen it."""
        return self.method in {"GET", "HEAD"} if self.idempotent is None else self.idempotent

    def query(self) -> dict[str, str]:
        """Write the query as the broker reads it."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.params.items()
            if value is not None
        }

    def content(self) -> bytes | None:
        """Write the body; None for a request without one."""
        return None if self.body is None else json.dumps(self.body).encode()


class Session(Protocol):
    """What an operation needs of the world."""

    async def send(self, request: Request[T]) -> T:
        """Send the request and parse its answer.

        Raises:
            AdminError: the broker refused it, or no usable answer came.
        """
        raise NotImplementedError


async def set_policy(session: Session, path: str, value: object) -> None:
    """Set a policy; None removes it, so that what is above it applies again: the namespace's, or the broker's own."""
    method = "DELETE" if value is None else "POST"
    await session.send(Request(method, path, nothing, body=value, idempotent=True))


class SyncShell:
    """A shell that finishes an operation before it returns."""

    _session: Session

    def _finish(self, operation: Coroutine[Any, Any, T]) -> T:
        # The synchronous transport blocks instead of suspending, so the first step is the last one.
        try:
            operation.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        operation.close()
        raise RuntimeError("an operation suspended on the synchronous transport")  # pragma: no cover


class AsyncShell:
    """A shell whose operations are awaited."""

    _session: Session

    def _finish(self, operation: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return operation


class Operation(Generic[P, T]):
    """A method of both shells, written once as a coroutine function over a `Session`."""

    def __init__(self, function: Callable[Concatenate[Session, P], Coroutine[Any, Any, T]]) -> None:
        # Bound to a shell, its signature is that of the function without the session.
        @functools.wraps(function)
        def method(self: SyncShell | AsyncShell, *args: P.args, **kwargs: P.kwargs) -> Any:
            return self._finish(function(self._session, *args, **kwargs))

        self._method = method
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Operation[P, T]: ...
    @overload
    def __get__(self, instance: SyncShell, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: AsyncShell, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: SyncShell | AsyncShell | None, owner: type) -> Any:
        return self if instance is None else MethodType(self._method, instance)
