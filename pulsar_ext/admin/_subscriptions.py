"""Operations on subscriptions: skip, reset, expire, peek, backlog, life cycle.

Mirrors `org.apache.pulsar.client.admin.Topics`. Each docstring has the REST path below `/admin/v2/`, in which `S` is
`persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}`. Calls that move a cursor are sent once and never
repeated.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote

from pulsar_ext.errors import AdminNotFound, InvalidUse
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from ._core import (
    MAX_INT,
    Request,
    Session,
    Topic,
    names,
    nothing,
    parsed,
    persistent,
    raise_if_beyond_end,
    raise_if_partitioned,
    whole_number,
)
from ._models import BacklogAnalysis, EntryMetadata
from ._topics import send_entry

End = Literal["earliest", "latest"]


def subscription_path(name: TopicName, subscription: str) -> str:
    """Return the path `S`.

    The broker decodes a subscription name twice (as a path parameter, and by `Codec.decode`), so it is encoded twice;
    otherwise a name with `%` or `+` would arrive as another name.
    """
    if not isinstance(subscription, str) or not subscription:
        raise InvalidUse(f"A subscription name must be a non-empty str, got {subscription!r}")
    try:
        once = quote(subscription, safe="")
    except UnicodeEncodeError as error:
        raise InvalidUse(f"The subscription name {subscription!r} cannot be encoded as UTF-8") from error
    # A name of dots only would be a relative path step.
    once = once if once.strip(".") else once.replace(".", "%2E")
    return f"{name.rest_path}/subscription/{quote(once, safe='')}"


def cursor_body(position: Position | End, *, excluded: bool, batch_index: int = -1) -> str | dict[str, int]:
    """Return `ResetCursorData` with all its fields: the broker ignores misspelt fields and reads missing ones as 0."""
    if position in ("earliest", "latest"):
        if excluded or batch_index != -1:
            raise InvalidUse(f"excluded and batch_index apply to a position, not to {position!r}")
        return str(position)
    if not isinstance(position, Position):
        raise InvalidUse(f"Expected a Position, 'earliest' or 'latest', got {position!r}")
    return {
        "ledgerId": whole_number("ledger_id", position.ledger_id),
        "entryId": whole_number("entry_id", position.entry_id),
        "partitionIndex": -1,
        "batchIndex": whole_number("batch_index", batch_index, least=-1, most=MAX_INT),
        "excluded": excluded,
    }


async def subscriptions(session: Session, topic: Topic) -> tuple[str, ...]:
    """List the subscriptions, of a partitioned topic those of its partitions: `GET T/subscriptions`."""
    path = f"{TopicName.parse(topic).rest_path}/subscriptions"
    return await session.send(Request("GET", path, names))


async def create_subscription(
    session: Session, topic: Topic, subscription: str, position: Position | End = "latest"
) -> None:
    """Create a durable subscription, of a partitioned topic on every partition: `PUT S`.

    With `earliest` or `latest`, a broker with automatic topic creation also creates a missing topic.

    Raises:
        AdminConflict: the subscription exists.
    """
    name = persistent(topic, "create_subscription")
    body = cursor_body(position, excluded=False)
    if isinstance(position, Position):
        await raise_if_partitioned(session, name, "create_subscription at a position")
        await raise_if_beyond_end(session, name, position, "create_subscription")
    await session.send(Request("PUT", subscription_path(name, subscription), nothing, body=body))


async def delete_subscription(session: Session, topic: Topic, subscription: str, *, force: bool = False) -> None:
    """Delete a subscription, of a partitioned topic on every partition: `DELETE S`.

    Raises:
        AdminPrecondition: it has consumers; `force=True` disconnects them.
    """
    path = subscription_path(TopicName.parse(topic), subscription)
    await session.send(Request("DELETE", path, nothing, params={"force": force}))


async def skip_entries(session: Session, topic: Topic, subscription: str, count: int) -> None:
    """Move the cursor over `count` unacknowledged entries (not messages): `POST S/skip/{count}`.

    A batch is one entry, and so is each chunk of a chunked message. 0 does nothing; a count above the backlog moves to
    the end. Consumers stay connected, and messages that they have prefetched are still delivered.

    Raises:
        AdminNotAllowed: the topic is partitioned or non-persistent.
        InvalidUse: the count is negative, or too large for a Java int.
    """
    name = persistent(topic, "skip_entries")
    path = f"{subscription_path(name, subscription)}/skip/{whole_number('count', count, most=MAX_INT)}"
    await raise_if_partitioned(session, name, "skip_entries")
    await session.send(Request("POST", path, nothing))


async def skip_all(session: Session, topic: Topic, subscription: str) -> None:
    """Move the cursor to the end, of a partitioned topic on every partition: `POST S/skip_all`."""
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
    """Move the cursor so that the next message is at a position: `POST S/resetcursor`.

    Consumers are disconnected and reconnect; acknowledgements after the position are discarded. If `excluded`, the next
    message is after the entry; with a `batch_index`, it is that message of the entry's batch, which needs
    `acknowledgmentAtBatchIndexLevelEnabled` on the broker, else the whole batch is delivered.

    Raises:
        AdminNotFound: the subscription does not exist, or the position is beyond the end.
        AdminNotAllowed: the topic is partitioned or non-persistent.
    """
    name = persistent(topic, "reset_cursor")
    path = f"{subscription_path(name, subscription)}/resetcursor"
    body = cursor_body(position, excluded=excluded, batch_index=batch_index)
    await raise_if_partitioned(session, name, "reset_cursor", "name one of them, or use reset_cursor_to_time")
    if isinstance(position, Position):
        await raise_if_beyond_end(session, name, position, "reset_cursor")
    await session.send(Request("POST", path, nothing, body=body))


async def reset_cursor_to_time(session: Session, topic: Topic, subscription: str, timestamp_ms: int) -> None:
    """Move the cursor to the first entry published at a time or later: `POST S/resetcursor/{timestamp}`.

    The time is in milliseconds since the epoch. Of a partitioned topic, the broker moves the cursor of every partition.
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
    """Acknowledge everything up to a position, unless `excluded` with its entry: `POST S/expireMessages`.

    The broker does it in the background and may not have finished when this returns. `look_first` checks by two more
    requests that the topic is not partitioned and has the entry.

    Raises:
        AdminNotAllowed: the topic is partitioned or non-persistent.
        AdminConflict: another expiry is running, or there is nothing to expire.
    """
    name = persistent(topic, "expire_messages")
    if not isinstance(position, Position):
        raise InvalidUse(f"Expected a Position, got {position!r}")
    path = f"{subscription_path(name, subscription)}/expireMessages"
    body = cursor_body(position, excluded=excluded)
    if look_first:
        await raise_if_partitioned(session, name, "expire_messages")
        await raise_if_beyond_end(session, name, position, "expire_messages")
    await session.send(Request("POST", path, nothing, body=body))


