"""Operations on tenants, namespaces, clusters, brokers and schemas.

Mirrors `org.apache.pulsar.client.admin.Tenants`, `Namespaces`, `Clusters`, `Brokers` and `Schemas`. Each docstring has
the REST path below `/admin/v2/`, in which `N` is `namespaces/{tenant}/{namespace}`. Namespaces are passed as
`tenant/namespace`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pulsar_ext.errors import AdminUnavailable
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
    set_policy,
    whole_number,
)
from ._models import ClusterInfo, JsonValue, NamespacePolicies, Persistence, Retention, member

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


BacklogQuotaKind = Literal["destination_storage", "message_age"]


def _policy(namespace: str, policy: str) -> str:
    return f"{namespace_path(namespace)}/{policy}"


def _tenant(name: str) -> str:
    """Return the encoded name of a tenant or a cluster, validated as part of a topic name."""
    return TopicName("persistent", name, "-", "-").rest_path.split("/")[1]


async def tenants(session: Session) -> tuple[str, ...]:
    """List the tenants: `GET tenants`."""
    return await session.send(Request("GET", "tenants", names))


async def create_tenant(
    session: Session, tenant: str, *, allowed_clusters: Sequence[str] | None = None, admin_roles: Sequence[str] = ()
) -> None:
    """Create a tenant: `PUT tenants/{tenant}`.

    Its namespaces may use the `allowed_clusters`, by default all current ones. The `admin_roles` may administer it, in
    addition to superusers.

    Raises:
        AdminConflict: the tenant exists.
    """
    path = f"tenants/{_tenant(tenant)}"
    allowed = await clusters(session) if allowed_clusters is None else allowed_clusters
    body = {"allowedClusters": sorted(allowed), "adminRoles": sorted(admin_roles)}
    await session.send(Request("PUT", path, nothing, body=body))


async def delete_tenant(session: Session, tenant: str, *, force: bool = False) -> None:
    """Delete a tenant: `DELETE tenants/{tenant}`; `force` needs `forceDeleteTenantAllowed` on the broker."""
    await session.send(Request("DELETE", f"tenants/{_tenant(tenant)}", nothing, params={"force": force}))


async def namespaces(session: Session, tenant: str) -> tuple[str, ...]:
    """List a tenant's namespaces as `tenant/namespace`: `GET namespaces/{tenant}`."""
    return await session.send(Request("GET", f"namespaces/{_tenant(tenant)}", names))


async def create_namespace(session: Session, namespace: str, *, bundles: int | None = None) -> None:
    """Create a namespace, by default with the broker's number of bundles: `PUT N`.

    Raises:
        AdminConflict: the namespace exists.
    """
    body = None if bundles is None else {"bundles": {"numBundles": whole_number("bundles", bundles, least=1)}}
    await session.send(Request("PUT", namespace_path(namespace), nothing, body=body))


async def delete_namespace(session: Session, namespace: str, *, force: bool = False) -> None:
    """Delete a namespace: `DELETE N`; `force` deletes its topics too and needs `forceDeleteNamespaceAllowed`.

    Raises:
        AdminConflict: the namespace has topics.
    """
    await session.send(Request("DELETE", namespace_path(namespace), nothing, params={"force": force}))


async def policies(session: Session, namespace: str) -> NamespacePolicies:
    """Get all policies of a namespace: `GET N`."""
    return await session.send(Request("GET", namespace_path(namespace), parsed(NamespacePolicies.from_json)))


async def retention(session: Session, namespace: str) -> Retention | None:
    """Get the retention of acknowledged messages, None if not set: `GET N/retention`."""
    return await session.send(Request("GET", _policy(namespace, "retention"), optional(Retention.from_json)))


async def set_retention(session: Session, namespace: str, value: Retention | None) -> None:
    """Set the retention of acknowledged messages; None removes the policy: `POST` or `DELETE N/retention`."""
    await set_policy(session, _policy(namespace, "retention"), value and value.to_json())


async def deduplication(session: Session, namespace: str) -> bool | None:
    """Get if the broker deduplicates messages, None if not set: `GET N/deduplication`."""
    return await session.send(Request("GET", _policy(namespace, "deduplication"), optional(bool)))


async def set_deduplication(session: Session, namespace: str, value: bool | None) -> None:
    """Enable or disable deduplication; None removes the policy: `POST` or `DELETE N/deduplication`."""
    await set_policy(session, _policy(namespace, "deduplication"), value)


async def persistence(session: Session, namespace: str) -> Persistence | None:
    """Get the replication of entries, None if not set: `GET N/persistence`."""
    return await session.send(Request("GET", _policy(namespace, "persistence"), optional(Persistence.from_json)))


async def set_persistence(session: Session, namespace: str, value: Persistence | None) -> None:
    """Set the replication of entries; None removes the policy: `POST` or `DELETE N/persistence`."""
    await set_policy(session, _policy(namespace, "persistence"), value and value.to_json())


async def message_ttl(session: Session, namespace: str) -> int | None:
    """Get the time to live of unacknowledged messages in seconds, None if not set: `GET N/messageTTL`."""
    return await session.send(Request("GET", _policy(namespace, "messageTTL"), optional(int)))


