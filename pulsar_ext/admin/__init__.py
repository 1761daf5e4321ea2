"""Typed clients of the admin REST API, `PulsarAdmin` and `AsyncPulsarAdmin`.

    with PulsarAdmin("http://localhost:8080", token="…") as admin:
        admin.internal_stats("persistent://public/default/orders").last_confirmed_entry

Mirrors `org.apache.pulsar.client.admin.PulsarAdmin`, flattened: `admin.topics().getStats(t)` is `admin.stats(t)`.
Reads and idempotent writes are retried while the broker is unavailable, until a deadline; each pause is logged on
`pulsar_ext.admin`. Calls that move a cursor are sent once.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from pulsar_ext.errors import InvalidUse

from . import _core, _namespaces, _subscriptions, _topics
from ._core import AsyncShell, Operation, Session, SyncShell
from ._models import (
    BacklogAnalysis,
    ClusterInfo,
    CursorInfo,
    EntryMetadata,
    InternalStats,
    LedgerInfo,
    NamespacePolicies,
    PartitionedStats,
    Persistence,
    Retention,
    SubscriptionStats,
    TopicStats,
)
from ._namespaces import SchemaInfo
from ._oauth2 import Oauth2Tokens
from ._session import Authorization, ClusterAddresses, HttpSession, Limits
from ._transport import AsyncTransport, SyncTransport, TlsFiles
from ._url import AdminUrl, derive_admin_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "AsyncPulsarAdmin",
    "BacklogAnalysis",
    "ClusterInfo",
    "CursorInfo",
    "EntryMetadata",
    "InternalStats",
    "LedgerInfo",
    "NamespacePolicies",
    "Oauth2Tokens",
    "PartitionedStats",
    "Persistence",
    "PulsarAdmin",
    "Retention",
    "SchemaInfo",
    "SubscriptionStats",
    "TopicStats",
    "derive_admin_url",
]


class _Operations:
    """Operations of both clients, documented where they are defined."""

    stats = Operation(_topics.stats)
    partitioned_stats = Operation(_topics.partitioned_stats)
    internal_stats = Operation(_topics.internal_stats)
    partitioned_internal_stats = Operation(_topics.partitioned_internal_stats)
    entry = Operation(_topics.entry)
    examine = Operation(_topics.examine)
    message_id_by_index = Operation(_topics.message_id_by_index)
    message_id_by_time = Operation(_topics.message_id_by_time)
    last_message_id = Operation(_topics.last_message_id)
    unload = Operation(_topics.unload)
    trim = Operation(_topics.trim)
    truncate = Operation(_topics.truncate)
    terminate = Operation(_topics.terminate)
    terminate_partitions = Operation(_topics.terminate_partitions)
    compact = Operation(_topics.compact)
    compaction_status = Operation(_topics.compaction_status)
    topics = Operation(_topics.topics)
    partitioned_topics = Operation(_topics.partitioned_topics)
    create_topic = Operation(_topics.create_topic)
    delete_topic = Operation(_topics.delete_topic)
    partitions = Operation(_core.partitions)
    create_partitioned_topic = Operation(_topics.create_partitioned_topic)
    update_partitions = Operation(_topics.update_partitions)
    delete_partitioned_topic = Operation(_topics.delete_partitioned_topic)
    max_message_size = Operation(_topics.max_message_size)
    set_max_message_size = Operation(_topics.set_max_message_size)
    schema = Operation(_namespaces.schema)
    schemas = Operation(_namespaces.schemas)
    upload_schema = Operation(_namespaces.upload_schema)
    schema_compatibility_strategy = Operation(_namespaces.schema_compatibility_strategy)
    set_schema_compatibility_strategy = Operation(_namespaces.set_schema_compatibility_strategy)
    set_schema_validation_enforced = Operation(_namespaces.set_schema_validation_enforced)

    subscriptions = Operation(_subscriptions.subscriptions)
    create_subscription = Operation(_subscriptions.create_subscription)
    delete_subscription = Operation(_subscriptions.delete_subscription)
    skip_entries = Operation(_subscriptions.skip_entries)
    skip_all = Operation(_subscriptions.skip_all)
    reset_cursor = Operation(_subscriptions.reset_cursor)
    reset_cursor_to_time = Operation(_subscriptions.reset_cursor_to_time)
    expire_messages = Operation(_subscriptions.expire_messages)
    peek = Operation(_subscriptions.peek)
    analyze_backlog = Operation(_subscriptions.analyze_backlog)

    tenants = Operation(_namespaces.tenants)
    create_tenant = Operation(_namespaces.create_tenant)
    delete_tenant = Operation(_namespaces.delete_tenant)
    namespaces = Operation(_namespaces.namespaces)
    create_namespace = Operation(_namespaces.create_namespace)
    delete_namespace = Operation(_namespaces.delete_namespace)
    policies = Operation(_namespaces.policies)
    retention = Operation(_namespaces.retention)
    set_retention = Operation(_namespaces.set_retention)
    deduplication = Operation(_namespaces.deduplication)
    set_deduplication = Operation(_namespaces.set_deduplication)
    persistence = Operation(_namespaces.persistence)
    set_persistence = Operation(_namespaces.set_persistence)
    message_ttl = Operation(_namespaces.message_ttl)
    set_message_ttl = Operation(_namespaces.set_message_ttl)
    set_backlog_quota = Operation(_namespaces.set_backlog_quota)
    remove_backlog_quota = Operation(_namespaces.remove_backlog_quota)

    clusters = Operation(_namespaces.clusters)
    cluster = Operation(_namespaces.cluster)
    broker_configuration = Operation(_namespaces.broker_configuration)
    broker_version = Operation(_namespaces.broker_version)
    health = Operation(_namespaces.health)

    _transport_class: type[SyncTransport | AsyncTransport]
    _session: Session

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        token: str | Callable[[], str] | None = None,
        basic: tuple[str, str] | None = None,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = True,
        tls_certificate_file_path: str | None = None,
        tls_private_key_file_path: str | None = None,
        timeout_seconds: float = 30.0,
        deadline_seconds: float = 60.0,
        max_attempts: int = 4,
    ) -> None:
        parsed = AdminUrl.parse(url)
        tls = TlsFiles(
            tls_trust_certs_file_path,
            tls_certificate_file_path,
            tls_private_key_file_path,
            is_needed=parsed.uses_tls,
            allow_insecure_connection=tls_allow_insecure_connection,
            validate_hostname=tls_validate_hostname,
        )
        if basic is not None and parsed.credentials is not None:
            raise InvalidUse("User and password are in the admin URL and in basic=; pass them once")
        self._addresses = ClusterAddresses(parsed.bases)
        self._transport = self._transport_class(tls)
        self._http = HttpSession(
            self._transport,
            self._addresses,
            Authorization(token, basic or parsed.credentials),
            Limits(timeout_seconds, deadline_seconds, max_attempts),
        )
        self.use(self._http)

    def within(self, seconds: float) -> Self:
        """Return the same API over the same connections, with one attempt of `seconds` per request."""
        return copy.copy(self).use(replace(self._http, limits=Limits(seconds, seconds, 1)))

    def check_requests(self, check: Callable[[str], None]) -> Self:
        """Call `check` with the path of every later request before it is sent; an exception prevents the request.

        APIs that `within()` returned before are unchanged.
        """
        self._http = replace(self._http, check=check)
        return self.use(self._http)

    def use(self, sender: Session) -> Self:
        """Send every later request with another session."""
        self._session = sender
        return self

    @property
    def url(self) -> str:
        """The admin URL that is used first, without credentials."""
        return self._addresses.bases[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class PulsarAdmin(_Operations, SyncShell):
    """Client of the admin REST API. Thread-safe and usable after a fork; connects when first used.

    Args:
        url: `http[s]://host:port`, optionally with `user:password@`, more hosts (`h1:8443,h2:8443`) and a path prefix;
            or a list of such URLs of one cluster. If one does not answer, the next is used.
        token: the bearer token; a callable is called before every request, so that a token can be renewed. It is sent
            to these URLs, and on a redirect to the brokers that the cluster lists.
        basic: user and password, instead of those in the URL.
        tls_trust_certs_file_path: the CAs to trust (PEM) instead of the system's. This file and the next two are read
            again when they change, so that renewed certificates are used.
        tls_allow_insecure_connection: accept any certificate.
        tls_validate_hostname: if the certificate must name the host.
        tls_certificate_file_path: the client's certificate (PEM), if the broker requires one.
        tls_private_key_file_path: its key, unless that is in the same file.
        timeout_seconds: the timeout of one attempt.
        deadline_seconds: the timeout of all attempts of one request together.
        max_attempts: the maximum number of attempts of requests that may be repeated.

    Raises:
        InvalidUse: the URL is not an admin URL, a TLS file cannot be loaded, or a limit is not positive.
    """

    _transport_class = SyncTransport
    _transport: SyncTransport

    def close(self) -> None:
        """Close the connections. A second call does nothing; any other call raises `NotOpen`."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncPulsarAdmin(_Operations, AsyncShell):
    """Client of the admin REST API for asyncio, with the arguments, operations and errors of `PulsarAdmin`.

    Connections belong to the event loop that opened them: close the client in that loop, preferably by `async with`.
    """

    _transport_class = AsyncTransport
    _transport: AsyncTransport

    async def close(self) -> None:
        """Close the running loop's connections. A second call does nothing; any other call raises `NotOpen`."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
