"""Operations on topics: statistics, entries, positions, life cycle, policies.

Mirrors `org.apache.pulsar.client.admin.Topics` and `TopicPolicies`; each docstring names the REST path below
`/admin/v2/`, where `T` stands for `persistent/{tenant}/{namespace}/{topic}`. Every operation takes a topic as text or
as `TopicName` and raises an `AdminError` of the kind that the status asks for. A policy is in effect a moment after the
broker has answered.
"""

# ruff: noqa: D417  # the session is not the caller's to give, so no docstring lists it
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pulsar_ext.errors import AdminError, AdminNotFound
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from ._core import (
    MAX_INT,
    Answer,
    Request,
    Session,
    explain_parent,
    nothing,
    optional,
    persistent,
    refuse_parent,
    set_policy,
    whole_number,
)
from ._models import EntryMetadata, InternalStats, PartitionedStats, TopicStats

if TYPE_CHECKING:
    from collections.abc import Mapping


T = TypeVar("T")
Topic = str | TopicName

_SERVER_ERROR = 500
_NO_ENTRY = ("LastConfirmedEntry is", "No such entry", "Incorrect parameter input")


def read_position(answer: Answer) -> Position:
    """Read the JSON of a message id; Java's `MessageId.earliest` is -1:-1."""
    data = answer.json()
    return Position(data["ledgerId"], data["entryId"])


def _by_name(answer: Answer) -> tuple[str, ...]:
    return tuple(sorted(answer.json()))


async def stats(session: Session, topic: Topic, *, precise_backlog: bool = False) -> TopicStats:
    """Get a topic's or one partition's statistics: `GET T/stats`.

    Args:
        topic: not a partitioned parent, for which there is `partitioned_stats`.
        precise_backlog: whether the broker counts the backlog exactly, holes included, instead of from counters.

    Raises:
        AdminNotAllowed: the topic is a partitioned parent.
    """
    name = TopicName.parse(topic)
    request = Request(
        "GET",
        f"{name.rest_path}/stats",
        lambda answer: TopicStats.from_json(answer.json()),
        params={"getPreciseBacklog": precise_backlog},
    )
    return await explain_parent(session, name, request, "stats", "use partitioned_stats")


async def partitioned_stats(session: Session, topic: Topic) -> PartitionedStats:
    """Get a partitioned topic's statistics, summed and by partition: `GET T/partitioned-stats`."""
    name = TopicName.parse(topic)
    return await session.send(
        Request(
            "GET",
            f"{name.rest_path}/partitioned-stats",
            lambda answer: PartitionedStats.from_json(answer.json()),
            params={"perPartition": True},
        )
    )


async def internal_stats(session: Session, topic: Topic) -> InternalStats:
    """Get the ledgers and cursors of a topic or one partition: `GET T/internalStats`.

    Raises:
        AdminNotAllowed: the topic is a partitioned parent, or not persistent.
    """
    name = persistent(topic, "internal_stats")
    request = Request("GET", f"{name.rest_path}/internalStats", lambda answer: InternalStats.from_json(answer.json()))
    return await explain_parent(session, name, request, "internal_stats", "use partitioned_internal_stats")


async def partitioned_internal_stats(session: Session, topic: Topic) -> Mapping[str, InternalStats]:
    """Get the ledgers and cursors of each partition, by its full name: `GET T/partitioned-internalStats`."""
    name = persistent(topic, "partitioned_internal_stats")

    def parse(answer: Answer) -> dict[str, InternalStats]:
        return {key: InternalStats.from_json(value) for key, value in sorted(answer.json()["partitions"].items())}

    return await session.send(Request("GET", f"{name.rest_path}/partitioned-internalStats", parse))


async def send_entry(
    session: Session, name: TopicName, path: str, params: Mapping[str, Any], *, payload: bool
) -> EntryMetadata:
    """Read an entry's headers, by HEAD unless the payload is wanted: the body may be megabytes."""

    def parse(answer: Answer) -> EntryMetadata:
        return EntryMetadata.from_headers(answer.headers, answer.body if payload else None)

    try:
        if not payload:
            try:
                return await session.send(Request("HEAD", path, parse, params=params))
            except AdminError as error:
                if error.status is None or error.retriable:
                    raise
        # The answer to a failed HEAD has no reason, so ask again in a way that has.
        return await explain_parent(session, name, Request("GET", path, parse, params=params), "reading an entry")
    except AdminError as error:
        # Beyond the last entry of the topic or of a closed ledger, the broker answers 500 instead of 404.
        if error.status == _SERVER_ERROR and any(words in error.reason for words in _NO_ENTRY):
            raise AdminNotFound(error.message, **error.details) from error
        raise


