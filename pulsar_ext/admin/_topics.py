"""Operations on topics: statistics, entries, positions, life cycle, policies.

Mirrors `org.apache.pulsar.client.admin.Topics` and `TopicPolicies`. Each docstring has the REST path below
`/admin/v2/`, in which `T` is `persistent/{tenant}/{namespace}/{topic}`. Every operation takes a topic as text or as
`TopicName`, and raises the `AdminError` of the response's status. A policy takes effect shortly after the broker's
response.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pulsar_ext.errors import AdminError, AdminNotFound
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from ._core import (
    MAX_INT,
    Answer,
    Request,
    Session,
    Topic,
    names,
    namespace_path,
    nothing,
    optional,
    parsed,
    persistent,
    raise_if_partitioned,
    send_unless_partitioned,
    set_policy,
    whole_number,
)
from ._models import EntryMetadata, InternalStats, PartitionedStats, TopicStats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._models import Json

_SERVER_ERROR = 500
_NO_ENTRY = ("LastConfirmedEntry is", "No such entry", "Incorrect parameter input")


def _position(message_id: Json) -> Position:
    """Parse the JSON of a message id; Java's `MessageId.earliest` is -1:-1."""
    return Position(message_id["ledgerId"], message_id["entryId"])


async def stats(session: Session, topic: Topic, *, precise_backlog: bool = False) -> TopicStats:
    """Get the statistics of a topic or partition: `GET T/stats`.

    With `precise_backlog`, the broker counts the backlog exactly, holes included, instead of using its counters.

    Raises:
        AdminNotAllowed: the topic is partitioned; use `partitioned_stats`.
    """
    name, params = TopicName.parse(topic), {"getPreciseBacklog": precise_backlog}
    request = Request("GET", f"{name.rest_path}/stats", parsed(TopicStats.from_json), params)
    return await send_unless_partitioned(session, name, request, "stats", "use partitioned_stats")


async def partitioned_stats(session: Session, topic: Topic) -> PartitionedStats:
    """Get the statistics of a partitioned topic, summed and by partition: `GET T/partitioned-stats`."""
    path = f"{TopicName.parse(topic).rest_path}/partitioned-stats"
    return await session.send(Request("GET", path, parsed(PartitionedStats.from_json), {"perPartition": True}))


async def internal_stats(session: Session, topic: Topic) -> InternalStats:
    """Get the ledgers and cursors of a topic or partition: `GET T/internalStats`.

    Raises:
        AdminNotAllowed: the topic is partitioned or non-persistent.
    """
    name = persistent(topic, "internal_stats")
    request = Request("GET", f"{name.rest_path}/internalStats", parsed(InternalStats.from_json))
    return await send_unless_partitioned(session, name, request, "internal_stats", "use partitioned_internal_stats")


async def partitioned_internal_stats(session: Session, topic: Topic) -> Mapping[str, InternalStats]:
    """Get the ledgers and cursors of each partition, by its full name: `GET T/partitioned-internalStats`."""
    path = f"{persistent(topic, 'partitioned_internal_stats').rest_path}/partitioned-internalStats"

    def parse(found: Json) -> dict[str, InternalStats]:
        return {key: InternalStats.from_json(value) for key, value in sorted(found["partitions"].items())}

    return await session.send(Request("GET", path, parsed(parse)))


async def send_entry(
    session: Session, name: TopicName, path: str, *, payload: bool, params: Mapping[str, str | int] | None = None
) -> EntryMetadata:
    """Read an entry's headers, by HEAD unless the payload is wanted, which may be megabytes."""

    def parse(answer: Answer) -> EntryMetadata:
        return EntryMetadata.from_headers(answer.headers, answer.body if payload else None)

    get = Request("GET", path, parse, params or {})
    try:
        if not payload:
            try:
                return await session.send(replace(get, method="HEAD"))
            except AdminError as error:
                if error.status is None or error.retriable:
                    raise
        # The response to a failed HEAD has no reason, so GET repeats the request.
        return await send_unless_partitioned(session, name, get, "reading an entry")
    except AdminError as error:
        # After the last entry of the topic or of a closed ledger, the broker answers 500 instead of 404.
        if error.status == _SERVER_ERROR and any(words in error.reason for words in _NO_ENTRY):
            raise AdminNotFound(error.message, **error.details) from error
        raise


