"""Operations of both clients: topics, subscriptions, namespaces, tenants, clusters, brokers and schemas.

Mirrors `org.apache.pulsar.client.admin.Topics`, `TopicPolicies`, `Namespaces`, `Tenants`, `Clusters`, `Brokers` and
`Schemas`. Each docstring has the REST path below `/admin/v2/`, in which `T` is
`persistent/{tenant}/{namespace}/{topic}`, `S` is `T/subscription/{subscription}`, and `N` is
`namespaces/{tenant}/{namespace}`. Topics are text or a `TopicName`, namespaces are `tenant/namespace`. Every operation
raises the `AdminError` of the response's status. Calls that move a cursor are sent once and never repeated. A policy
takes effect shortly after the broker's response.

An operation is a coroutine method that awaits nothing but `HttpSession.send`. `AsyncPulsarAdmin` awaits the coroutine;
`PulsarAdmin` runs it in one step over a transport that never suspends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, MethodType
from typing import Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, overload
from urllib.parse import quote

from pulsar_ext.errors import AdminError, AdminNotAllowed, AdminNotFound, AdminUnavailable, InvalidTopic, InvalidUse
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from ._core import Answer, Request, names, nothing, optional, parsed
from ._models import (
    BacklogAnalysis,
    ClusterInfo,
    EntryMetadata,
    InternalStats,
    Json,
    NamespacePolicies,
    PartitionedStats,
    Persistence,
    Retention,
    ScalableStats,
    SchemaInfo,
    TopicStats,
)
from ._session import HttpSession

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="Shell")
Topic = str | TopicName
End = Literal["earliest", "latest"]
BacklogQuotaKind = Literal["destination_storage", "message_age"]

_SERVER_ERROR: Final = 500
_NO_ENTRY: Final = ("LastConfirmedEntry is", "No such entry", "Incorrect parameter input")
_ONE_OF_THEM: Final = "name one of them"
_MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
"""Maximum values of a Java int and a Java long."""


def _whole_number(what: str, value: int, *, least: int = 0, most: int = _MAX_LONG) -> int:
    """Return a number after a check that it fits into a Java int or long."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidUse(f"{what} must be an int from {least} to {most}, got {value!r}")
    return value


def _namespace_path(namespace: str, root: str = "namespaces") -> str:
    """Return the path of a namespace, validated as part of a topic name."""
    path = TopicName.parse(f"persistent://{namespace}/-").rest_path
    return path.replace("persistent", root, 1).removesuffix("/-")


def _policy(namespace: str, policy: str) -> str:
    return f"{_namespace_path(namespace)}/{policy}"


def _tenant(name: str) -> str:
    """Return the encoded name of a tenant or a cluster, validated as part of a topic name."""
    return TopicName("persistent", name, "-", "-").rest_path.split("/")[1]


def _schemas_path(topic: Topic) -> str:
    return f"schemas/{TopicName.parse(topic).rest_path.partition('/')[2]}"


def _persistent(topic: Topic, operation: str) -> TopicName:
    """Parse the name of a persistent topic; for another one the broker would answer with status 500."""
    name = TopicName.parse(topic)
    if not name.is_persistent:
        raise _not_allowed(f"{operation} does not apply to {name}: a non-persistent topic stores nothing", name)
    return name


def _partitioned_error(name: TopicName, operation: str, count: int, instead: str) -> AdminNotAllowed:
    first, last = name.partition(0), name.partition(count - 1)
    return _not_allowed(
        f"{operation} does not apply to {name}, which is partitioned ({count} partitions, {first} to {last}); "
        f"{instead}",
        name,
    )


def _not_allowed(message: str, name: TopicName) -> AdminNotAllowed:
    return AdminNotAllowed(message, status=None, reason=message, method=None, path=name.rest_path)


def _position(message_id: Json) -> Position:
    """Parse the JSON of a message id; Java's `MessageId.earliest` is -1:-1."""
    return Position(message_id["ledgerId"], message_id["entryId"])


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
        "ledgerId": _whole_number("ledger_id", position.ledger_id),
        "entryId": _whole_number("entry_id", position.entry_id),
        "partitionIndex": -1,
        "batchIndex": _whole_number("batch_index", batch_index, least=-1, most=_MAX_INT),
        "excluded": excluded,
    }


class Shell:
    _session: HttpSession

    def _finish(self, operation: Coroutine[object, None, T]) -> object:
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


