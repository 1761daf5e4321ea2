"""Requests, responses and operations that both clients share, without sockets or clocks (pure).

An operation is a coroutine function over a `Session`. It describes each request as a value with a parser of the
response, and awaits nothing but `Session.send`. `AsyncPulsarAdmin` awaits the coroutine; `PulsarAdmin` runs it in one
step over a transport that never suspends. Checks that several operations share are here too.
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


async def set_policy(session: Session, path: str, value: object) -> None:
    """Set a policy; None removes it, so that the namespace's or the broker's setting applies again."""
    method = "DELETE" if value is None else "POST"
    await session.send(Request(method, path, nothing, body=value, idempotent=True))


class SyncShell:
    """Base of the synchronous client: operations finish before they return."""

    _session: Session

    def _finish(self, operation: Coroutine[object, None, T]) -> T:
        # The synchronous transport blocks instead of suspending, so one step completes the coroutine.
        try:
            operation.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        operation.close()
        raise RuntimeError("an operation suspended on the synchronous transport")  # pragma: no cover


class AsyncShell:
    """Base of the asyncio client: operations return coroutines."""

    _session: Session

    def _finish(self, operation: Coroutine[object, None, T]) -> Coroutine[object, None, T]:
        return operation


class Operation(Generic[P, T]):
    """Method of both clients, written once as a coroutine function over a `Session`."""

    def __init__(self, function: Callable[Concatenate[Session, P], Coroutine[object, None, T]]) -> None:
        # Bound to a client, it has the function's signature without the session.
        @functools.wraps(function)
        def method(self: SyncShell | AsyncShell, *args: P.args, **kwargs: P.kwargs) -> object:
            return self._finish(function(self._session, *args, **kwargs))

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


Topic = str | TopicName
ONE_OF_THEM = "name one of them"
MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
"""Maximum values of a Java int and a Java long."""


def whole_number(what: str, value: int, *, least: int = 0, most: int = _MAX_LONG) -> int:
    """Return a number after a check that it fits into a Java int or long."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidUse(f"{what} must be an int from {least} to {most}, got {value!r}")
    return value


def namespace_path(namespace: str, root: str = "namespaces") -> str:
    """Return the path of a namespace, validated as part of a topic name."""
    path = TopicName.parse(f"persistent://{namespace}/-").rest_path
    return path.replace("persistent", root, 1).removesuffix("/-")


def persistent(topic: Topic, operation: str) -> TopicName:
    """Parse the name of a persistent topic; for another one the broker would answer with status 500."""
    name = TopicName.parse(topic)
    if not name.is_persistent:
        raise _not_allowed(f"{operation} does not apply to {name}: a non-persistent topic stores nothing", name)
    return name


async def partitions(session: Session, topic: Topic) -> int:
    """Get the number of partitions, 0 for a topic without partitions: `GET T/partitions`.

    Raises:
        AdminNotFound: the topic does not exist.
    """
    path = f"{TopicName.parse(topic).rest_path}/partitions"
    return await session.send(Request("GET", path, parsed(lambda found: int(found["partitions"]))))


async def raise_if_partitioned(session: Session, name: TopicName, operation: str, instead: str = ONE_OF_THEM) -> None:
    """Raise `AdminNotAllowed` if the topic is partitioned, before a change is sent."""
    if not name.is_partition and (count := await partitions(session, name)):
        raise _partitioned_error(name, operation, count, instead)


async def raise_if_beyond_end(session: Session, name: TopicName, position: Position, operation: str) -> None:
    """Raise `AdminNotFound` if no message can have the position yet, before a cursor is moved there.

    The broker would move the cursor to the end or, in the open ledger, past it, and later messages would be lost.
    """
    path = f"{name.rest_path}/internalStats"
    stats = await session.send(Request("GET", path, parsed(InternalStats.from_json)))
    # A full ledger is listed with its number of entries until the next one is open.
    end = Position(stats.ledgers[-1].ledger_id, max(stats.current_ledger_entries, stats.ledgers[-1].entries))
    if position > end:
        reason = f"{position} is beyond the end of {name}, {end}"
        message = f"{operation}: {reason}; nothing was changed"
        raise AdminNotFound(message, status=None, reason=reason, method=None, path=path)


async def send_unless_partitioned(
    session: Session, name: TopicName, request: Request[T], operation: str, instead: str = ONE_OF_THEM
) -> T:
    """Send a read request; if it fails because the topic is partitioned, raise `AdminNotAllowed`.

    The broker reports a partitioned topic as missing to some requests, and rejects it in others.
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
        raise _partitioned_error(name, operation, count, instead) from error


def _partitioned_error(name: TopicName, operation: str, count: int, instead: str) -> AdminNotAllowed:
    first, last = name.partition(0), name.partition(count - 1)
    return _not_allowed(
        f"{operation} does not apply to {name}, which is partitioned ({count} partitions, {first} to {last}); "
        f"{instead}",
        name,
    )


def _not_allowed(message: str, name: TopicName) -> AdminNotAllowed:
    return AdminNotAllowed(message, status=None, reason=message, method=None, path=name.rest_path)