async def entry(
    session: Session, topic: Topic, ledger_id: int, entry_id: int, *, payload: bool = False
) -> EntryMetadata:
    """Read one entry's metadata: `HEAD T/ledger/{ledger_id}/entry/{entry_id}`.

    With `payload`, download the payload too by `GET`, up to the broker's maximum message size.

    Raises:
        AdminNotFound: the topic has no such ledger, or the ledger does not have the entry (yet or any more).
        AdminNotAllowed: the topic is partitioned or non-persistent.
    """
    name = persistent(topic, "entry")
    position = f"ledger/{whole_number('ledger_id', ledger_id)}/entry/{whole_number('entry_id', entry_id)}"
    return await send_entry(session, name, f"{name.rest_path}/{position}", payload=payload)


async def examine(
    session: Session,
    topic: Topic,
    offset: int = 1,
    *,
    initial_position: Literal["earliest", "latest"] = "latest",
    payload: bool = False,
) -> EntryMetadata:
    """Read the entry at an offset from either end, 1-based: `HEAD T/examinemessage`, `GET` with `payload=True`.

    From `earliest`, an offset past the end returns the last entry.

    Raises:
        AdminNotFound: the offset from `latest` is before the first entry.
        AdminPrecondition: the topic is empty.
    """
    name = persistent(topic, "examine")
    number = whole_number("offset", offset, least=1)
    params: dict[str, str | int] = {"initialPosition": initial_position, "messagePosition": number}
    return await send_entry(session, name, f"{name.rest_path}/examinemessage", payload=payload, params=params)


async def message_id_by_index(session: Session, topic: Topic, index: int) -> Position:
    """Return the position of the entry with a message index: `GET T/getMessageIdByIndex`.

    Raises:
        AdminPrecondition: the broker has no index (it needs `AppendIndexMetadataInterceptor` and
            `exposingBrokerEntryMetadataToClientEnabled`).
        AdminNotFound: the index is past the end.
    """
    name, params = persistent(topic, "message_id_by_index"), {"index": whole_number("index", index)}
    request = Request("GET", f"{name.rest_path}/getMessageIdByIndex", parsed(_position), params)
    return await send_unless_partitioned(session, name, request, "message_id_by_index")


async def message_id_by_time(session: Session, topic: Topic, timestamp_ms: int) -> Position:
    """Return the position of the first entry published at a time or later: `GET T/messageid/{timestamp}`.

    The time is in milliseconds since the epoch. Past the end, it is the position of the next message; for time 0 it is
    -1:-1, Java's `earliest`.

    Raises:
        AdminNotAllowed: the topic is partitioned or non-persistent.
    """
    name = persistent(topic, "message_id_by_time")
    path = f"{name.rest_path}/messageid/{whole_number('timestamp_ms', timestamp_ms)}"
    return await send_unless_partitioned(session, name, Request("GET", path, parsed(_position)), "message_id_by_time")


async def last_message_id(session: Session, topic: Topic) -> MessageId:
    """Return the id of the last message of a topic or partition: `GET T/lastMessageId`.

    Of a batch it is the id of its last message, of a chunked message that of its last chunk, without the first chunk.
    Its entry id is -1 if there is no message.

    Raises:
        AdminNotAllowed: the topic is partitioned or non-persistent.
    """
    name = persistent(topic, "last_message_id")

    def parse(data: Json) -> MessageId:
        last = MessageId(name.partition_index, data["ledgerId"], data["entryId"], data.get("batchIndex", -1))
        last.topic_name(str(name))
        return last

    request = Request("GET", f"{name.rest_path}/lastMessageId", parsed(parse))
    return await send_unless_partitioned(session, name, request, "last_message_id")


async def unload(session: Session, topic: Topic) -> None:
    """Unload a topic or all its partitions from their brokers; clients reconnect: `PUT T/unload`."""
    await session.send(Request("PUT", f"{TopicName.parse(topic).rest_path}/unload", nothing, idempotent=True))


async def trim(session: Session, topic: Topic) -> None:
    """Delete the ledgers, of all partitions, that no subscription or retention policy needs: `POST T/trim`."""
    await session.send(Request("POST", f"{persistent(topic, 'trim').rest_path}/trim", nothing, idempotent=True))


async def truncate(session: Session, topic: Topic) -> None:
    """Move every cursor to the end and delete all earlier ledgers, of all partitions: `DELETE T/truncate`."""
    await session.send(Request("DELETE", f"{persistent(topic, 'truncate').rest_path}/truncate", nothing))


async def terminate(session: Session, topic: Topic) -> Position:
    """Terminate the topic, so that nothing can be published, and return its last position: `POST T/terminate`.

    Raises:
        AdminNotAllowed: the topic is partitioned; use `terminate_partitions`.
    """
    name = persistent(topic, "terminate")
    await raise_if_partitioned(session, name, "terminate", "use terminate_partitions")
    return await session.send(Request("POST", f"{name.rest_path}/terminate", parsed(_position)))