async def entry(
    session: Session, topic: Topic, ledger_id: int, entry_id: int, *, payload: bool = False
) -> EntryMetadata:
    """Read one entry's metadata: `HEAD T/ledger/{ledger_id}/entry/{entry_id}`, `GET` with `payload=True`.

    Args:
        topic: not a partitioned parent.
        ledger_id: 0 or more.
        entry_id: 0 or more.
        payload: whether to download the body too, up to the broker's largest message.

    Raises:
        AdminNotFound: no such ledger belongs to the topic, or it has no such entry (yet, or any more).
    """
    name = persistent(topic, "entry")
    position = f"ledger/{whole_number('ledger_id', ledger_id)}/entry/{whole_number('entry_id', entry_id)}"
    return await send_entry(session, name, f"{name.rest_path}/{position}", {}, payload=payload)


async def examine(
    session: Session,
    topic: Topic,
    offset: int = 1,
    *,
    initial_position: Literal["earliest", "latest"] = "latest",
    payload: bool = False,
) -> EntryMetadata:
    """Read the entry at an offset from either end, 1-based: `HEAD T/examinemessage`, `GET` with `payload=True`.

    From `earliest`, an offset past the end gives the last entry.

    Raises:
        AdminNotFound: counted from `latest`, the offset passes the beginning.
        AdminPrecondition: the topic is empty.
    """
    name = persistent(topic, "examine")
    params = {"initialPosition": initial_position, "messagePosition": whole_number("offset", offset, least=1)}
    return await send_entry(session, name, f"{name.rest_path}/examinemessage", params, payload=payload)


async def message_id_by_index(session: Session, topic: Topic, index: int) -> Position:
    """Find the entry that holds the message of an index: `GET T/getMessageIdByIndex`.

    Raises:
        AdminPrecondition: the broker keeps no index (`AppendIndexMetadataInterceptor`, and
            `exposingBrokerEntryMetadataToClientEnabled`).
        AdminNotFound: the index is past the end.
    """
    name = persistent(topic, "message_id_by_index")
    request = Request(
        "GET",
        f"{name.rest_path}/getMessageIdByIndex",
        read_position,
        params={"index": whole_number("index", index)},
    )
    return await explain_parent(session, name, request, "message_id_by_index")


async def message_id_by_time(session: Session, topic: Topic, timestamp_ms: int) -> Position:
    """Find the first entry that was published at a time or later: `GET T/messageid/{timestamp}`.

    Past the end it is the position that the next message will get, and for time 0 it is -1:-1, Java's `earliest`.

    Args:
        topic: not a partitioned parent.
        timestamp_ms: milliseconds since the epoch.
    """
    name = persistent(topic, "message_id_by_time")
    path = f"{name.rest_path}/messageid/{whole_number('timestamp_ms', timestamp_ms)}"
    return await explain_parent(session, name, Request("GET", path, read_position), "message_id_by_time")


async def last_message_id(session: Session, topic: Topic) -> MessageId:
    """Give the id of a topic's, or a partition's, last message: `GET T/lastMessageId`.

    Of a batch it is the id of its last message, of a chunked message that of its last chunk, as bare numbers. Where
    there is no message the entry is -1.

    Args:
        topic: not a partitioned parent.
    """
    name = persistent(topic, "last_message_id")

    def parse(answer: Answer) -> MessageId:
        data = answer.json()
        last = MessageId(name.partition_index, data["ledgerId"], data["entryId"], data.get("batchIndex", -1))
        last.topic_name(str(name))
        return last

    return await explain_parent(
        session, name, Request("GET", f"{name.rest_path}/lastMessageId", parse), "last_message_id"
    )


async def unload(session: Session, topic: Topic) -> None:
    """Have the broker close the topic, all partitions of a parent; clients reconnect: `PUT T/unload`."""
    await session.send(Request("PUT", f"{TopicName.parse(topic).rest_path}/unload", nothing, idempotent=True))


async def trim(session: Session, topic: Topic) -> None:
    """Delete ledgers that every subscription and the retention allow, of all partitions: `POST T/trim`."""
    await session.send(Request("POST", f"{persistent(topic, 'trim').rest_path}/trim", nothing, idempotent=True))


async def truncate(session: Session, topic: Topic) -> None:
    """Move every cursor to the end and delete what lies before it, of all partitions: `DELETE T/truncate`."""
    await session.send(Request("DELETE", f"{persistent(topic, 'truncate').rest_path}/truncate", nothing))


async def terminate(session: Session, topic: Topic) -> Position:
    """End the topic, so that nothing can be published any more, and get its last entry: `POST T/terminate`.

    Raises:
        AdminNotAllowed: the topic is a partitioned parent; `terminate_partitions` is for those.
    """
    name = persistent(topic, "terminate")
    await refuse_parent(session, name, "terminate", "use terminate_partitions")
    return await session.send(Request("POST", f"{name.rest_path}/terminate", read_position))


