"""Arguments that several commands share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Parameter

from pulsar_ext.client.authentication import AuthenticationTLS, AuthenticationToken
from pulsar_ext.errors import InvalidUse

__all__ = ["LOCAL_URL", "Access", "AdminUrl", "Json", "Token", "Url"]

LOCAL_URL = "pulsar://localhost:6650"

Url = Annotated[str, Parameter(env_var="PULSAR_EXT_URL")]
AdminUrl = Annotated[str | None, Parameter(env_var=("PULSAR_EXT_ADMIN_URL", "PULSAR_ADMIN_URL"))]
Token = Annotated[str | None, Parameter(env_var="PULSAR_EXT_TOKEN", show=False)]
Json = Annotated[bool, Parameter(name="--json", negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class Access:
    """What a command gets in with.

    Args:
        token: to authenticate with, best given by the environment.
        trust_certs: the file of the authority whose certificates are trusted, where the broker speaks TLS.
        certificate: the file of a client certificate, to authenticate with.
        key: the file of its key.
    """

    token: Annotated[str | None, Parameter(env_var="PULSAR_EXT_TOKEN", show=False)] = field(default=None, repr=False)
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
