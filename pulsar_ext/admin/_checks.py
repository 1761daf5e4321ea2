"""What is checked before a request is sent, and how a partitioned parent is distinguished from a missing topic."""

from __future__ import annotations

from typing import TypeVar

from pulsar_ext.errors import AdminNotAllowed, AdminNotFound, InvalidUse
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from ._core import Answer, Request, Session
from ._models import InternalStats

__all__ = [
    "MAX_INT",
    "explain_parent",
    "partitions",
    "persistent",
    "refuse_beyond_end",
    "refuse_parent",
    "whole_number",
]

T = TypeVar("T")

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
