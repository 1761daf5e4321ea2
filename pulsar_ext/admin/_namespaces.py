"""Operations on tenants, namespaces, clusters, brokers and schemas.

Mirrors `org.apache.pulsar.client.admin.Tenants`, `Namespaces`, `Clusters`, `Brokers` and `Schemas`. Each docstring has
the REST path below `/admin/v2/`, in which `N` is `namespaces/{tenant}/{namespace}`. Namespaces are passed as
`tenant/namespace`.
"""

# ruff: noqa: D417  # callers do not pass the session, so no docstring lists it
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from pulsar_ext.errors import AdminUnavailable
from pulsar_ext.ids.topic_name import TopicName

from ._core import MAX_INT, Answer, Request, Session, nothing, optional, set_policy, whole_number
from ._models import ClusterInfo, NamespacePolicies, Persistence, Retention

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def namespace_path(namespace: str) -> str:
    """Validate a namespace and return its path."""
    # Validated as part of a topic name.
    return TopicName.parse(f"persistent://{namespace}/-").rest_path.replace("persistent/", "namespaces/", 1)[:-2]


def _tenant_path(tenant: str) -> str:
    return f"tenants/{TopicName('persistent', tenant, '-', '-').rest_path.split('/')[1]}"


def _strings(answer: Answer) -> tuple[str, ...]:
    return tuple(sorted(answer.json()))


async def tenants(session: Session) -> tuple[str, ...]:
    """List the tenants: `GET tenants`."""
    return await session.send(Request("GET", "tenants", _strings))


async def create_tenant(
    session: Session, tenant: str, *, allowed_clusters: Sequence[str] | None = None, admin_roles: Sequence[str] = ()
) -> None:
    """Create a tenant: `PUT tenants/{tenant}`.

    Args:
        tenant: the tenant's name.
        allowed_clusters: the clusters allowed for its namespaces; by default all current clusters.
        admin_roles: the roles that may administer it, in addition to superusers.

    Raises:
        AdminConflict: the tenant exists.
    """
    path = _tenant_path(tenant)
    allowed = await clusters(session) if allowed_clusters is None else allowed_clusters
    body = {"allowedClusters": sorted(allowed), "adminRoles": sorted(admin_roles)}
    await session.send(Request("PUT", path, nothing, body=body))


async def delete_tenant(session: Session, tenant: str, *, force: bool = False) -> None:
    """Delete a tenant: `DELETE tenants/{tenant}`; `force` needs `forceDeleteTenantAllowed` on the broker."""
    await session.send(Request("DELETE", _tenant_path(tenant), nothing, params={"force": force}))


async def namespaces(session: Session, tenant: str) -> tuple[str, ...]:
    """List a tenant's namespaces as `tenant/namespace`: `GET namespaces/{tenant}`."""
    return await session.send(Request("GET", _tenant_path(tenant).replace("tenants/", "namespaces/", 1), _strings))


