"""Typed clients of the admin REST API, `PulsarAdmin` and `AsyncPulsarAdmin`.

    with PulsarAdmin("http://localhost:8080", token="…") as admin:
        admin.internal_stats("persistent://public/default/orders").last_confirmed_entry

Mirrors `org.apache.pulsar.client.admin.PulsarAdmin`, flattened: `admin.topics().getStats(t)` is `admin.stats(t)`.
Reads and idempotent writes are retried while the broker is unavailable, until a deadline; each pause is logged on
`pulsar_ext.admin`. Calls that move a cursor are sent once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

from pulsar_ext.errors import InvalidUse

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
    ScalableStats,
    SchemaInfo,
    SubscriptionStats,
    TopicStats,
)
from ._oauth2 import Oauth2Tokens
from ._operations import AsyncShell, Operations, SyncShell
from ._session import Authorization, HttpSession, Limits
from ._transport import AsyncTransport, SyncTransport, TlsFiles
from ._url import ClusterAddresses, derive_admin_url

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
    "ScalableStats",
    "SchemaInfo",
    "SubscriptionStats",
    "TopicStats",
    "derive_admin_url",
]


class _Admin(Operations):
    """Common part of both clients: arguments and connections."""

    _transport_class: type[SyncTransport | AsyncTransport]

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
        addresses = ClusterAddresses(url)
        tls = TlsFiles(
            tls_trust_certs_file_path,
            tls_certificate_file_path,
            tls_private_key_file_path,
            is_needed=addresses.uses_tls,
            allow_insecure_connection=tls_allow_insecure_connection,
            validate_hostname=tls_validate_hostname,
        )
        if basic is not None and addresses.credentials is not None:
            raise InvalidUse("User and password are in the admin URL and in basic=; pass them once")
        self._transport = self._transport_class(tls)
        self._session = HttpSession(
            self._transport,
            addresses,
            Authorization(token, basic or addresses.credentials),
            Limits(timeout_seconds, deadline_seconds, max_attempts),
        )

    def within(self, seconds: float) -> Self:
        """Return the same API over the same connections, with one attempt of `seconds` per request."""
        return copy.copy(self).use(replace(self._session, limits=Limits(seconds, seconds, 1)))

    def check_requests(self, check: Callable[[str], None]) -> Self:
        """Call `check` with the path of every later request before it is sent; an exception prevents the request.

        APIs that `within()` returned before are unchanged.
        """
        return self.use(replace(self._session, check=check))

    def use(self, sender: HttpSession) -> Self:
        """Send every later request with another session."""
        self._session = sender
        return self

    @property
    def url(self) -> str:
        """The admin URL that is used first, without credentials."""
        return self._session.addresses.bases[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class PulsarAdmin(_Admin, SyncShell):
    """Client of the admin REST API. Thread-safe and usable after a fork; connects when first used.

    Operations raise the `AdminError` of the response's status, such as `AdminNotFound` and `AdminConflict`. Those on
    the entries or on a cursor of one topic raise `AdminNotAllowed` if it is partitioned or non-persistent.

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


class AsyncPulsarAdmin(_Admin, AsyncShell):
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
