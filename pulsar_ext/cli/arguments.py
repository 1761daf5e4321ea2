"""Arguments that several commands share, and the admin API and the client that they open."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from cyclopts import Parameter

from pulsar_ext.client.authentication import AuthenticationTLS, AuthenticationToken
from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext import Client, PulsarAdmin


LOCAL_URL = "pulsar://localhost:6650"

_URL = Parameter(name=("--url", "--service-url"), env_var=("PULSAR_URL", "PULSAR_EXT_URL"), negative="")

Url = Annotated[str, _URL]
UrlOrNone = Annotated[str | None, _URL]
AdminUrl = Annotated[str | None, Parameter(env_var=("PULSAR_ADMIN_URL", "PULSAR_EXT_ADMIN_URL"))]
Token = Annotated[str | None, Parameter(env_var=("PULSAR_TOKEN", "PULSAR_EXT_TOKEN"), show=False)]
Json = Annotated[bool, Parameter(name="--json", negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class Access:
    """Credentials of a command, and the certificates that it trusts.

    Args:
        token: The token to authenticate with. Set it in the environment variable PULSAR_TOKEN.
        trust_certs: File of the authority that signed the broker's certificate. Needed if the broker uses TLS with an
            authority of its own.
        certificate: File of the client certificate to authenticate with. Needs --key as well.
        key: File of the private key that belongs to --certificate.
    """

    token: Token = field(default=None, repr=False)
    trust_certs: Annotated[str | None, Parameter(env_var="PULSAR_EXT_TRUST_CERTS")] = None
    certificate: Annotated[str | None, Parameter(env_var="PULSAR_EXT_CERTIFICATE")] = None
    key: Annotated[str | None, Parameter(env_var="PULSAR_EXT_KEY")] = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidUse("a client certificate needs its key: pass both --certificate and --key")

    def client_options(self) -> dict[str, Any]:
        """Return the arguments of a client."""
        options: dict[str, Any] = {}
        if self.trust_certs is not None:
            options["tls_trust_certs_file_path"] = self.trust_certs
            options["tls_validate_hostname"] = True
        if self.token is not None:
            options["authentication"] = AuthenticationToken(self.token)
        elif self.certificate is not None and self.key is not None:
            options["authentication"] = AuthenticationTLS(self.certificate, self.key)
        return options

    def admin_options(self) -> dict[str, Any]:
        """Return the arguments of a `PulsarAdmin`."""
        options: dict[str, Any] = {"token": self.token, "tls_trust_certs_file_path": self.trust_certs}
        options["tls_certificate_file_path"], options["tls_private_key_file_path"] = self.certificate, self.key
        return options


def open_admin(url: str, admin_url: str | None, access: Access) -> PulsarAdmin:
    """Open the admin API at its own URL, or by default at the usual port of the broker's host."""
    from pulsar_ext.admin import PulsarAdmin  # noqa: PLC0415  # loaded only if needed

    return PulsarAdmin(_admin_url_of(url, admin_url, access), **access.admin_options())


def open_client(url: str, admin: PulsarAdmin | str | None, access: Access) -> Client:
    """Open a client that logs errors only.

    Raises:
        InvalidUse: the URL is not a broker's.
    """
    import pulsar  # noqa: PLC0415  # loaded only by the command that needs it

    from pulsar_ext import Client  # noqa: PLC0415  # loaded only by the command that needs it

    options = access.client_options()
    try:
        return Client(url, admin=admin, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **options)
    except InvalidUse:
        raise
    except ValueError as error:  # raised by the C++ client
        raise InvalidUse(f"{url!r} is not a valid broker URL ({error}); pass --url pulsar://host:6650") from error


@contextlib.contextmanager
def connected(admin_url: str | None, url: str | None, access: Access) -> Iterator[tuple[Client, PulsarAdmin]]:
    """Open a client and its admin API."""
    admin_url = _admin_url_of(url or LOCAL_URL, admin_url, access)
    with (
        open_admin(url or LOCAL_URL, admin_url, access) as admin,
        open_client(url or _service_of(admin_url), admin, access) as client,
    ):
        yield client, admin


def _admin_url_of(url: str, admin_url: str | None, access: Access) -> str:
    from pulsar_ext.admin import derive_admin_url  # noqa: PLC0415  # loaded only if needed

    return admin_url or derive_admin_url(url, has_secret=access.token is not None)


def _service_of(admin_url: str) -> str:
    """Return the service URL with the usual port of each host of an admin URL, which was parsed before."""
    scheme, _, rest = admin_url.partition("://")
    name, port = ("pulsar+ssl", 6651) if scheme.lower() == "https" else ("pulsar", 6650)
    texts = rest.partition("/")[0].rpartition("@")[2].split(",")
    hosts = [urlsplit(f"//{text}").hostname or "" for text in texts]
    return f"{name}://" + ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)
