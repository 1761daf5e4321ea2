"""Operations on subscriptions: skip, reset, expire, peek, backlog, life cycle.

Mirrors `org.apache.pulsar.client.admin.Topics`; each docstring names the REST path below `/admin/v2/`, where `S` stands
for `persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}`. What moves a cursor is sent once, never
again.
"""

# ruff: noqa: D417  # the session is not the caller's to give, so no docstring lists it

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

from pulsar_ext.errors import AdminNotFound, InvalidUse
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from ._core import MAX_INT, Request, Session, nothing, persistent, refuse_beyond_end, refuse_parent, whole_number
from ._models import BacklogAnalysis, EntryMetadata
from ._topics import send_entry

Topic = str | TopicName
End = Literal["earliest", "latest"]


def subscription_path(name: TopicName, subscription: str) -> str:
    """Write `S`.

    The broker decodes a subscription's name twice (once as any path parameter, once by `Codec.decode`), so it is
    encoded twice; a name with `%` or `+` would arrive as another name otherwise.

    Raises:
        InvalidUse: the name is empty or no text.
    """
    if not isinstance(subscription, str) or not subscription:
        raise InvalidUse(f"A subscription's name must be a non-empty str, not {subscription!r}")
    try:
        once = quote(subscription, safe="")
    except UnicodeEncodeError as error:
        raise InvalidUse(f"The subscription's name {subscription!r} cannot be written as UTF-8") from error
    # A name of dots only would be taken for a step in the path.
    once = once if once.strip(".") else once.replace(".", "%2E")
    return f"{name.rest_path}/subscription/{quote(once, safe='')}"


def cursor_body(position: Position | End, *, excluded: bool, batch_index: int = -1) -> str | dict[str, Any]:
    """Write `ResetCursorData`, whose fields must be exact: the broker ignores a wrong one and reads a missing one as 0.

    Raises:
        InvalidUse: the position is neither an entry's nor `earliest` or `latest`.
    """
    if position in ("earliest", "latest"):
        if excluded or batch_index != -1:
            raise InvalidUse(f"excluded and batch_index go with a position, not with {position!r}")
        return str(position)
    if not isinstance(position, Position):
        raise InvalidUse(f"Expected a Position, 'earliest' or 'latest', not {position!r}")
    return {
        "ledgerId": whole_number("ledger_id", position.ledger_id),
        "entryId": whole_number("entry_id", position.entry_id),
        "partitionIndex": -1,
        "batchIndex": whole_number("batch_index", batch_index, least=-1, most=MAX_INT),
        "excluded": excluded,
    }


async def subscriptions(session: Session, topic: Topic) -> tuple[str, ...]:
    """List the subscriptions, of a parent those of its partitions: `GET T/subscriptions`."""
    path = f"{TopicName.parse(topic).rest_path}/subscriptions"
    return await session.send(Request("GET", path, lambda answer: tuple(sorted(answer.json()))))


async def create_subscription(
    session: Session, topic: Topic, subscription: str, position: Position | End = "latest"
) -> None:
    """Create a durable subscription, of a parent on every partition: `PUT S`.

    With `earliest` or `latest`, a broker that creates topics by itself creates a missing topic too.

    Raises:
        AdminConflict: it exists.
    """
    name = persistent(topic, "create_subscription")
    body = cursor_body(position, excluded=False)
    if isinstance(position, Position):
        await refuse_parent(session, name, "create_subscription at a position")
        await refuse_beyond_end(session, name, position, "create_subscription")
    await session.send(Request("PUT", subscription_path(name, subscription), nothing, body=body))


async def delete_subscription(session: Session, topic: Topic, subscription: str, *, force: bool = False) -> None:
    """Delete a subscription, of a parent on every partition: `DELETE S`.

    Raises:
        AdminPrecondition: it has consumers; `force=True` disconnects them.
    """
    path = subscription_path(TopicName.parse(topic), subscription)
    await session.send(Request("DELETE", path, nothing, params={"force": force}))


async def skip_entries(session: Session, topic: Topic, subscription: str, count: int) -> None:
    """Move the cursor over so many entries (not messages) that are not acknowledged: `POST S/skip/{count}`.

    A batch is one entry, and so is each chunk of a chunked message. 0 does nothing; more than there are goes to the
    end. Consumers stay connected, and what they have prefetched still arrives.

    Raises:
        AdminNotAllowed: the topic is a partitioned parent, or not persistent.
        InvalidUse: the count is negative, or more than a Java int holds.
    """
    name = persistent(topic, "skip_entries")
    path = f"{subscription_path(name, subscription)}/skip/{whole_number('count', count, most=MAX_INT)}"
    await refuse_parent(session, name, "skip_entries")
    await session.send(Request("POST", path, nothing))


async def skip_all(session: Session, topic: Topic, subscription: str) -> None:
    """Move the cursor to the end, of a parent on every partition: `POST S/skip_all`."""
    name = persistent(topic, "skip_all")
    await session.send(Request("POST", f"{subscription_path(name, subscription)}/skip_all", nothing))


