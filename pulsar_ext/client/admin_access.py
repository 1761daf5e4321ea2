"""The admin API that a client may ask, derived from its arguments and the environment."""

from __future__ import annotations

import os
from typing import Any

import pulsar

from pulsar_ext.admin import PulsarAdmin, derive_admin_url
from pulsar_ext.errors import AdminUnavailable, InvalidUse

__all__ = ["AuthenticationToken", "admin_at", "derive_admin"]

_ADMIN_SECONDS = 5.0


class AuthenticationToken(pulsar.AuthenticationToken):  # type: ignore[misc]  # the official client ships no types
    """The official token authentication, which the derived admin API uses as well."""

    def __init__(self, token: Any) -> None:
        self.failure: Exception | None = None
        """What the supplier of the token raised last: the C++ client says no more than that it failed."""
        super().__init__(self._supply if callable(token) else token)
        self._token: Any = token

    def _supply(self) -> Any:
        try:
            token = self._token()
        except Exception as error:
            self.failure = error
            raise
        self.failure = None
        return token

    def __repr__(self) -> str:
        return "AuthenticationToken(<hidden>)"


def admin_at(url: str, arguments: dict[str, Any]) -> PulsarAdmin:
    """Make the admin API at a URL, with the credentials of a client's arguments."""
    authentication = arguments["authentication"]
    return PulsarAdmin(
        url,
        token=authentication._token if isinstance(authentication, AuthenticationToken) else None,  # noqa: SLF001
        tls_trust_certs_file_path=arguments["tls_trust_certs_file_path"],
        tls_allow_insecure_connection=arguments["tls_allow_insecure_connection"],
        timeout_seconds=_ADMIN_SECONDS,
        deadline_seconds=_ADMIN_SECONDS,
    )


def derive_admin(arguments: dict[str, Any]) -> PulsarAdmin:
    """Take the environment's admin URL, else that of the service URL.

    Raises:
        InvalidUse: the environment's is not a URL.
        AdminUnavailable: no URL can be derived.
    """
    if url := os.environ.get("PULSAR_ADMIN_URL"):
        try:
            return admin_at(url, arguments)
        except InvalidUse as error:
            raise InvalidUse(f"The environment's PULSAR_ADMIN_URL cannot be used. {error}") from None
    service_url = arguments["service_url"]
    try:
        return admin_at(derive_admin_url(service_url if isinstance(service_url, str) else "(changing)"), arguments)
    except InvalidUse as error:
        raise AdminUnavailable(
            f"No admin API can be derived from the service URL: {error} Give Client(admin=…) or PULSAR_ADMIN_URL."
        ) from None
