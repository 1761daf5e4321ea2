"""What a client of a test broker needs besides its URLs, in the words of each kind of client, and detours to it.

What a look-up says leads clients straight to a broker, past any proxy. So that each test can have fault proxies of its
own before all of its brokers, a broker listens on one more port for each detour, and tells whoever comes in there the
address of that detour's proxy. Whoever holds a detour puts proxies there; it is held by binding a port of its own, in
whatever process.
"""

from __future__ import annotations

import functools
import socket
import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from pulsar_ext.errors import BrokerStartError, InvalidUse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from .profiles import Authentication


@dataclass(frozen=True)
class Access:
    """How the superuser gets in. It travels to the other processes of a run; its secrets show in no repr.

    Args:
        kind: how clients prove who they are; None if they do not.
        token: the superuser's token, which the broker takes for every kind but `certificate`.
        basic: the superuser's name and password, for `basic`.
        oauth2: the argument of `AuthenticationOauth2`, for `oauth2`.
        trust_certs: the path of the authority's certificate, where the broker speaks TLS.
        certificate: the paths of the superuser's certificate and key, for `certificate`.
    """

    kind: Authentication | None = None
    token: str | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    oauth2: str | None = field(default=None, repr=False)
    trust_certs: str | None = None
    certificate: tuple[str, str] | None = None

    @property
    def authentication(self) -> tuple[str, tuple[str, ...]] | None:
        """The name of the authentication's class, and its arguments; None without authentication."""
        if self.kind == "token" and self.token is not None:
            return "AuthenticationToken", (self.token,)
        if self.kind == "certificate" and self.certificate is not None:
            return "AuthenticationTLS", self.certificate
        if self.kind == "basic" and self.basic is not None:
            return "AuthenticationBasic", self.basic
        if self.kind == "oauth2" and self.oauth2 is not None:
            return "AuthenticationOauth2", (self.oauth2,)
        return None

    @property
    def tls_options(self) -> dict[str, Any]:
        """The arguments of a client that are about TLS."""
        if self.trust_certs is None:
            return {}
        return {"tls_trust_certs_file_path": self.trust_certs, "tls_validate_hostname": True}

    def client_options(self, module: ModuleType) -> dict[str, Any]:
        """Give the arguments of a client of `pulsar` or `pulsar_ext`, with that module's authentication."""
        options = dict(self.tls_options)
        if self.authentication is not None:
            name, arguments = self.authentication
            options["authentication"] = getattr(module, name)(*arguments)
        return options

    def admin_options(self) -> dict[str, Any]:
        """Give the arguments of a `PulsarAdmin`."""
        options: dict[str, Any] = dict(self.tls_options)
        if self.certificate is not None:
            options["tls_certificate_file_path"], options["tls_private_key_file_path"] = self.certificate
        elif self.kind == "basic":
            options["basic"] = self.basic
        elif self.token is not None:
            options["token"] = self.token
        return options

    def http_options(self) -> dict[str, Any]:
        """Give the arguments of an HTTP client that asks the admin REST API."""
        # The environment's HTTP proxies are for the outside world, not for a broker of our own.
        options: dict[str, Any] = {"trust_env": False}
        if self.kind == "basic" and self.basic is not None:
            encoded = b64encode(":".join(self.basic).encode()).decode()
            options["headers"] = {"Authorization": f"Basic {encoded}"}
        elif self.token is not None:
            options["headers"] = {"Authorization": f"Bearer {self.token}"}
        if self.trust_certs is None:
            options["verify"] = _system_trust()
        else:
            options["verify"] = context = ssl.create_default_context(cafile=self.trust_certs)
            if self.certificate is not None:
                context.load_cert_chain(*self.certificate)
        return options


@functools.cache
def _system_trust() -> ssl.SSLContext:
    """Return what trusts the system's authorities; reading them costs more than a request."""
    return ssl.create_default_context()


class Route(NamedTuple):
    """From a port where a proxy listens to a broker."""

    port: int
    host: str
    target: int


class Detour(NamedTuple):
    """A way round to every broker of a cluster.

    Args:
        lock: the port that its holder binds.
        routes: one for each broker.
        scheme: of the service URL.
    """

    lock: int
    routes: tuple[Route, ...]
    scheme: str = "pulsar"


def lease(detours: Sequence[Detour]) -> tuple[Detour, socket.socket]:
    """Take a detour that nobody has, until the socket is closed or the process ends.

    Raises:
        BrokerStartError: all of them are taken.
    """
    for detour in detours:
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", detour.lock))
        except OSError:
            held.close()
        else:
            return detour, held
    raise BrokerStartError(f"all {len(detours)} detours of the cluster are taken: close other proxies before it")


def way_to(service_url: str) -> tuple[str, str, int]:
    """Return the scheme, the host and the port of a URL of one broker.

    Raises:
        InvalidUse: it has several.
    """
    parts = urlsplit(service_url)
    if "," in parts.netloc:
        raise InvalidUse(f"look-ups at {service_url} lead past a proxy: give the broker's detours, or use its fixture")
    return parts.scheme, parts.hostname or "localhost", parts.port or 6650