async def reset_cursor(
    session: Session,
    topic: Topic,
    subscription: str,
    position: Position | End,
    *,
    excluded: bool = False,
    batch_index: int = -1,
) -> None:
    """Move the cursor so that it reads on at a position: `POST S/resetcursor`.

    Consumers are disconnected and come back; acknowledgements behind the position are forgotten.

    Args:
        topic: not a partitioned parent.
        subscription: must exist.
        position: the entry to deliver next, or `earliest` or `latest`.
        excluded: whether to begin behind that entry.
        batch_index: the message of the entry's batch to begin at; only where the broker has
            `acknowledgmentAtBatchIndexLevelEnabled`, it delivers the whole batch otherwise.

    Raises:
        AdminNotFound: no such subscription, or the position lies beyond the end.
        AdminNotAllowed: the topic is a partitioned parent, or not persistent.
    """
    name = persistent(topic, "reset_cursor")
    path = f"{subscription_path(name, subscription)}/resetcursor"
    body = cursor_body(position, excluded=excluded, batch_index=batch_index)
    await refuse_parent(session, name, "reset_cursor", "name one of them, or use reset_cursor_to_time")
    if isinstance(position, Position):
        await refuse_beyond_end(session, name, position, "reset_cursor")
    await session.send(Request("POST", path, nothing, body=body))


async def reset_cursor_to_time(session: Session, topic: Topic, subscription: str, timestamp_ms: int) -> None:
    """Move the cursor to the first entry published at a time or later: `POST S/resetcursor/{timestamp}`.

    The broker does it on every partition of a parent.

    Args:
        topic: a topic, a partition or a partitioned parent.
        subscription: must exist.
        timestamp_ms: milliseconds since the epoch.
    """
    name = persistent(topic, "reset_cursor_to_time")
    path = f"{subscription_path(name, subscription)}/resetcursor/{whole_number('timestamp_ms', timestamp_ms)}"
    await session.send(Request("POST", path, nothing))


async def expire_messages(
    session: Session,
    topic: Topic,
    subscription: str,
    position: Position,
    *,
    excluded: bool = False,
    look_first: bool = True,
) -> None:
    """Acknowledge everything up to a position: `POST S/expireMessages`.

    The broker does it in the background, so it may not be done when this returns.

    Args:
        topic: not a partitioned parent.
        subscription: must exist.
        position: the last entry to expire.
        excluded: whether to keep that entry itself.
        look_first: whether to check first that the topic is not a partitioned parent and has such an entry, which takes
            two requests more; False for those who have just seen the entry.

    Raises:
        AdminNotAllowed: the topic is a partitioned parent, or not persistent.
        AdminConflict: another expiry is running, or there is nothing to expire.
    """
    name = persistent(topic, "expire_messages")
    if not isinstance(position, Position):
        raise InvalidUse(f"Expected a Position, not {position!r}")
    path = f"{subscription_path(name, subscription)}/expireMessages"
    body = cursor_body(position, excluded=excluded)
    if look_first:
        await refuse_parent(session, name, "expire_messages")
        await refuse_beyond_end(session, name, position, "expire_messages")
    await session.send(Request("POST", path, nothing, body=body))


async def peek(
    session: Session, topic: Topic, subscription: str, position: int = 1, *, payload: bool = False
) -> EntryMetadata:
    """Read the n-th entry, 1-based, behind the cursor's mark-delete position: `HEAD S/position/{n}`.

    The broker would create a subscription that does not exist, so that is looked up first.

    Raises:
        AdminNotFound: no such subscription, or no such entry.
        AdminNotAllowed: the topic is a partitioned parent, or not persistent.
    """
    name = persistent(topic, "peek")
    path = (
        f"{subscription_path(name, subscription)}/position/{whole_number('position', position, least=1, most=MAX_INT)}"
    )
    await refuse_parent(session, name, "peek")
    if subscription not in await subscriptions(session, name):
        raise AdminNotFound(
            f"Subscription {subscription!r} not found on {name}",
            status=404,
            reason="Subscription not found",
            method="GET",
            path=path,
        )
    return await send_entry(session, name, path, {}, payload=payload)


async def analyze_backlog(
    session: Session, topic: Topic, subscription: str, start: Position | None = None
) -> BacklogAnalysis:
    """Have the broker read the backlog and count entries and messages: `POST S/analyzeBacklog`.

    It reads everything, so allow it time; it stops at `subscriptionBacklogScanMaxEntries` or `…MaxTimeMs`.

    Args:
        topic: not a partitioned parent.
        subscription: must exist.
        start: the entry to begin at; by default the first that is not acknowledged.

    Raises:
        AdminNotAllowed: the topic is a partitioned parent, or not persistent.
    """
    name = persistent(topic, "analyze_backlog")
    await refuse_parent(session, name, "analyze_backlog")
    return await session.send(
        Request(
            "POST",
            f"{subscription_path(name, subscription)}/analyzeBacklog",
            lambda answer: BacklogAnalysis.from_json(answer.json()),
            body=None if start is None else cursor_body(start, excluded=False),
            idempotent=True,
        )
    )
