"""Who owns what in a cluster, and how it is moved, over the admin REST API.

Plain requests rather than `pulsar_ext.admin`: what holds the tests up should not be what they test.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar
from urllib.parse import urljoin, urlsplit

import httpx2

from pulsar_ext.errors import BrokerStartError, InvalidUse

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .access import Access

__all__ = ["Bundle", "ClusterAdmin", "insist"]

_REQUEST_SECONDS: Final = 30.0
_REDIRECTS: Final = 5
_NO_BUNDLE: Final = ("Cannot find bundle", "Invalid upper boundary for bundle", "Invalid lower boundary for bundle")
"""What a broker says of a bundle of a namespace that was deleted: of any, or as it has the default bundles."""
_AGAIN_SECONDS: Final = 0.1

T = TypeVar("T")


class Bundle(NamedTuple):
    """A part of a namespace's topics, by their hashes, that one broker owns at a time."""

    namespace: str
    range: str


class ClusterAdmin:
    """The admin calls of a cluster that concern the place of things.

    Args:
        access: how a superuser gets in.
    """

    def __init__(self, access: Access) -> None:
        self._http = httpx2.Client(timeout=_REQUEST_SECONDS, **access.http_options())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def active_brokers(self, admin_url: str) -> set[str]:
        """Return the brokers that are at work, `host:admin-port` each; none while this one does not answer."""
        try:
            return set(self._call("GET", admin_url, "brokers").json())
        except (BrokerStartError, InvalidUse):
            return set()

    def owned(self, admin_url: str, cluster: str) -> list[Bundle]:
        """Return what the broker at that URL owns, without the namespaces that are about itself.

        Raises:
            BrokerStartError: it does not answer.
        """
        broker = urlsplit(admin_url).netloc
        names = self._call("GET", admin_url, f"brokers/{cluster}/{broker}/ownedNamespaces").json()
        found = [Bundle(*name.rsplit("/", 1)) for name in names]
        return sorted(one for one in found if broker not in one.namespace)

    def owner(self, admin_url: str, topic: str) -> str:
        """Return the service URL of the broker that has the topic, one with neither proxy nor listener between.

        A topic that no broker has gets one by this.

        Raises:
            BrokerStartError: no broker answers for it.
        """
        path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
        found = self._call("GET", admin_url, path).json()
        return str(found.get("brokerUrlTls") or found["brokerUrl"])

    def bundle(self, admin_url: str, topic: str) -> Bundle:
        """Return the bundle that the topic is in.

        Raises:
            BrokerStartError: no broker answers for it.
        """
        _, _, rest = topic.partition("://")
        answer = self._call("GET", admin_url, f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle")
        return Bundle(rest.rsplit("/", 1)[0], answer.text.strip('"'))

    def unload(self, admin_url: str, bundle: Bundle, to: str) -> bool:
        """Have a bundle's owner give it up, and the broker `host:admin-port` take it with the next look-up.

        Returns:
            Whether there was something to give up: a broker goes on naming the bundles of a namespace that was deleted.

        Raises:
            BrokerStartError: no broker did.
        """
        try:
            self._call("PUT", admin_url, f"namespaces/{bundle.namespace}/{bundle.range}/unload", destinationBroker=to)
        except BrokerStartError as error:
            if any(text in error.message for text in _NO_BUNDLE):
                return False
            raise
        return True

    def _call(self, method: str, admin_url: str, path: str, **params: str) -> httpx2.Response:
        url = urljoin(f"{admin_url}/admin/v2/", path)
        request = self._http.build_request(method, url, params=params)
        try:
            answer = self._http.send(request)
            for _ in range(_REDIRECTS):
                if answer.next_request is None:
                    break
                # Another broker of the same cluster: it wants the token too.
                request = self._http.build_request(method, answer.next_request.url)
                answer = self._http.send(request)
        except httpx2.TransportError as error:
            raise BrokerStartError(f"no answer from {request.url}: {error}") from error
        if answer.status_code in (httpx2.codes.BAD_REQUEST, httpx2.codes.NOT_FOUND):
            raise InvalidUse(f"{method} {request.url}: {answer.status_code} {answer.text[:300]}")
        if not answer.is_success:
            raise BrokerStartError(f"{method} {request.url}: {answer.status_code} {answer.text[:300]}")
        return answer


def insist(step: Callable[[], T | None], seconds: float, what: str) -> T:
    """Take a step until it gives something, and return that: brokers refuse some while a bundle changes hands.

    Raises:
        BrokerStartError: it was not done in so many seconds; the message says what, and what was refused last.
    """
    deadline = time.monotonic() + seconds
    while True:
        refused = ""
        try:
            if (result := step()) is not None:
                return result
        except BrokerStartError as error:
            refused = f"; the last refusal: {error}"
        if time.monotonic() > deadline:
            raise BrokerStartError(f"{what} in {seconds:.0f} s{refused}")
        time.sleep(_AGAIN_SECONDS)
