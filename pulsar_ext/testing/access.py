"""Credentials and TLS options of a test broker for each kind of client, and detours to it for fault proxies.

A look-up returns a broker's own address, past any proxy. So that each test can put fault proxies in front of all
brokers, a broker listens on an extra port for each detour. To clients of that port it advertises the address of the
detour's proxy. A process holds a detour by binding the detour's lock port.
"""

from __future__ import annotations

import functools
import socket
import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from pulsar_ext.errors import BrokerStartError, InvalidUse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from .profiles import Authentication

Options: TypeAlias = dict[str, Any]
"""Keyword arguments of a client."""


@dataclass(frozen=True)
class Access:
    """Superuser's access to a broker. It is passed to the other processes of a run; no repr shows its secrets.

    Args:
        kind: kind of authentication; None without authentication.
        token: the superuser's token, which the broker accepts for every kind but `certificate`.
        basic: the superuser's name and password, for `basic`.
        oauth2: the argument of `AuthenticationOauth2`, for `oauth2`.
        trust_certs: path of the authority's certificate, if the broker uses TLS.
        certificate: paths of the superuser's certificate and key, for `certificate`.
    """

    kind: Authentication | None = None
    token: str | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    oauth2: str | None = field(default=None, repr=False)
    trust_certs: str | None = None
    certificate: tuple[str, str] | None = None

    @property
    def authentication(self) -> tuple[str, tuple[str, ...]] | None:
        """Name and arguments of the authentication class; None without authentication."""
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
    def tls_options(self) -> Options:
        """TLS arguments of a client."""
        if self.trust_certs is None:
            return {}
        return {"tls_trust_certs_file_path": self.trust_certs, "tls_validate_hostname": True}

    def client_options(self, module: ModuleType) -> Options:
        """Return the arguments of a client of `pulsar` or `pulsar_ext`, with that module's authentication."""
        options = self.tls_options
        if self.authentication is not None:
            name, arguments = self.authentication
            options["authentication"] = getattr(module, name)(*arguments)
        return options

    def admin_options(self) -> Options:
        """Return the arguments of a `PulsarAdmin`."""
        options = self.tls_options
        if self.certificate is not None:
            options["tls_certificate_file_path"], options["tls_private_key_file_path"] = self.certificate
        elif self.kind == "basic":
            options["basic"] = self.basic
        elif self.token is not None:
            options["token"] = self.token
        return options

    def http_options(self) -> Options:
        """Return the arguments of an HTTP client for the admin REST API."""
        # HTTP proxies of the environment do not apply to a local broker.
        options: Options = {"trust_env": False}
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
    """Return a context that trusts the system's authorities; cached, because reading them is slower than a request."""
    return ssl.create_default_context()


class Route(NamedTuple):
    """Port on which a proxy listens, and the broker's host and port to which it forwards."""

    port: int
    host: str
    target: int


class Detour(NamedTuple):
    """Routes through proxies to each broker of a cluster; who holds the detour has bound its port `lock`."""

    lock: int
    routes: tuple[Route, ...]
    scheme: str = "pulsar"


@dataclass(frozen=True)
class Address:
    """Address of a shared broker, and its access."""

    service_url: str
    admin_url: str
    back_end: str
    version: str
    access: Access = field(default_factory=Access)
    detours: tuple[Detour, ...] = ()


def lease(detours: Sequence[Detour]) -> tuple[Detour, socket.socket]:
    """Take a free detour, until the socket is closed or the process ends."""
    for detour in detours:
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", detour.lock))
        except OSError:
            held.close()
        else:
            return detour, held
    raise BrokerStartError(f"all {len(detours)} detours of the cluster are in use; close other proxies first")


def parse_service_url(service_url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of the URL of one broker."""
    parts = urlsplit(service_url)
    if "," in parts.netloc:
        raise InvalidUse(f"look-ups at {service_url} bypass a proxy; pass the broker's detours, or use the fixture")
    return parts.scheme, parts.hostname or "localhost", parts.port or 6650