async def set_message_ttl(session: Session, namespace: str, seconds: int | None) -> None:
    """Set the time to live of unacknowledged messages; None removes the policy: `POST` or `DELETE N/messageTTL`."""
    value = None if seconds is None else whole_number("seconds", seconds, most=MAX_INT)
    await set_policy(session, _policy(namespace, "messageTTL"), value)


async def set_backlog_quota(
    session: Session,
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
    await session.send(Request("POST", path, nothing, params, body, idempotent=True))


async def remove_backlog_quota(
    session: Session, namespace: str, *, kind: BacklogQuotaKind = "destination_storage"
) -> None:
    """Remove a backlog quota: `DELETE N/backlogQuota`."""
    request = Request(
        "DELETE", _policy(namespace, "backlogQuota"), nothing, {"backlogQuotaType": kind}, idempotent=True
    )
    await session.send(request)


async def clusters(session: Session) -> tuple[str, ...]:
    """List the clusters: `GET clusters`."""
    return await session.send(Request("GET", "clusters", names))


async def cluster(session: Session, name: str) -> ClusterInfo:
    """Get the service URLs of a cluster: `GET clusters/{name}`."""
    return await session.send(Request("GET", f"clusters/{_tenant(name)}", parsed(ClusterInfo.from_json)))


async def broker_configuration(session: Session) -> Mapping[str, str]:
    """Get all settings of the broker that answers, as strings: `GET brokers/configuration/runtime`."""
    request: Request[Mapping[str, str]] = Request("GET", "brokers/configuration/runtime", Answer.json)
    return await session.send(request)


async def broker_version(session: Session) -> str:
    """Get the version of the broker that answers: `GET brokers/version`."""
    return await session.send(Request("GET", "brokers/version", Answer.text))


async def health(session: Session) -> bool:
    """Check if the broker can produce and consume a message: `GET brokers/health`; False also without an answer.

    Raises:
        AdminUnauthorized: the role lacks the permission.
    """
    try:
        return await session.send(Request("GET", "brokers/health", lambda answer: answer.text() == "ok"))
    except AdminUnavailable:
        return False


@dataclass(frozen=True, slots=True)
class SchemaInfo(JsonValue):
    """Schema of a topic: its version, type (`JSON`, `AVRO`, `STRING`, …) and definition as text."""

    version: int = field(metadata=member("version"))
    type: str = field(metadata=member("type"))
    data: str = field(metadata=member("data", absent=""))
    properties: Mapping[str, str] = field(metadata=member("properties", absent={}, read=dict))


def _path(topic: Topic) -> str:
    return f"schemas/{TopicName.parse(topic).rest_path.partition('/')[2]}"


async def schema(session: Session, topic: Topic, version: int | None = None) -> SchemaInfo:
    """Get a schema version of a topic, by default the latest: `GET schemas/{tenant}/{namespace}/{topic}/schema`.

    Raises:
        AdminNotFound: the topic has no schema, or not this version.
    """
    path = f"{_path(topic)}/schema"
    if version is not None:
        path += f"/{version}"
    return await session.send(Request("GET", path, parsed(SchemaInfo.from_json)))


async def schemas(session: Session, topic: Topic) -> Mapping[int, SchemaInfo]:
    """Get all schema versions of a topic by their numbers: `GET schemas/{…}/schemas`.

    The result is empty without a schema and after its deletion; later versions have higher numbers.
    """
    parse = parsed(lambda found: list(map(SchemaInfo.from_json, found["getSchemaResponses"])))
    return {one.version: one for one in await session.send(Request("GET", f"{_path(topic)}/schemas", parse))}


async def upload_schema(
    session: Session, topic: Topic, kind: str, data: str, properties: Mapping[str, str] | None = None
) -> int:
    """Upload a schema of a topic, unless it exists, and return its version: `POST schemas/{…}/schema`.

    The `kind` is `AVRO`, `JSON`, `KEY_VALUE`, …, and `data` the definition as text; the properties of a `KEY_VALUE`
    schema describe its parts.

    Raises:
        AdminConflict: it is incompatible with the topic's schema; the error has the broker's reason.
    """
    body = {"type": kind, "schema": data, "properties": dict(properties or {})}
    parse = parsed(lambda uploaded: int(uploaded["version"]["version"]))
    return await session.send(Request("POST", f"{_path(topic)}/schema", parse, body=body, idempotent=True))


async def schema_compatibility_strategy(session: Session, namespace: str) -> str:
    """Get the compatibility check for new schemas: `GET N/schemaCompatibilityStrategy`."""
    return await session.send(Request("GET", _policy(namespace, "schemaCompatibilityStrategy"), parsed(str)))


async def set_schema_compatibility_strategy(session: Session, namespace: str, value: str) -> None:
    """Set the compatibility check for new schemas, as `FULL_TRANSITIVE`: `PUT N/schemaCompatibilityStrategy`."""
    path = _policy(namespace, "schemaCompatibilityStrategy")
    await session.send(Request("PUT", path, nothing, body=value, idempotent=True))


async def set_schema_validation_enforced(session: Session, namespace: str, value: bool) -> None:
    """Set if topics with a schema reject producers without one: `POST N/schemaValidationEnforced`."""
    path = _policy(namespace, "schemaValidationEnforced")
    await session.send(Request("POST", path, nothing, body=value, idempotent=True))
