"""Arguments that several commands share, and the admin API and the client that they open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import pulsar
from cyclopts import Parameter

from pulsar_ext.admin import PulsarAdmin, derive_admin_url
from pulsar_ext.client.authentication import AuthenticationTLS, AuthenticationToken
from pulsar_ext.errors import InvalidMessageId, InvalidUse
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId

if TYPE_CHECKING:
    from pulsar_ext import Client


LOCAL_URL = "pulsar://localhost:6650"
DEFAULT_PICTURE = Path("ranges.png")
"""Default file of a picture of slots; without matplotlib it is not drawn."""

Flag = Annotated[bool, Parameter(negative="")]
Url = Annotated[
    str | None,
    Parameter(
        name=("--url", "--service-url"),
        env_var=("PULSAR_URL", "PULSAR_EXT_URL"),
        negative="",
        help=f"URL of the broker. The default is {LOCAL_URL}, for `ids` and `skip` on the host of the admin API.",
    ),
]
AdminUrl = Annotated[
    str | None,
    Parameter(
        env_var=("PULSAR_ADMIN_URL", "PULSAR_EXT_ADMIN_URL"),
        help="URL of the admin REST API. The default is port 8080 on the broker's host; it is required with a token.",
    ),
]
Token = Annotated[
    str | None,
    Parameter(
        env_var=("PULSAR_TOKEN", "PULSAR_EXT_TOKEN"),
        show=False,
        help="The token to authenticate with. Set it in the environment variable PULSAR_TOKEN.",
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON instead of text.")]
Watch = Annotated[
    bool,
    Parameter(
        negative="",
        help="Repeat until Ctrl-C, also while the broker does not answer. With --json it prints one line each time.",
    ),
]
Html = Annotated[Path | None, Parameter(negative="", help="File for a self-contained page with the result.")]
Png = Annotated[
    Path | None,
    Parameter(
        negative_none="no-",
        help="File for a picture of the slots and the ranges, which needs the extra `bench`. --no-png draws none.",
    ),
]
Backend = Annotated[
    Literal["auto", "docker", "process"] | None,
    Parameter(
        help="What a broker runs in: a Docker container, or a Java process. The default, `auto`, is Docker if an "
        "engine answers, and can be set by PULSAR_EXT_BACKEND."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Reach:
    """Broker and admin API of a command, its credentials, and the certificates that it trusts.

    Args:
        trust_certs: File of the authority that signed the broker's certificate. Needed if the broker uses TLS with an
            authority of its own.
        certificate: File of the client certificate to authenticate with. Needs --key as well.
        key: File of the private key that belongs to --certificate.
    """

    url: Url = None
    admin_url: AdminUrl = None
    token: Token = field(default=None, repr=False)
    trust_certs: Annotated[str | None, Parameter(env_var="PULSAR_EXT_TRUST_CERTS")] = None
    certificate: Annotated[str | None, Parameter(env_var="PULSAR_EXT_CERTIFICATE")] = None
    key: Annotated[str | None, Parameter(env_var="PULSAR_EXT_KEY")] = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidUse("a client certificate needs its key: pass both --certificate and --key")

    def find_admin_url(self) -> str:
        """Return the URL of the admin API, by default the usual port of the broker's host."""
        return self.admin_url or derive_admin_url(self.url or LOCAL_URL, has_secret=self.token is not None)

    def open_admin(self) -> PulsarAdmin:
        """Open the admin API."""
        return PulsarAdmin(
            self.find_admin_url(),
            token=self.token,
            tls_trust_certs_file_path=self.trust_certs,
            tls_certificate_file_path=self.certificate,
            tls_private_key_file_path=self.key,
        )

    def open_client(self, url: str, admin: PulsarAdmin | str | None) -> Client:
        """Open a client that logs errors only."""
        from pulsar_ext import Client  # noqa: PLC0415  # loaded only by the command that needs it

        authentication = None
        if self.token is not None:
            authentication = AuthenticationToken(self.token)
        elif self.certificate is not None and self.key is not None:
            authentication = AuthenticationTLS(self.certificate, self.key)
        try:
            return Client(
                url,
                admin=admin,
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
                authentication=authentication,
                tls_trust_certs_file_path=self.trust_certs,
                tls_validate_hostname=self.trust_certs is not None,
            )
        except InvalidUse:
            raise
        except ValueError as error:  # raised by the C++ client
            raise InvalidUse(f"{url!r} is not a valid broker URL ({error}); pass --url pulsar://host:6650") from error

    @contextlib.contextmanager
    def connected(self) -> Iterator[tuple[Client, PulsarAdmin]]:
        """Open a client and its admin API."""
        with (
            self.open_admin() as admin,
            self.open_client(self.url or _service_of(self.find_admin_url()), admin) as client,
        ):
            yield client, admin


LOCAL = Reach()
"""Broker on this machine, or that of the environment."""


def read_pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """Return the values of a repeated option, NAME=VALUE, by their names."""
    found = {}
    for one in given:
        name, separator, found[name] = one.partition("=")
        if not separator:
            raise InvalidUse(f"{option} must be NAME=VALUE, got {one!r}")
    return found


def read_id(form: tuple[str, ...]) -> MessageId | ChunkMessageId:
    """Return the id that a form represents (pure)."""
    if len(form) == 1 and (":" in form[0] or "," in form[0]):
        return MessageId.parse(form[0])
    try:
        if len(form) == 1:
            return MessageId.deserialize(bytes.fromhex(form[0]))
        if 2 <= len(form) <= 4:  # noqa: PLR2004  # ledger, entry, optional partition and batch index
            ledger, entry, *rest = map(int, form)
            partition, batch_index = [*rest, -1, -1][:2]
            return MessageId(partition, ledger, entry, batch_index)
    except InvalidMessageId:
        raise
    except ValueError:  # neither hexadecimal nor numbers
        pass
    raise InvalidMessageId(
        f"{' '.join(form)!r} is not a message id; pass text (5:7:-1), hexadecimal bytes (080510073000), "
        "or LEDGER ENTRY [PARTITION [BATCH_INDEX]]"
    )


def _service_of(admin_url: str) -> str:
    """Return the service URL with the usual port of each host of an admin URL, which was parsed before."""
    scheme, _, rest = admin_url.partition("://")
    name, port = ("pulsar+ssl", 6651) if scheme.lower() == "https" else ("pulsar", 6650)
    texts = rest.partition("/")[0].rpartition("@")[2].split(",")
    hosts = [urlsplit(f"//{text}").hostname or "" for text in texts]
    return f"{name}://" + ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)