async def terminate_partitions(session: Session, topic: Topic) -> Mapping[str, Position]:
    """Terminate every partition, and return their last positions by full name: `POST T/terminate/partitions`."""
    name = persistent(topic, "terminate_partitions")

    def parse(found: Json) -> dict[str, Position]:
        return {str(name.partition(index)): _position(found[str(index)]) for index in sorted(map(int, found))}

    return await session.send(Request("POST", f"{name.rest_path}/terminate/partitions", parsed(parse)))


async def compact(session: Session, topic: Topic) -> None:
    """Start compaction, of all partitions; `compaction_status` shows its progress: `PUT T/compaction`.

    Raises:
        AdminConflict: compaction is already running.
    """
    await session.send(Request("PUT", f"{persistent(topic, 'compact').rest_path}/compaction", nothing))


async def compaction_status(session: Session, topic: Topic) -> str:
    """Get `NOT_RUN`, `RUNNING`, `SUCCESS` or `ERROR`: `GET T/compaction`."""
    name = persistent(topic, "compaction_status")
    request = Request("GET", f"{name.rest_path}/compaction", parsed(lambda found: str(found["status"])))
    return await send_unless_partitioned(session, name, request, "compaction_status")


async def topics(
    session: Session, namespace: str, *, is_persistent: bool = True, include_system: bool = False
) -> tuple[str, ...]:
    """List the full names of a namespace's topics, with each partition: `GET {domain}/{namespace}`."""
    path = namespace_path(namespace, _domain(is_persistent))
    return await session.send(Request("GET", path, names, {"includeSystemTopic": include_system}))


async def partitioned_topics(session: Session, namespace: str, *, is_persistent: bool = True) -> tuple[str, ...]:
    """List the full names of a namespace's partitioned topics: `GET {domain}/{namespace}/partitioned`."""
    path = f"{namespace_path(namespace, _domain(is_persistent))}/partitioned"
    return await session.send(Request("GET", path, names))


def _domain(is_persistent: bool) -> str:
    return "persistent" if is_persistent else "non-persistent"


async def create_topic(session: Session, topic: Topic) -> None:
    """Create a topic without partitions: `PUT T`.

    Raises:
        AdminConflict: the topic exists, partitioned or not.
    """
    await session.send(Request("PUT", TopicName.parse(topic).rest_path, nothing))


async def delete_topic(session: Session, topic: Topic, *, force: bool = False) -> None:
    """Delete a topic or one partition: `DELETE T`.

    Raises:
        AdminPrecondition: the topic has subscriptions or producers; `force=True` closes them.
        AdminConflict: the topic is partitioned.
    """
    await session.send(Request("DELETE", TopicName.parse(topic).rest_path, nothing, params={"force": force}))


async def create_partitioned_topic(session: Session, topic: Topic, partitions: int) -> None:
    """Create a topic with a number of partitions, at least 1: `PUT T/partitions`."""
    count = whole_number("partitions", partitions, least=1)
    await session.send(Request("PUT", f"{TopicName.parse(topic).rest_path}/partitions", nothing, body=count))


async def update_partitions(session: Session, topic: Topic, partitions: int) -> None:
    """Increase the number of partitions; it cannot be decreased: `POST T/partitions`."""
    count = whole_number("partitions", partitions, least=1)
    await session.send(Request("POST", f"{TopicName.parse(topic).rest_path}/partitions", nothing, body=count))


async def delete_partitioned_topic(session: Session, topic: Topic, *, force: bool = False) -> None:
    """Delete a partitioned topic with all its partitions: `DELETE T/partitions`."""
    path = f"{TopicName.parse(topic).rest_path}/partitions"
    await session.send(Request("DELETE", path, nothing, params={"force": force}))


async def max_message_size(session: Session, topic: Topic) -> int | None:
    """Get the topic's maximum message size in bytes, None if not set: `GET T/maxMessageSize`."""
    path = f"{persistent(topic, 'max_message_size').rest_path}/maxMessageSize"
    return await session.send(Request("GET", path, optional(int)))


async def set_max_message_size(session: Session, topic: Topic, size: int | None) -> None:
    """Set the topic's maximum message size in bytes; None removes it: `POST` or `DELETE T/maxMessageSize`.

    A C++ client, and so a Python client, gets no error for a larger message: the broker closes the connection, and the
    client resends the message until `send()` raises `Timeout` after `send_timeout_millis`.
    """
    value = None if size is None else whole_number("size", size, most=MAX_INT)
    await set_policy(session, f"{persistent(topic, 'set_max_message_size').rest_path}/maxMessageSize", value)
