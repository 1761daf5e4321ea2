"""Arguments that several commands share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Parameter

from pulsar_ext.client.authentication import AuthenticationTLS, AuthenticationToken
from pulsar_ext.errors import InvalidUse

__all__ = ["LOCAL_URL", "Access", "AdminUrl", "Json", "Token", "Url", "UrlOrNone"]

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
    """How a command proves who it is, and whom it trusts.

    Args:
        token: The token to authenticate with. Give it by the environment variable PULSAR_TOKEN.
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
            raise InvalidUse("a client certificate and its key belong together: give both --certificate and --key")

    def client_options(self) -> dict[str, Any]:
        """Give the arguments of a client."""
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
        """Give the arguments of a `PulsarAdmin`."""
        options: dict[str, Any] = {"token": self.token, "tls_trust_certs_file_path": self.trust_certs}
        options["tls_certificate_file_path"], options["tls_private_key_file_path"] = self.certificate, self.key
        return options
