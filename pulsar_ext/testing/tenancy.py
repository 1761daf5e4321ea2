"""Tenants and namespaces for tests, and ownership in a cluster, over the admin REST API.

These are plain requests instead of `pulsar_ext.admin`, so that tests do not depend on the code that they test.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

import httpx2

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .access import Access

if TYPE_CHECKING:
    from collections.abc import Callable


_REQUEST_SECONDS: Final = 30.0
_DELETE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.2


class _Connection:
    """Connection to the admin REST API; it follows redirects to other brokers of a cluster."""

    _invalid: ClassVar[tuple[int, ...]] = ()
    """Status codes of answers that are the caller's errors."""

    def __init__(self, access: Access, url: str = "") -> None:
        options = access.http_options()
        headers = options.pop("headers", {})

        def authenticate(request: httpx2.Request) -> None:
            request.headers.update(headers)  # redirected ones, too, from which the HTTP client removes them

        options["event_hooks"] = {"request": [authenticate]}
        self._http = httpx2.Client(base_url=url, timeout=_REQUEST_SECONDS, follow_redirects=True, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _call(self, method: str, path: str, json: object = None, **params: str) -> httpx2.Response:
        try:
            answer = self._http.request(method, path, json=json, params=params)
        except httpx2.TransportError as error:
            raise BrokerStartError(f"no answer from {error.request.url}: {error}") from error
        if not answer.is_success:
            kind = InvalidUse if answer.status_code in self._invalid else BrokerStartError
            raise kind(f"{method} {answer.url} was rejected: {answer.status_code} {answer.text[:300]}")
        return answer


class Tenancy(_Connection):
    """Admin calls that isolate one test from another on a shared broker."""

    def __init__(self, admin_url: str, access: Access | None = None) -> None:
        super().__init__(access or Access(), f"{admin_url}/admin/v2/")

    def create_tenant(self, tenant: str) -> None:
        """Create a tenant that may use every cluster of the broker."""
        clusters = [name for name in self._call("GET", "clusters").json() if name != "global"]
        self._call("PUT", f"tenants/{tenant}", json={"allowedClusters": clusters, "adminRoles": []})

    def create_namespace(self, namespace: str) -> None:
        """Create a namespace, `tenant/name`."""
        self._call("PUT", f"namespaces/{namespace}")

    def put_cluster(self, name: str, data: dict[str, object]) -> None:
        """Set the address of this or another cluster, as the broker's `ClusterData`."""
        known = name in self._call("GET", "clusters").json()
        self._call("POST" if known else "PUT", f"clusters/{name}", json=data)

    def replicate(self, namespace: str, clusters: list[str]) -> None:
        """Replicate a namespace in several clusters; create it and its tenant if they are missing."""
        tenant = namespace.partition("/")[0]
        known = tenant in self._call("GET", "tenants").json()
        settings = {"allowedClusters": clusters, "adminRoles": []}
        self._call("POST" if known else "PUT", f"tenants/{tenant}", json=settings)
        if namespace in self._call("GET", f"namespaces/{tenant}").json():
            self._call("POST", f"namespaces/{namespace}/replication", json=clusters)
        else:
            # Set at the creation: a topic loaded before the broker learns of a change would have no replicator.
            self._call("PUT", f"namespaces/{namespace}", json={"replication_clusters": clusters})

    def has_carried_over(self, topic: str, cluster: str) -> bool | None:
        """Return True when a cluster has all messages of a topic, None before that."""
        replicator = self._call("GET", f"{topic.replace('://', '/')}/stats").json()["replication"].get(cluster, {})
        return True if replicator.get("connected") and replicator["replicationBacklog"] == 0 else None

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Create a partitioned topic, `persistent://tenant/namespace/name`."""
        self._call("PUT", f"{topic.replace('://', '/')}/partitions", json=partitions)

    def delete_namespace(self, namespace: str) -> str | None:
        """Delete a namespace with its content, also while clients are connected; return an error, or None."""
        return self._delete(f"namespaces/{namespace}", namespace)

    def delete_tenant(self, tenant: str) -> str | None:
        """Delete a tenant without namespaces; return an error, or None."""
        return self._delete(f"tenants/{tenant}", None)

    def _delete(self, path: str, namespace: str | None) -> str | None:
        deadline = time.monotonic() + _DELETE_SECONDS
        while True:
            try:
                answer = self._http.delete(path, params={"force": "true"} if namespace else {})
                if answer.is_success or answer.status_code == httpx2.codes.NOT_FOUND:
                    return None
                problem = f"{answer.status_code} {answer.text[:300]}"
                if namespace is not None and "force" in answer.text.lower():
                    # An existing broker may not allow it: then every topic is deleted first.
                    self._empty(namespace)
                    namespace = None
                    continue
            except httpx2.TransportError as error:
                problem = str(error)
            # A first attempt fails if consumers reconnect during the deletion.
            if time.monotonic() > deadline:
                return f"{path} on {self._http.base_url} could not be deleted: {problem}"
            time.sleep(_RETRY_SECONDS)

    def _empty(self, namespace: str) -> None:
        for topic in self._http.get(f"persistent/{namespace}/partitioned").json():
            self._http.delete(f"{topic.replace('://', '/')}/partitions", params={"force": "true"})
        for topic in self._http.get(f"persistent/{namespace}").json():
            self._http.delete(topic.replace("://", "/"), params={"force": "true"})


_NO_BUNDLE: Final = ("Cannot find bundle", "Invalid upper boundary for bundle", "Invalid lower boundary for bundle")
"""Errors of a broker for a bundle of a deleted namespace: in general, and with the default bundles."""
_STEP_SECONDS: Final = 0.1

T = TypeVar("T")


class Bundle(NamedTuple):
    """Part of a namespace's topics, by their hashes, that one broker owns at a time."""

    namespace: str
    range: str


class ClusterAdmin(_Connection):
    """Admin calls of a cluster about the ownership of topics."""

    _invalid = httpx2.codes.BAD_REQUEST, httpx2.codes.NOT_FOUND

    def active_brokers(self, admin_url: str) -> set[str]:
        """Return the active brokers, each as `host:admin-port`; empty if this one does not answer."""
        try:
            return set(self._call("GET", f"{admin_url}/admin/v2/brokers").json())
        except (BrokerStartError, InvalidUse):
            return set()

    def owned(self, admin_url: str, cluster: str) -> list[Bundle]:
        """Return the bundles that the broker at a URL owns, without its own namespaces."""
        broker = urlsplit(admin_url).netloc
        names = self._call("GET", f"{admin_url}/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces").json()
        found = [Bundle(*name.rsplit("/", 1)) for name in names]
        return sorted(one for one in found if broker not in one.namespace)

    def owner(self, admin_url: str, topic: str) -> str:
        """Return the service URL of a topic's owner, without a proxy or listener in between.

        The look-up assigns an owner to an unowned topic.
        """
        found = self._call("GET", f"{admin_url}/lookup/v2/topic/{topic.replace('://', '/')}").json()
        return str(found.get("brokerUrlTls") or found["brokerUrl"])

    def bundle(self, admin_url: str, topic: str) -> Bundle:
        """Return the bundle of a topic."""
        _, _, rest = topic.partition("://")
        answer = self._call("GET", f"{admin_url}/lookup/v2/topic/{topic.replace('://', '/')}/bundle")
        return Bundle(rest.rsplit("/", 1)[0], answer.text.strip('"'))

    def unload(self, admin_url: str, bundle: Bundle, to: str) -> bool:
        """Unload a bundle, so that the next look-up assigns it to the broker `host:admin-port`.

        Return False if there was nothing to unload: brokers still list the bundles of a deleted namespace.
        """
        try:
            url = f"{admin_url}/admin/v2/namespaces/{bundle.namespace}/{bundle.range}/unload"
            self._call("PUT", url, destinationBroker=to)
        except BrokerStartError as error:
            if any(text in error.message for text in _NO_BUNDLE):
                return False
            raise
        return True


def call_with_retries(step: Callable[[], T | None], seconds: float, what: str) -> T:
    """Call `step` until it returns a value, and return it; brokers reject some requests while a bundle moves."""
    deadline = time.monotonic() + seconds
    while True:
        rejection = ""
        try:
            if (result := step()) is not None:
                return result
        except BrokerStartError as error:
            rejection = f"; the last error: {error}"
        if time.monotonic() > deadline:
            raise BrokerStartError(f"{what} within {seconds:.0f} s{rejection}")
        time.sleep(_STEP_SECONDS)
