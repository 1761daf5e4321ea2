"""Tenants and namespaces for tests, made and removed over the admin REST API.

Plain requests rather than `pulsar_ext.admin`: what holds the tests up should not be what they test.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Self

import httpx2

from pulsar_ext.errors import BrokerStartError

from .access import Access

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Tenancy"]

_REQUEST_SECONDS: Final = 30.0
_DELETE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.2


class Tenancy:
    """The admin calls that isolate one test from another on a broker that they share.

    Args:
        admin_url: the admin REST API.
        access: what the superuser gets in with; by default nothing.
    """

    def __init__(self, admin_url: str, access: Access | None = None) -> None:
        self._url = admin_url
        options = (access or Access()).http_options()
        self._http = httpx2.Client(base_url=f"{admin_url}/admin/v2/", timeout=_REQUEST_SECONDS, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def create_tenant(self, tenant: str) -> None:
        """Create a tenant that may use every cluster of the broker."""
        clusters = [name for name in self._call("GET", "clusters").json() if name != "global"]
        self._call("PUT", f"tenants/{tenant}", json={"allowedClusters": clusters, "adminRoles": []})

    def create_namespace(self, namespace: str) -> None:
        """Create a namespace, `tenant/name`."""
        self._call("PUT", f"namespaces/{namespace}")

    def put_cluster(self, name: str, data: dict[str, Any]) -> None:
        """Say where a cluster is, be it this one or another, in the words of the broker's `ClusterData`."""
        known = name in self._call("GET", "clusters").json()
        self._call("POST" if known else "PUT", f"clusters/{name}", json=data)

    def replicate(self, namespace: str, clusters: list[str]) -> None:
        """Have a namespace in so many clusters; it and its tenant are made where they are missing."""
        tenant = namespace.partition("/")[0]
        known = tenant in self._call("GET", "tenants").json()
        about = {"allowedClusters": clusters, "adminRoles": []}
        self._call("POST" if known else "PUT", f"tenants/{tenant}", json=about)
        if namespace in self._call("GET", f"namespaces/{tenant}").json():
            self._call("POST", f"namespaces/{namespace}/replication", json=clusters)
        else:
            # From its beginning, for a topic that is loaded before the broker has heard of a change has no replicator.
            self._call("PUT", f"namespaces/{namespace}", json={"replication_clusters": clusters})

    def has_carried_over(self, topic: str, cluster: str) -> bool | None:
        """Return True when a cluster has all of a topic, None while it has not."""
        replicator = self._call("GET", f"{topic.replace('://', '/')}/stats").json()["replication"].get(cluster, {})
        return True if replicator.get("connected") and replicator["replicationBacklog"] == 0 else None

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Create a partitioned topic, `persistent://tenant/namespace/name`."""
        self._call("PUT", f"{topic.replace('://', '/')}/partitions", json=partitions)

    def delete_namespace(self, namespace: str) -> str | None:
        """Delete a namespace with its content, even while clients are connected; return what went wrong, or None."""
        return self._delete(f"namespaces/{namespace}", namespace)

    def delete_tenant(self, tenant: str) -> str | None:
        """Delete a tenant without namespaces; return what went wrong, if anything."""
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
                    # A broker that is not ours may not permit it: then every topic goes by itself first.
                    self._empty(namespace)
                    namespace = None
                    continue
            except httpx2.TransportError as error:
                problem = str(error)
            # Consumers that reconnect while it is being deleted make a first attempt fail.
            if time.monotonic() > deadline:
                return f"{path} on {self._url} could not be deleted: {problem}"
            time.sleep(_RETRY_SECONDS)

    def _empty(self, namespace: str) -> None:
        for topic in self._http.get(f"persistent/{namespace}/partitioned").json():
            self._http.delete(f"{topic.replace('://', '/')}/partitions", params={"force": "true"})
        for topic in self._http.get(f"persistent/{namespace}").json():
            self._http.delete(topic.replace("://", "/"), params={"force": "true"})

    def _call(self, method: str, path: str, **content: Any) -> httpx2.Response:
        try:
            answer = self._http.request(method, path, **content)
        except httpx2.TransportError as error:
            raise BrokerStartError(f"no answer from {self._url}: {error}") from error
        if not answer.is_success:
            raise BrokerStartError(f"{self._url} refused {method} {path}: {answer.status_code} {answer.text[:300]}")
        return answer