async def create_namespace(session: Session, namespace: str, *, bundles: int | None = None) -> None:
    """Create a namespace: `PUT N`.

    Args:
        namespace: `tenant/namespace`.
        bundles: the number of bundles; by default the broker's setting.

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
    return await session.send(
        Request("GET", namespace_path(namespace), lambda answer: NamespacePolicies.from_json(answer.json()))
    )


async def retention(session: Session, namespace: str) -> Retention | None:
    """Get the retention of acknowledged messages, None if not set: `GET N/retention`."""
    return await session.send(Request("GET", f"{namespace_path(namespace)}/retention", optional(Retention.from_json)))


async def set_retention(session: Session, namespace: str, value: Retention | None) -> None:
    """Set the retention of acknowledged messages; None removes the policy: `POST` or `DELETE N/retention`."""
    await set_policy(session, f"{namespace_path(namespace)}/retention", value and value.to_json())


async def deduplication(session: Session, namespace: str) -> bool | None:
    """Get if the broker deduplicates messages, None if not set: `GET N/deduplication`."""
    return await session.send(Request("GET", f"{namespace_path(namespace)}/deduplication", optional(bool)))


async def set_deduplication(session: Session, namespace: str, value: bool | None) -> None:
    """Enable or disable deduplication; None removes the policy: `POST` or `DELETE N/deduplication`."""
    await set_policy(session, f"{namespace_path(namespace)}/deduplication", value)


async def persistence(session: Session, namespace: str) -> Persistence | None:
    """Get the replication of entries, None if not set: `GET N/persistence`."""
    path = f"{namespace_path(namespace)}/persistence"
    return await session.send(Request("GET", path, optional(Persistence.from_json)))


async def set_persistence(session: Session, namespace: str, value: Persistence | None) -> None:
    """Set the replication of entries; None removes the policy: `POST` or `DELETE N/persistence`."""
    await set_policy(session, f"{namespace_path(namespace)}/persistence", value and value.to_json())


async def message_ttl(session: Session, namespace: str) -> int | None:
    """Get the time to live of unacknowledged messages in seconds, None if not set: `GET N/messageTTL`."""
    return await session.send(Request("GET", f"{namespace_path(namespace)}/messageTTL", optional(int)))


async def set_message_ttl(session: Session, namespace: str, seconds: int | None) -> None:
    """Set the time to live of unacknowledged messages; None removes the policy: `POST` or `DELETE N/messageTTL`."""
    value = None if seconds is None else whole_number("seconds", seconds, most=MAX_INT)
    await set_policy(session, f"{namespace_path(namespace)}/messageTTL", value)


async def set_backlog_quota(
    session: Session,
    namespace: str,
    *,
    limit_bytes: int = -1,
    limit_seconds: int = -1,
    policy: Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"],
    kind: Literal["destination_storage", "message_age"] = "destination_storage",
) -> None:
    """Set the policy for a backlog above a size in bytes or an age in seconds: `POST N/backlogQuota`."""
    await session.send(
        Request(
            "POST",
            f"{namespace_path(namespace)}/backlogQuota",
            nothing,
            params={"backlogQuotaType": kind},
            body={"limitSize": limit_bytes, "limitTime": limit_seconds, "policy": policy},
            idempotent=True,
        )
    )


async def remove_backlog_quota(
    session: Session,
    namespace: str,
    *,
    kind: Literal["destination_storage", "message_age"] = "destination_storage",
) -> None:
    """Remove a backlog quota: `DELETE N/backlogQuota`."""
    path = f"{namespace_path(namespace)}/backlogQuota"
    await session.send(Request("DELETE", path, nothing, params={"backlogQuotaType": kind}, idempotent=True))


async def clusters(session: Session) -> tuple[str, ...]:
    """List the clusters: `GET clusters`."""
    return await session.send(Request("GET", "clusters", _strings))


async def cluster(session: Session, name: str) -> ClusterInfo:
    """Get the service URLs of a cluster: `GET clusters/{name}`."""
    path = _tenant_path(name).replace("tenants/", "clusters/", 1)
    return await session.send(Request("GET", path, lambda answer: ClusterInfo.from_json(answer.json())))


async def broker_configuration(session: Session) -> Mapping[str, str]:
    """Get all settings of the broker that answers, as strings: `GET brokers/configuration/runtime`."""

    def parse(answer: Answer) -> Mapping[str, str]:
        settings: dict[str, str] = answer.json()
        return settings

    return await session.send(Request("GET", "brokers/configuration/runtime", parse))


async def broker_version(session: Session) -> str:
    """Get the version of the broker that answers: `GET brokers/version`."""
    return await session.send(Request("GET", "brokers/version", Answer.text))


async def health(session: Session) -> bool:
    """Check if the broker can produce and consume a message: `GET brokers/health`.

    Returns:
        True if it can; False also if no broker answers in time.

    Raises:
        AdminUnauthorized: the role lacks the permission.
    """
    try:
        return await session.send(Request("GET", "brokers/health", lambda answer: answer.text() == "ok"))
    except AdminUnavailable:
        return False


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """Schema of a topic: its version, type (`JSON`, `AVRO`, `STRING`, …) and definition as text."""

    version: int
    type: str
    data: str
    properties: Mapping[str, str]

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Self:
        """Parse the response of `GET …/schema`."""
        return cls(answer["version"], answer["type"], answer.get("data") or "", dict(answer.get("properties") or {}))


def _path(topic: str | TopicName) -> str:
    return f"schemas/{TopicName.parse(topic).rest_path.partition('/')[2]}"


async def schema(session: Session, topic: str | TopicName, version: int | None = None) -> SchemaInfo:
    """Get a schema version of a topic, by default the latest: `GET schemas/{tenant}/{namespace}/{topic}/schema`.

    Raises:
        AdminNotFound: the topic has no schema, or not this version.
    """
    path = f"{_path(topic)}/schema"
    if version is not None:
        path += f"/{version}"
    return await session.send(Request("GET", path, lambda answer: SchemaInfo.from_json(answer.json())))


async def schemas(session: Session, topic: str | TopicName) -> Mapping[int, SchemaInfo]:
    """Get all schema versions of a topic by their numbers: `GET schemas/{…}/schemas`.

    The result is empty without a schema and after its deletion; later versions have higher numbers.
    """

    def parse(answer: Answer) -> dict[int, SchemaInfo]:
        found = map(SchemaInfo.from_json, answer.json()["getSchemaResponses"])
        return {one.version: one for one in found}

    return await session.send(Request("GET", f"{_path(topic)}/schemas", parse))


async def upload_schema(
    session: Session, topic: str | TopicName, kind: str, data: str, properties: Mapping[str, str] | None = None
) -> int:
    """Upload a schema of a topic, unless it exists: `POST schemas/{tenant}/{namespace}/{topic}/schema`.

    Args:
        topic: the topic, partitioned or not.
        kind: `AVRO`, `JSON`, `KEY_VALUE`, …
        data: the definition as text.
        properties: the schema's properties; those of `KEY_VALUE` describe its parts.

    Returns:
        The schema's version.

    Raises:
        AdminConflict: it is incompatible with the topic's schema; the error has the broker's reason.
    """
    body = {"type": kind, "schema": data, "properties": dict(properties or {})}
    request = Request(
        "POST", f"{_path(topic)}/schema", lambda answer: int(answer.json()["version"]["version"]), body=body
    )
    return await session.send(replace(request, idempotent=True))


async def schema_compatibility_strategy(session: Session, namespace: str) -> str:
    """Get the compatibility check for new schemas: `GET N/schemaCompatibilityStrategy`."""
    path = f"{namespace_path(namespace)}/schemaCompatibilityStrategy"
    return await session.send(Request("GET", path, lambda answer: str(answer.json())))


async def set_schema_compatibility_strategy(session: Session, namespace: str, value: str) -> None:
    """Set the compatibility check for new schemas, as `FULL_TRANSITIVE`: `PUT N/schemaCompatibilityStrategy`."""
    path = f"{namespace_path(namespace)}/schemaCompatibilityStrategy"
    await session.send(Request("PUT", path, nothing, body=value, idempotent=True))


async def set_schema_validation_enforced(session: Session, namespace: str, value: bool) -> None:
    """Set if topics with a schema reject producers without one: `POST N/schemaValidationEnforced`."""
    path = f"{namespace_path(namespace)}/schemaValidationEnforced"
    await session.send(Request("POST", path, nothing, body=value, idempotent=True))
