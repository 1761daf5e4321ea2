"""The admin API that a client may ask, derived from its arguments and the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pulsar_ext.admin import PulsarAdmin, derive_admin_url
from pulsar_ext.errors import AdminRequired, AdminUnavailable, InvalidUse

from .authentication import credentials_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .authentication import Credentials

__all__ = ["admin_at", "derive_admin"]

_ADMIN_SECONDS = 5.0


def admin_at(url: str | Sequence[str], arguments: dict[str, Any]) -> PulsarAdmin:
    """Make the admin API at a URL, or at several of one cluster, with the credentials of a client's arguments.

    Raises:
        InvalidUse: it is no admin URL.
        AdminRequired: the credentials are not known.
    """
    trust = arguments["tls_trust_certs_file_path"]
    return _admin(url, arguments, credentials_of(arguments["authentication"], trust))


def derive_admin(
    arguments: dict[str, Any], same_cluster: Callable[[PulsarAdmin, str], PulsarAdmin] = lambda admin, _: admin
) -> PulsarAdmin:
    """Take the environment's admin URL, else that of the service URL.

    Args:
        arguments: the client's, by name.
        same_cluster: gives the environment's admin API, named second, with a check that it is the client's cluster's.

    Raises:
        InvalidUse: the environment's is not a URL.
        AdminRequired: the credentials are not known, or would go over plain http to a port that nobody named.
        AdminUnavailable: no URL can be derived.
    """
    if url := os.environ.get("PULSAR_ADMIN_URL"):
        try:
            return same_cluster(admin_at(url, arguments), "The environment's PULSAR_ADMIN_URL")
        except AdminRequired:
            raise
        except InvalidUse as error:
            raise InvalidUse(f"The environment's PULSAR_ADMIN_URL cannot be used. {error}") from None
    service_url = arguments["service_url"]
    if not isinstance(service_url, str):
        raise AdminUnavailable(
            "No admin API can be derived from a service URL that changes. Give Client(admin=…) or PULSAR_ADMIN_URL."
        )
    credentials = credentials_of(arguments["authentication"], arguments["tls_trust_certs_file_path"])
    return _admin(derive_admin_url(service_url, {}, has_secret=credentials.has_secret), arguments, credentials)


def _admin(url: str | Sequence[str], arguments: dict[str, Any], credentials: Credentials) -> PulsarAdmin:
    trust = arguments["tls_trust_certs_file_path"]
    certificate, key = credentials.certificate or (
        arguments["tls_certificate_file_path"],
        arguments["tls_private_key_file_path"],
    )
    return PulsarAdmin(
        url,
        token=credentials.token,
        basic=credentials.basic,
        tls_trust_certs_file_path=trust,
        tls_allow_insecure_connection=arguments["tls_allow_insecure_connection"],
        # Whoever names its own authority may have certificates without names; one that anybody can have a certificate
        # of proves nothing but the name.
        tls_validate_hostname=arguments["tls_validate_hostname"] or trust is None,
        tls_certificate_file_path=certificate,
        tls_private_key_file_path=key,
        timeout_seconds=_ADMIN_SECONDS,
        deadline_seconds=_ADMIN_SECONDS,
    )