class Operations(Shell):
    """Operations of both clients, written once."""

    @Operation
    async def stats(self, topic: Topic, *, precise_backlog: bool = False) -> TopicStats:
        """Get the statistics of a topic or partition: `GET T/stats`.

        With `precise_backlog`, the broker counts the backlog exactly, holes included, instead of using its counters.
        """
        name, params = TopicName.parse(topic), {"getPreciseBacklog": precise_backlog}
        request = Request("GET", f"{name.rest_path}/stats", parsed(TopicStats.from_json), params)
        return await self._send_unless_partitioned(name, request, "stats", "use partitioned_stats")

    @Operation
    async def partitioned_stats(self, topic: Topic) -> PartitionedStats:
        """Get the statistics of a partitioned topic, summed and by partition: `GET T/partitioned-stats`."""
        path = f"{TopicName.parse(topic).rest_path}/partitioned-stats"
        return await self._send("GET", path, parsed(PartitionedStats.from_json), {"perPartition": True})

    @Operation
    async def internal_stats(self, topic: Topic) -> InternalStats:
        """Get the ledgers and cursors of a topic or partition: `GET T/internalStats`."""
        name = _persistent(topic, "internal_stats")
        request = Request("GET", f"{name.rest_path}/internalStats", parsed(InternalStats.from_json))
        return await self._send_unless_partitioned(name, request, "internal_stats", "use partitioned_internal_stats")

    @Operation
    async def partitioned_internal_stats(self, topic: Topic) -> Mapping[str, InternalStats]:
        """Get the ledgers and cursors of each partition, by its full name: `GET T/partitioned-internalStats`."""
        path = f"{_persistent(topic, 'partitioned_internal_stats').rest_path}/partitioned-internalStats"

        def parse(found: Json) -> dict[str, InternalStats]:
            return {key: InternalStats.from_json(value) for key, value in sorted(found["partitions"].items())}

        return await self._send("GET", path, parsed(parse))

    @Operation
    async def entry(self, topic: Topic, ledger_id: int, entry_id: int, *, payload: bool = False) -> EntryMetadata:
        """Read one entry's metadata: `HEAD T/ledger/{ledger_id}/entry/{entry_id}`.

        With `payload`, download the payload too by `GET`, up to the broker's maximum message size.
        """
        name = _persistent(topic, "entry")
        position = f"ledger/{_whole_number('ledger_id', ledger_id)}/entry/{_whole_number('entry_id', entry_id)}"
        return await self._send_entry(name, f"{name.rest_path}/{position}", payload=payload)

    @Operation
    async def examine(
        self, topic: Topic, offset: int = 1, *, initial_position: End = "latest", payload: bool = False
    ) -> EntryMetadata:
        """Read the entry at an offset from either end, 1-based: `HEAD T/examinemessage`, `GET` with `payload=True`.

        From `earliest`, an offset past the end returns the last entry.

        Raises:
            AdminNotFound: the offset from `latest` is before the first entry.
            AdminPrecondition: the topic is empty.
        """
        name = _persistent(topic, "examine")
        number = _whole_number("offset", offset, least=1)
        params: dict[str, str | int] = {"initialPosition": initial_position, "messagePosition": number}
        return await self._send_entry(name, f"{name.rest_path}/examinemessage", payload=payload, params=params)

    @Operation
    async def message_id_by_index(self, topic: Topic, index: int) -> Position:
        """Return the position of the entry with a message index: `GET T/getMessageIdByIndex`.

        Raises:
            AdminPrecondition: the broker has no index (it needs `AppendIndexMetadataInterceptor` and
                `exposingBrokerEntryMetadataToClientEnabled`).
            AdminNotFound: the index is past the end.
        """
        name, params = _persistent(topic, "message_id_by_index"), {"index": _whole_number("index", index)}
        request = Request("GET", f"{name.rest_path}/getMessageIdByIndex", parsed(_position), params)
        return await self._send_unless_partitioned(name, request, "message_id_by_index")

    @Operation
    async def message_id_by_time(self, topic: Topic, timestamp_ms: int) -> Position:
        """Return the position of the first entry published at a time or later: `GET T/messageid/{timestamp}`.

        The time is in milliseconds since the epoch. Past the end, it is the position of the next message; for time 0 it
        is -1:-1, Java's `earliest`.
        """
        name = _persistent(topic, "message_id_by_time")
        path = f"{name.rest_path}/messageid/{_whole_number('timestamp_ms', timestamp_ms)}"
        return await self._send_unless_partitioned(name, Request("GET", path, parsed(_position)), "message_id_by_time")

    @Operation
    async def last_message_id(self, topic: Topic) -> MessageId:
        """Return the id of the last message of a topic or partition: `GET T/lastMessageId`.

        Of a batch it is the id of its last message, of a chunked message that of its last chunk, without the first
        chunk. Its entry id is -1 if there is no message.
        """
        name = _persistent(topic, "last_message_id")

        def parse(data: Json) -> MessageId:
            last = MessageId(name.partition_index, data["ledgerId"], data["entryId"], data.get("batchIndex", -1))
            last.topic_name(str(name))
            return last

        request = Request("GET", f"{name.rest_path}/lastMessageId", parsed(parse))
        return await self._send_unless_partitioned(name, request, "last_message_id")

    @Operation
    async def unload(self, topic: Topic) -> None:
        """Unload a topic or all its partitions from their brokers; clients reconnect: `PUT T/unload`."""
        await self._send("PUT", f"{TopicName.parse(topic).rest_path}/unload", nothing, idempotent=True)

    @Operation
    async def trim(self, topic: Topic) -> None:
        """Delete the ledgers, of all partitions, that no subscription or retention policy needs: `POST T/trim`."""
        await self._send("POST", f"{_persistent(topic, 'trim').rest_path}/trim", nothing, idempotent=True)

    @Operation
    async def truncate(self, topic: Topic) -> None:
        """Move every cursor to the end and delete all earlier ledgers, of all partitions: `DELETE T/truncate`."""
        await self._send("DELETE", f"{_persistent(topic, 'truncate').rest_path}/truncate", nothing)

    @Operation
    async def terminate(self, topic: Topic) -> Position:
        """Terminate a topic, so that nothing can be published, and return its last position: `POST T/terminate`."""
        name = _persistent(topic, "terminate")
        await self._raise_if_partitioned(name, "terminate", "use terminate_partitions")
        return await self._send("POST", f"{name.rest_path}/terminate", parsed(_position))

    @Operation
    async def terminate_partitions(self, topic: Topic) -> Mapping[str, Position]:
        """Terminate every partition, and return their last positions by full name: `POST T/terminate/partitions`."""
        name = _persistent(topic, "terminate_partitions")

        def parse(found: Json) -> dict[str, Position]:
            return {str(name.partition(index)): _position(found[str(index)]) for index in sorted(map(int, found))}

        return await self._send("POST", f"{name.rest_path}/terminate/partitions", parsed(parse))

    @Operation
    async def compact(self, topic: Topic) -> None:
        """Start compaction, of all partitions; it must not be running, see `compaction_status`: `PUT T/compaction`."""
        await self._send("PUT", f"{_persistent(topic, 'compact').rest_path}/compaction", nothing)

    @Operation
    async def compaction_status(self, topic: Topic) -> str:
        """Get `NOT_RUN`, `RUNNING`, `SUCCESS` or `ERROR`: `GET T/compaction`."""
        name = _persistent(topic, "compaction_status")
        request = Request("GET", f"{name.rest_path}/compaction", parsed(lambda found: str(found["status"])))
        return await self._send_unless_partitioned(name, request, "compaction_status")

    @Operation
    async def topics(
        self, namespace: str, *, is_persistent: bool = True, include_system: bool = False
    ) -> tuple[str, ...]:
        """List the full names of a namespace's topics, with each partition: `GET {domain}/{namespace}`."""
        path = _namespace_path(namespace, "persistent" if is_persistent else "non-persistent")
        return await self._send("GET", path, names, {"includeSystemTopic": include_system})

    @Operation
    async def partitioned_topics(self, namespace: str, *, is_persistent: bool = True) -> tuple[str, ...]:
        """List the full names of a namespace's partitioned topics: `GET {domain}/{namespace}/partitioned`."""
        path = f"{_namespace_path(namespace, 'persistent' if is_persistent else 'non-persistent')}/partitioned"
        return await self._send("GET", path, names)

    @Operation
    async def scalable_topics(self, namespace: str) -> tuple[str, ...]:
        """List the full names of a namespace's scalable topics: `GET scalable/{namespace}`; empty before Pulsar 5."""
        try:
            found = await self._send("GET", _namespace_path(namespace, "scalable"), names)
        except AdminNotFound:
            return ()
        return tuple(f"topic://{one.removeprefix('topic://')}" for one in found)

    @Operation
    async def scalable_stats(self, topic: str) -> ScalableStats:
        """Get the statistics of a scalable topic, `topic://{namespace}/{name}`: `GET scalable/{…}/stats`.

        Raises:
            AdminError: the topic does not exist; `AdminNotFound` if the broker is older than Pulsar 5.
        """
        scheme, _, rest = topic.partition("://")
        if scheme != "topic":
            raise InvalidTopic(f"{topic!r} is not the name of a scalable topic, such as topic://public/default/orders")
        path = TopicName.parse(f"persistent://{rest}").rest_path.replace("persistent", "scalable", 1)
        return await self._send("GET", f"{path}/stats", parsed(ScalableStats.from_json))

    @Operation
    async def create_topic(self, topic: Topic) -> None:
        """Create a topic without partitions, which must not exist in any form: `PUT T`."""
        await self._send("PUT", TopicName.parse(topic).rest_path, nothing)

    @Operation
    async def delete_topic(self, topic: Topic, *, force: bool = False) -> None:
        """Delete a topic or one partition; `force` closes its subscriptions and producers first: `DELETE T`."""
        await self._send("DELETE", TopicName.parse(topic).rest_path, nothing, params={"force": force})

    @Operation
    async def partitions(self, topic: Topic) -> int:
        """Get the number of partitions, 0 for a topic without partitions, which must exist: `GET T/partitions`."""
        return await self._partitions(TopicName.parse(topic))

    @Operation
    async def create_partitioned_topic(self, topic: Topic, partitions: int) -> None:
        """Create a topic with a number of partitions, at least 1: `PUT T/partitions`."""
        count = _whole_number("partitions", partitions, least=1)
        await self._send("PUT", f"{TopicName.parse(topic).rest_path}/partitions", nothing, body=count)

    @Operation
    async def update_partitions(self, topic: Topic, partitions: int) -> None:
        """Increase the number of partitions; it cannot be decreased: `POST T/partitions`."""
        count = _whole_number("partitions", partitions, least=1)
        await self._send("POST", f"{TopicName.parse(topic).rest_path}/partitions", nothing, body=count)

    @Operation
    async def delete_partitioned_topic(self, topic: Topic, *, force: bool = False) -> None:
        """Delete a partitioned topic with all its partitions: `DELETE T/partitions`."""
        await self._send("DELETE", f"{TopicName.parse(topic).rest_path}/partitions", nothing, params={"force": force})

    @Operation
    async def max_message_size(self, topic: Topic) -> int | None:
        """Get the topic's maximum message size in bytes, None if not set: `GET T/maxMessageSize`."""
        path = f"{_persistent(topic, 'max_message_size').rest_path}/maxMessageSize"
        return await self._send("GET", path, optional(int))

    @Operation
    async def set_max_message_size(self, topic: Topic, size: int | None) -> None:
        """Set the topic's maximum message size in bytes; None removes it: `POST` or `DELETE T/maxMessageSize`.

        A C++ client, and so a Python client, gets no error for a larger message: the broker closes the connection, and
        the client resends the message until `send()` raises `Timeout` after `send_timeout_millis`.
        """
        value = None if size is None else _whole_number("size", size, most=_MAX_INT)
        await self._set_policy(f"{_persistent(topic, 'set_max_message_size').rest_path}/maxMessageSize", value)

    @Operation
    async def topic_deduplication(self, topic: Topic) -> bool | None:
        """Get if the broker deduplicates one topic, None if not set: `GET T/deduplicationEnabled`."""
        path = f"{_persistent(topic, 'topic_deduplication').rest_path}/deduplicationEnabled"
        return await self._send("GET", path, optional(bool))

    @Operation
    async def set_topic_deduplication(self, topic: Topic, value: bool | None) -> None:
        """Enable or disable deduplication of one topic: `POST` or `DELETE T/deduplicationEnabled`.

        None removes the policy, so that the namespace's applies, see `set_deduplication`.
        """
        await self._set_policy(f"{_persistent(topic, 'set_topic_deduplication').rest_path}/deduplicationEnabled", value)

    @Operation
    async def deduplication_snapshot_interval(self, topic: Topic) -> int | None:
        """Get the topic's number of entries between two snapshots of sequence ids, None if not set.

        `GET T/deduplicationSnapshotInterval`.
        """
        path = f"{_persistent(topic, 'deduplication_snapshot_interval').rest_path}/deduplicationSnapshotInterval"
        return await self._send("GET", path, optional(int))

    @Operation
    async def set_deduplication_snapshot_interval(self, topic: Topic, entries: int | None) -> None:
        """Set the topic's number of entries after which the broker stores sequence ids; None removes the policy.

        `POST` or `DELETE T/deduplicationSnapshotInterval`. After a crash, the broker reads the entries since the last
        snapshot again.
        """
        value = None if entries is None else _whole_number("entries", entries, least=1, most=_MAX_INT)
        name = _persistent(topic, "set_deduplication_snapshot_interval")
        await self._set_policy(f"{name.rest_path}/deduplicationSnapshotInterval", value)

    @Operation
    async def schema(self, topic: Topic, version: int | None = None) -> SchemaInfo:
        """Get a topic's schema version, by default the latest: `GET schemas/{tenant}/{namespace}/{topic}/schema`."""
        path = f"{_schemas_path(topic)}/schema"
        if version is not None:
            path += f"/{version}"
        return await self._send("GET", path, parsed(SchemaInfo.from_json))

    @Operation
    async def schemas(self, topic: Topic) -> Mapping[int, SchemaInfo]:
        """Get all schema versions of a topic by their numbers: `GET schemas/{…}/schemas`.

        The result is empty without a schema and after its deletion; later versions have higher numbers.
        """
        parse = parsed(lambda found: list(map(SchemaInfo.from_json, found["getSchemaResponses"])))
        return {one.version: one for one in await self._send("GET", f"{_schemas_path(topic)}/schemas", parse)}

    @Operation
    async def upload_schema(
        self, topic: Topic, kind: str, data: str, properties: Mapping[str, str] | None = None
    ) -> int:
        """Upload a schema of a topic, unless it exists, and return its version: `POST schemas/{…}/schema`.

        The `kind` is `AVRO`, `JSON`, `KEY_VALUE`, …, and `data` the definition as text; the properties of a `KEY_VALUE`
        schema describe its parts.

        Raises:
            AdminConflict: it is incompatible with the topic's schema; the error has the broker's reason.
        """
        body = {"type": kind, "schema": data, "properties": dict(properties or {})}
        parse = parsed(lambda uploaded: int(uploaded["version"]["version"]))
        return await self._send("POST", f"{_schemas_path(topic)}/schema", parse, body=body, idempotent=True)

    @Operation
    async def schema_compatibility_strategy(self, namespace: str) -> str:
        """Get the compatibility check for new schemas: `GET N/schemaCompatibilityStrategy`."""
        return await self._send("GET", _policy(namespace, "schemaCompatibilityStrategy"), parsed(str))

    @Operation
    async def set_schema_compatibility_strategy(self, namespace: str, value: str) -> None:
        """Set the compatibility check for new schemas, as `FULL_TRANSITIVE`: `PUT N/schemaCompatibilityStrategy`."""
        await self._send("PUT", _policy(namespace, "schemaCompatibilityStrategy"), nothing, body=value, idempotent=True)

    @Operation
    async def set_schema_validation_enforced(self, namespace: str, value: bool) -> None:
        """Set if topics with a schema reject producers without one: `POST N/schemaValidationEnforced`."""
        await self._send("POST", _policy(namespace, "schemaValidationEnforced"), nothing, body=value, idempotent=True)

    @Operation
    async def subscriptions(self, topic: Topic) -> tuple[str, ...]:
        """List the subscriptions, of a partitioned topic those of its partitions: `GET T/subscriptions`."""
        return await self._send("GET", f"{TopicName.parse(topic).rest_path}/subscriptions", names)

    @Operation
    async def create_subscription(self, topic: Topic, subscription: str, position: Position | End = "latest") -> None:
        """Create a durable subscription, of a partitioned topic on every partition: `PUT S`.

        With `earliest` or `latest`, a broker with automatic topic creation also creates a missing topic.
        """
        name = _persistent(topic, "create_subscription")
        body = cursor_body(position, excluded=False)
        if isinstance(position, Position):
            await self._raise_if_partitioned(name, "create_subscription at a position")
            await self._raise_if_beyond_end(name, position, "create_subscription")
        await self._send("PUT", subscription_path(name, subscription), nothing, body=body)

    @Operation
    async def delete_subscription(self, topic: Topic, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription, of all partitions; `force` disconnects its consumers: `DELETE S`."""
        path = subscription_path(TopicName.parse(topic), subscription)
        await self._send("DELETE", path, nothing, params={"force": force})

    @Operation
    async def skip_entries(self, topic: Topic, subscription: str, count: int) -> None:
        """Move the cursor over `count` unacknowledged entries (not messages): `POST S/skip/{count}`.

        A batch is one entry, and so is each chunk of a chunked message. 0 does nothing; a count above the backlog moves
        to the end. Consumers stay connected, and messages that they have prefetched are still delivered.
        """
        name = _persistent(topic, "skip_entries")
        path = f"{subscription_path(name, subscription)}/skip/{_whole_number('count', count, most=_MAX_INT)}"
        await self._raise_if_partitioned(name, "skip_entries")
        await self._send("POST", path, nothing)

    @Operation
    async def skip_all(self, topic: Topic, subscription: str) -> None:
        """Move the cursor to the end, of a partitioned topic on every partition: `POST S/skip_all`."""
        name = _persistent(topic, "skip_all")
        await self._send("POST", f"{subscription_path(name, subscription)}/skip_all", nothing)

    @Operation
    async def reset_cursor(
        self,
        topic: Topic,
        subscription: str,
        position: Position | End,
        *,
        excluded: bool = False,
        batch_index: int = -1,
    ) -> None:
        """Move the cursor so that the next message is at a position: `POST S/resetcursor`.

        Consumers are disconnected and reconnect; acknowledgements after the position are discarded. If `excluded`, the
        next message is after the entry; with a `batch_index`, it is that message of the entry's batch, which needs
        `acknowledgmentAtBatchIndexLevelEnabled` on the broker, else the whole batch is delivered.
        """
        name = _persistent(topic, "reset_cursor")
        path = f"{subscription_path(name, subscription)}/resetcursor"
        body = cursor_body(position, excluded=excluded, batch_index=batch_index)
        await self._raise_if_partitioned(name, "reset_cursor", "name one of them, or use reset_cursor_to_time")
        if isinstance(position, Position):
            await self._raise_if_beyond_end(name, position, "reset_cursor")
        await self._send("POST", path, nothing, body=body)

    @Operation
    async def reset_cursor_to_time(self, topic: Topic, subscription: str, timestamp_ms: int) -> None:
        """Move the cursor to the first entry published at a time or later: `POST S/resetcursor/{timestamp}`.

        The time is in milliseconds since the epoch. Of a partitioned topic, the broker moves the cursor of every
        partition.
        """
        name = _persistent(topic, "reset_cursor_to_time")
        path = f"{subscription_path(name, subscription)}/resetcursor/{_whole_number('timestamp_ms', timestamp_ms)}"
        await self._send("POST", path, nothing)

    @Operation
    async def expire_messages(
        self, topic: Topic, subscription: str, position: Position, *, excluded: bool = False, look_first: bool = True
    ) -> None:
        """Acknowledge everything up to a position, unless `excluded` with its entry: `POST S/expireMessages`.

        The broker does it in the background and may not have finished when this returns. `look_first` checks by two
        more requests that the topic is not partitioned and has the entry.

        Raises:
            AdminConflict: another expiry is running, or there is nothing to expire.
        """
        name = _persistent(topic, "expire_messages")
        if not isinstance(position, Position):
            raise InvalidUse(f"Expected a Position, got {position!r}")
        path = f"{subscription_path(name, subscription)}/expireMessages"
        body = cursor_body(position, excluded=excluded)
        if look_first:
            await self._raise_if_partitioned(name, "expire_messages")
            await self._raise_if_beyond_end(name, position, "expire_messages")
        await self._send("POST", path, nothing, body=body)

    @Operation
    async def expire_messages_older_than(self, topic: Topic, subscription: str, seconds: int) -> None:
        """Acknowledge everything published more than some seconds ago: `POST S/expireMessages/{seconds}`.

        The broker does it in the background and may not have finished when this returns. It stops before the first
        entry that is younger.

        Raises:
            AdminConflict: another expiry is running, or there is nothing to expire.
        """
        name = _persistent(topic, "expire_messages_older_than")
        age = _whole_number("seconds", seconds, least=1, most=_MAX_INT)
        path = f"{subscription_path(name, subscription)}/expireMessages/{age}"
        await self._raise_if_partitioned(name, "expire_messages_older_than")
        await self._send("POST", path, nothing)

    @Operation
    async def peek(self, topic: Topic, subscription: str, position: int = 1, *, payload: bool = False) -> EntryMetadata:
        """Read the n-th entry, 1-based, after the cursor's mark-delete position: `HEAD S/position/{n}`.

        The broker would create a missing subscription, so its existence is checked first.
        """
        name = _persistent(topic, "peek")
        number = _whole_number("position", position, least=1, most=_MAX_INT)
        path = f"{subscription_path(name, subscription)}/position/{number}"
        await self._raise_if_partitioned(name, "peek")
        if subscription not in await self._send("GET", f"{name.rest_path}/subscriptions", names):
            raise AdminNotFound(
                f"Subscription {subscription!r} not found on {name}",
                status=404,
                reason="Subscription not found",
                method="GET",
                path=path,
            )
        return await self._send_entry(name, path, payload=payload)

    @Operation
    async def analyze_backlog(self, topic: Topic, subscription: str, start: Position | None = None) -> BacklogAnalysis:
        """Count the entries and messages of the backlog on the broker: `POST S/analyzeBacklog`.

        The broker reads the whole backlog from `start`, by default the first unacknowledged entry, which takes time; it
        stops at `subscriptionBacklogScanMaxEntries` or `…MaxTimeMs`.
        """
        name = _persistent(topic, "analyze_backlog")
        await self._raise_if_partitioned(name, "analyze_backlog")
        path = f"{subscription_path(name, subscription)}/analyzeBacklog"
        body = None if start is None else cursor_body(start, excluded=False)
        return await self._send("POST", path, parsed(BacklogAnalysis.from_json), body=body, idempotent=True)

    @Operation
    async def tenants(self) -> tuple[str, ...]:
        """List the tenants: `GET tenants`."""
        return await self._send("GET", "tenants", names)

    @Operation
    async def create_tenant(
        self, tenant: str, *, allowed_clusters: Sequence[str] | None = None, admin_roles: Sequence[str] = ()
    ) -> None:
        """Create a tenant: `PUT tenants/{tenant}`.

        Its namespaces may use the `allowed_clusters`, by default all current ones. The `admin_roles` may administer it,
        in addition to superusers.
        """
        path = f"tenants/{_tenant(tenant)}"
        if allowed_clusters is None:
            allowed_clusters = await self._send("GET", "clusters", names)
        body = {"allowedClusters": sorted(allowed_clusters), "adminRoles": sorted(admin_roles)}
        await self._send("PUT", path, nothing, body=body)

    @Operation
    async def delete_tenant(self, tenant: str, *, force: bool = False) -> None:
        """Delete a tenant: `DELETE tenants/{tenant}`; `force` needs `forceDeleteTenantAllowed` on the broker."""
        await self._send("DELETE", f"tenants/{_tenant(tenant)}", nothing, params={"force": force})

    @Operation
    async def namespaces(self, tenant: str) -> tuple[str, ...]:
        """List a tenant's namespaces as `tenant/namespace`: `GET namespaces/{tenant}`."""
        return await self._send("GET", f"namespaces/{_tenant(tenant)}", names)

    @Operation
    async def create_namespace(self, namespace: str, *, bundles: int | None = None) -> None:
        """Create a new namespace, by default with the broker's number of bundles: `PUT N`."""
        body = None if bundles is None else {"bundles": {"numBundles": _whole_number("bundles", bundles, least=1)}}
        await self._send("PUT", _namespace_path(namespace), nothing, body=body)

    @Operation
    async def delete_namespace(self, namespace: str, *, force: bool = False) -> None:
        """Delete an empty namespace; `force` with its topics, by `forceDeleteNamespaceAllowed`: `DELETE N`."""
        await self._send("DELETE", _namespace_path(namespace), nothing, params={"force": force})

    @Operation
    async def policies(self, namespace: str) -> NamespacePolicies:
        """Get all policies of a namespace: `GET N`."""
        return await self._send("GET", _namespace_path(namespace), parsed(NamespacePolicies.from_json))

    @Operation
    async def retention(self, namespace: str) -> Retention | None:
        """Get the retention of acknowledged messages, None if not set: `GET N/retention`."""
        return await self._send("GET", _policy(namespace, "retention"), optional(Retention.from_json))

    @Operation
    async def set_retention(self, namespace: str, value: Retention | None) -> None:
        """Set the retention of acknowledged messages; None removes the policy: `POST` or `DELETE N/retention`."""
        await self._set_policy(_policy(namespace, "retention"), value and value.to_json())

    @Operation
    async def deduplication(self, namespace: str) -> bool | None:
        """Get if the broker deduplicates messages, None if not set: `GET N/deduplication`."""
        return await self._send("GET", _policy(namespace, "deduplication"), optional(bool))

    @Operation
    async def set_deduplication(self, namespace: str, value: bool | None) -> None:
        """Enable or disable deduplication; None removes the policy: `POST` or `DELETE N/deduplication`."""
        await self._set_policy(_policy(namespace, "deduplication"), value)

    @Operation
    async def persistence(self, namespace: str) -> Persistence | None:
        """Get the replication of entries, None if not set: `GET N/persistence`."""
        return await self._send("GET", _policy(namespace, "persistence"), optional(Persistence.from_json))

    @Operation
    async def set_persistence(self, namespace: str, value: Persistence | None) -> None:
        """Set the replication of entries; None removes the policy: `POST` or `DELETE N/persistence`."""
        await self._set_policy(_policy(namespace, "persistence"), value and value.to_json())

    @Operation
    async def message_ttl(self, namespace: str) -> int | None:
        """Get the time to live of unacknowledged messages in seconds, None if not set: `GET N/messageTTL`."""
        return await self._send("GET", _policy(namespace, "messageTTL"), optional(int))

    @Operation
    async def set_message_ttl(self, namespace: str, seconds: int | None) -> None:
        """Set the time to live of unacknowledged messages; None removes the policy: `POST` or `DELETE N/messageTTL`."""
        value = None if seconds is None else _whole_number("seconds", seconds, most=_MAX_INT)
        await self._set_policy(_policy(namespace, "messageTTL"), value)

    @Operation
    async def set_backlog_quota(
        self,
        namespace: str,
        *,
        limit_bytes: int = -1,
        limit_seconds: int = -1,
        policy: Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"],
        kind: BacklogQuotaKind = "destination_storage",
    ) -> None:
        """Set the policy for a backlog above a size in bytes or an age in seconds: `POST N/backlogQuota`."""
        path, params = _policy(namespace, "backlogQuota"), {"backlogQuotaType": kind}
        body = {"limitSize": limit_bytes, "limitTime": limit_seconds, "policy": policy}
        await self._send("POST", path, nothing, params, body, idempotent=True)

    @Operation
    async def remove_backlog_quota(self, namespace: str, *, kind: BacklogQuotaKind = "destination_storage") -> None:
        """Remove a backlog quota: `DELETE N/backlogQuota`."""
        path, params = _policy(namespace, "backlogQuota"), {"backlogQuotaType": kind}
        await self._send("DELETE", path, nothing, params, idempotent=True)

    @Operation
    async def clusters(self) -> tuple[str, ...]:
        """List the clusters: `GET clusters`."""
        return await self._send("GET", "clusters", names)

    @Operation
    async def cluster(self, name: str) -> ClusterInfo:
        """Get the service URLs of a cluster: `GET clusters/{name}`."""
        return await self._send("GET", f"clusters/{_tenant(name)}", parsed(ClusterInfo.from_json))

    @Operation
    async def broker_configuration(self) -> Mapping[str, str]:
        """Get all settings of the broker that answers, as strings: `GET brokers/configuration/runtime`."""
        found: Mapping[str, str] = await self._send("GET", "brokers/configuration/runtime", Answer.json)
        return found

    @Operation
    async def broker_version(self) -> str:
        """Get the version of the broker that answers: `GET brokers/version`."""
        return await self._send("GET", "brokers/version", Answer.text)

    @Operation
    async def health(self) -> bool:
        """Check if the broker can produce and consume a message; False without an answer: `GET brokers/health`."""
        try:
            return await self._send("GET", "brokers/health", lambda answer: answer.text() == "ok")
        except AdminUnavailable:
            return False

    async def _send(
        self,
        method: str,
        path: str,
        parse: Callable[[Answer], T],
        params: Mapping[str, str | int | bool | None] = MappingProxyType({}),
        body: object = None,
        idempotent: bool | None = None,
    ) -> T:
        return await self._session.send(Request(method, path, parse, params, body, idempotent))

    async def _partitions(self, name: TopicName) -> int:
        return await self._send("GET", f"{name.rest_path}/partitions", parsed(lambda found: int(found["partitions"])))

    async def _set_policy(self, path: str, value: object) -> None:
        """Set a policy; None removes it, so that the namespace's or the broker's setting applies again."""
        method = "DELETE" if value is None else "POST"
        await self._send(method, path, nothing, body=value, idempotent=True)

    async def _raise_if_partitioned(self, name: TopicName, operation: str, instead: str = _ONE_OF_THEM) -> None:
        """Raise `AdminNotAllowed` if the topic is partitioned, before a change is sent."""
        if not name.is_partition and (count := await self._partitions(name)):
            raise _partitioned_error(name, operation, count, instead)

    async def _raise_if_beyond_end(self, name: TopicName, position: Position, operation: str) -> None:
        """Raise `AdminNotFound` for a position beyond the end: a cursor there would lose later messages."""
        path = f"{name.rest_path}/internalStats"
        stats = await self._send("GET", path, parsed(InternalStats.from_json))
        # A full ledger is listed with its number of entries until the next one is open.
        end = Position(stats.ledgers[-1].ledger_id, max(stats.current_ledger_entries, stats.ledgers[-1].entries))
        if position > end:
            reason = f"{position} is beyond the end of {name}, {end}"
            message = f"{operation}: {reason}; nothing was changed"
            raise AdminNotFound(message, status=None, reason=reason, method=None, path=path)

    async def _send_unless_partitioned(
        self, name: TopicName, request: Request[T], operation: str, instead: str = _ONE_OF_THEM
    ) -> T:
        """Send a read request; raise `AdminNotAllowed` if it fails, in one of several ways, on a partitioned topic."""
        try:
            return await self._session.send(request)
        except (AdminNotFound, AdminNotAllowed) as error:
            if name.is_partition:
                raise
            try:
                count = await self._partitions(name)
            except AdminNotFound:
                raise error from None
            if not count:
                raise
            raise _partitioned_error(name, operation, count, instead) from error

    async def _send_entry(
        self, name: TopicName, path: str, *, payload: bool, params: Mapping[str, str | int] | None = None
    ) -> EntryMetadata:
        """Read an entry's headers, by HEAD unless the payload is wanted, which may be megabytes."""

        def parse(answer: Answer) -> EntryMetadata:
            return EntryMetadata.from_headers(answer.headers, answer.body if payload else None)

        get = Request("GET", path, parse, params or {})
        try:
            if not payload:
                try:
                    return await self._session.send(replace(get, method="HEAD"))
                except AdminError as error:
                    if error.status is None or error.retriable:
                        raise
            # The response to a failed HEAD has no reason, so GET repeats the request.
            return await self._send_unless_partitioned(name, get, "reading an entry")
        except AdminError as error:
            # After the last entry of the topic or of a closed ledger, the broker answers 500 instead of 404.
            if error.status == _SERVER_ERROR and any(words in error.reason for words in _NO_ENTRY):
                raise AdminNotFound(error.message, **error.details) from error
            raise
