"""Requests, answers and operations: what the two shells share, without a socket or a clock (pure).

An operation is a coroutine function over a `Session`. It describes each request as a value with the parser of its
answer, and awaits nothing but `Session.send`. So one description serves both shells: `AsyncPulsarAdmin` awaits it, and
`PulsarAdmin` steps through it with a transport that never suspends. What several operations check first is here too.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from pulsar_ext.errors import AdminNotAllowed, AdminNotFound, InvalidUse
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from ._models import InternalStats

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping


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


ONE_OF_THEM = "name one of them"
MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
"""The largest numbers that the broker reads into a Java int and a Java long."""


def whole_number(what: str, value: int, *, least: int = 0, most: int = _MAX_LONG) -> int:
    """Return the number, which the broker reads into a Java int or long.

    Raises:
        InvalidUse: it is not an int, or not within the limits.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidUse(f"{what} must be an int from {least} to {most}, not {value!r}")
    return value


def persistent(topic: str | TopicName, operation: str) -> TopicName:
    """Parse the name of a topic that has ledgers.

    Raises:
        AdminNotAllowed: the topic is non-persistent, where the broker would answer 500.
    """
    name = TopicName.parse(topic)
    if not name.is_persistent:
        raise _not_allowed(f"{operation} does not apply to {name}: a non-persistent topic stores nothing", name)
    return name


async def partitions(session: Session, topic: str | TopicName) -> int:
    """Get the number of partitions, 0 for a topic without: `GET T/partitions`.

    Raises:
        AdminNotFound: there is no such topic.
    """

    def parse(answer: Answer) -> int:
        count: int = answer.json()["partitions"]
        return count

    return await session.send(Request("GET", f"{TopicName.parse(topic).rest_path}/partitions", parse))


async def refuse_parent(session: Session, name: TopicName, operation: str, instead: str = ONE_OF_THEM) -> None:
    """Raise if the topic is a partitioned parent, before anything that changes something is sent.

    Raises:
        AdminNotAllowed: it is; the message names the partitions.
    """
    if not name.is_partition and (count := await partitions(session, name)):
        raise _parent(name, operation, count, instead)


async def refuse_beyond_end(session: Session, name: TopicName, position: Position, operation: str) -> None:
    """Raise if no message can have the position yet, before a cursor is put there.

    The broker would put the cursor at the end or, in the open ledger, past it, where messages still to come are lost.

    Raises:
        AdminNotFound: the position lies beyond the one that the next message will get.
    """
    path = f"{name.rest_path}/internalStats"
    stats = await session.send(Request("GET", path, lambda answer: InternalStats.from_json(answer.json())))
    # A full ledger is listed with its entries while the next one is not open yet.
    end = Position(stats.ledgers[-1].ledger_id, max(stats.current_ledger_entries, stats.ledgers[-1].entries))
    if position > end:
        reason = f"{position} lies beyond the end of {name}, {end}"
        message = f"{operation}: {reason}; nothing was changed"
        raise AdminNotFound(message, status=None, reason=reason, method=None, path=path)


async def explain_parent(
    session: Session, name: TopicName, request: Request[T], operation: str, instead: str = ONE_OF_THEM
) -> T:
    """Send a reading request; if it fails because the topic is a partitioned parent, say so.

    The broker reports a parent as a missing topic to some requests, and refuses it to others.

    Raises:
        AdminNotAllowed: it is a partitioned parent; the message names the partitions.
    """
    try:
        return await session.send(request)
    except (AdminNotFound, AdminNotAllowed) as error:
        if name.is_partition:
            raise
        try:
            count = await partitions(session, name)
        except AdminNotFound:
            raise error from None
        if not count:
            raise
        raise _parent(name, operation, count, instead) from error


def _parent(name: TopicName, operation: str, count: int, instead: str) -> AdminNotAllowed:
    first, last = name.partition(0), name.partition(count - 1)
    return _not_allowed(
        f"{operation} does not apply to {name}, which is partitioned: its {count} partitions are {first} to {last}; "
        f"{instead}",
        name,
    )


def _not_allowed(message: str, name: TopicName) -> AdminNotAllowed:
    return AdminNotAllowed(message, status=None, reason=message, method=None, path=name.rest_path)