async def peek(
    session: Session, topic: Topic, subscription: str, position: int = 1, *, payload: bool = False
) -> EntryMetadata:
    """Read the n-th entry, 1-based, after the cursor's mark-delete position: `HEAD S/position/{n}`.

    The broker would create a missing subscription, so its existence is checked first.

    Raises:
        AdminNotFound: the subscription or the entry does not exist.
        AdminNotAllowed: the topic is partitioned or non-persistent.
    """
    name = persistent(topic, "peek")
    number = whole_number("position", position, least=1, most=MAX_INT)
    path = f"{subscription_path(name, subscription)}/position/{number}"
    await raise_if_partitioned(session, name, "peek")
    if subscription not in await subscriptions(session, name):
        raise AdminNotFound(
            f"Subscription {subscription!r} not found on {name}",
            status=404,
            reason="Subscription not found",
            method="GET",
            path=path,
        )
    return await send_entry(session, name, path, payload=payload)


async def analyze_backlog(
    session: Session, topic: Topic, subscription: str, start: Position | None = None
) -> BacklogAnalysis:
    """Count the entries and messages of the backlog on the broker: `POST S/analyzeBacklog`.

    The broker reads the whole backlog from `start`, by default the first unacknowledged entry, which takes time; it
    stops at `subscriptionBacklogScanMaxEntries` or `…MaxTimeMs`.

    Raises:
        AdminNotAllowed: the topic is partitioned or non-persistent.
    """
    name = persistent(topic, "analyze_backlog")
    await raise_if_partitioned(session, name, "analyze_backlog")
    path = f"{subscription_path(name, subscription)}/analyzeBacklog"
    body = None if start is None else cursor_body(start, excluded=False)
    return await session.send(Request("POST", path, parsed(BacklogAnalysis.from_json), body=body, idempotent=True))