async def terminate_partitions(session: Session, topic: Topic) -> Mapping[str, Position]:
    """End every partition of a topic, and get their last entries by full name: `POST T/terminate/partitions`."""
    name = persistent(topic, "terminate_partitions")

    def parse(answer: Answer) -> dict[str, Position]:
        found = sorted((int(index), value) for index, value in answer.json().items())
        return {str(name.partition(index)): Position(value["ledgerId"], value["entryId"]) for index, value in found}

    return await session.send(Request("POST", f"{name.rest_path}/terminate/partitions", parse))


async def compact(session: Session, topic: Topic) -> None:
    """Start a compaction, of all partitions; `compaction_status` shows when it is done: `PUT T/compaction`.

    Raises:
        AdminConflict: one is running already.
    """
    await session.send(Request("PUT", f"{persistent(topic, 'compact').rest_path}/compaction", nothing))


async def compaction_status(session: Session, topic: Topic) -> str:
    """Get `NOT_RUN`, `RUNNING`, `SUCCESS` or `ERROR`: `GET T/compaction`."""
    name = persistent(topic, "compaction_status")
    request: Request[str] = Request("GET", f"{name.rest_path}/compaction", lambda answer: answer.json()["status"])
    return await explain_parent(session, name, request, "compaction_status")


async def topics(
    session: Session, namespace: str, *, is_persistent: bool = True, include_system: bool = False
) -> tuple[str, ...]:
    """List a namespace's topics, partitions each by itself, by full name: `GET {domain}/{namespace}`."""
    path = _namespace_path(namespace, is_persistent=is_persistent)
    return await session.send(Request("GET", path, _by_name, params={"includeSystemTopic": include_system}))


async def partitioned_topics(session: Session, namespace: str, *, is_persistent: bool = True) -> tuple[str, ...]:
    """List a namespace's partitioned parents by full name: `GET {domain}/{namespace}/partitioned`."""
    path = _namespace_path(namespace, is_persistent=is_persistent)
    return await session.send(Request("GET", f"{path}/partitioned", _by_name))


def _namespace_path(namespace: str, *, is_persistent: bool) -> str:
    # The name is validated as that of any topic in it.
    path = TopicName.parse(f"{'persistent' if is_persistent else 'non-persistent'}://{namespace}/-").rest_path
    return path.removesuffix("/-")


async def create_topic(session: Session, topic: Topic) -> None:
    """Create a topic without partitions: `PUT T`.

    Raises:
        AdminConflict: it exists, partitioned or not.
    """
    await session.send(Request("PUT", TopicName.parse(topic).rest_path, nothing))


async def delete_topic(session: Session, topic: Topic, *, force: bool = False) -> None:
    """Delete a topic or one partition: `DELETE T`.

    Raises:
        AdminPrecondition: it has subscriptions or producers; `force=True` closes them.
        AdminConflict: the topic is a partitioned parent.
    """
    await session.send(Request("DELETE", TopicName.parse(topic).rest_path, nothing, params={"force": force}))


async def create_partitioned_topic(session: Session, topic: Topic, partitions: int) -> None:
    """Create a topic of so many partitions, at least 1: `PUT T/partitions`."""
    count = whole_number("partitions", partitions, least=1)
    await session.send(Request("PUT", f"{TopicName.parse(topic).rest_path}/partitions", nothing, body=count))


async def update_partitions(session: Session, topic: Topic, partitions: int) -> None:
    """Raise the number of partitions; it can never be lowered: `POST T/partitions`."""
    count = whole_number("partitions", partitions, least=1)
    await session.send(Request("POST", f"{TopicName.parse(topic).rest_path}/partitions", nothing, body=count))


async def delete_partitioned_topic(session: Session, topic: Topic, *, force: bool = False) -> None:
    """Delete a partitioned topic with all its partitions: `DELETE T/partitions`."""
    path = f"{TopicName.parse(topic).rest_path}/partitions"
    await session.send(Request("DELETE", path, nothing, params={"force": force}))


async def max_message_size(session: Session, topic: Topic) -> int | None:
    """Get above how many bytes the topic takes no message, None if not set: `GET T/maxMessageSize`."""
    path = f"{persistent(topic, 'max_message_size').rest_path}/maxMessageSize"
    return await session.send(Request("GET", path, optional(int)))


async def set_max_message_size(session: Session, topic: Topic, size: int | None) -> None:
    """Set above how many bytes the topic takes no message; None removes it: `POST` or `DELETE T/maxMessageSize`.

    A C++ client, and so a Python one, does not hear why such a message is refused: its connection ends, and it sends
    the message again. `send()` raises `Timeout` after `send_timeout_millis`.
    """
    value = None if size is None else whole_number("size", size, most=MAX_INT)
    await set_policy(session, f"{persistent(topic, 'set_max_message_size').rest_path}/maxMessageSize", value)
