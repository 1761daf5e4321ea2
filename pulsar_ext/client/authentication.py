"""The official authentications, with credentials that the derived admin API can use.

The official classes pass their arguments to the C++ client, which does not expose them. These subclasses keep them, so
`import pulsar_ext as pulsar` is sufficient. With an official object the admin API must be passed explicitly; any
operation that needs it raises before it changes anything.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.admin import Oauth2Tokens
from pulsar_ext.errors import AdminRequired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of an authentication for the admin API; its repr shows no secret.

    Args:
        token: a bearer token, or its supplier.
        basic: user and password.
        certificate: the paths of the client's certificate and key.
    """

    token: str | Callable[[], str] | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    certificate: tuple[str, str] | None = None

    @property
    def has_secret(self) -> bool:
        """True if requests carry a secret; a certificate's key is never sent."""
        return self.token is not None or self.basic is not None


class AuthenticationToken(pulsar.AuthenticationToken):  # type: ignore[misc]  # the official client has no type hints
    """The official token authentication."""

    def __init__(self, token: Any) -> None:
        self.failure: Exception | None = None
        """Last exception of the token supplier."""
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

    def credentials(self, _trust_certs_file_path: str | None) -> Credentials:
        """Return the token or its supplier."""
        return Credentials(token=self._token)


class AuthenticationTLS(pulsar.AuthenticationTLS):  # type: ignore[misc]  # the official client has no type hints
    """The official authentication by a client certificate."""

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        super().__init__(certificate_path, private_key_path)
        self._paths = (certificate_path, private_key_path)

    def __repr__(self) -> str:
        return f"AuthenticationTLS{self._paths!r}"

    def credentials(self, _trust_certs_file_path: str | None) -> Credentials:
        """Return the paths of the certificate and the key."""
        return Credentials(certificate=self._paths)


class AuthenticationBasic(pulsar.AuthenticationBasic):  # type: ignore[misc]  # the official client has no type hints
    """The official authentication by user and password."""

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ) -> None:
        super().__init__(username, password, method, auth_params_string)
        if auth_params_string is not None:
            values = json.loads(auth_params_string)  # validated by the C++ client: an object with both
            username, password = values["username"], values["password"]
        self._basic = (str(username), str(password))

    def __repr__(self) -> str:
        return "AuthenticationBasic(<hidden>)"

    def credentials(self, _trust_certs_file_path: str | None) -> Credentials:
        """Return the user and the password."""
        return Credentials(basic=self._basic)


class AuthenticationOauth2(pulsar.AuthenticationOauth2):  # type: ignore[misc]  # the official client has no type hints
    """The official authentication by OAuth 2.0's client credentials."""

    def __init__(self, auth_params_string: str) -> None:
        super().__init__(auth_params_string)
        self._parameters = auth_params_string

    def __repr__(self) -> str:
        return "AuthenticationOauth2(<hidden>)"

    def credentials(self, trust_certs_file_path: str | None) -> Credentials:
        """Return a supplier of access tokens, with the client's trusted CAs."""
        return Credentials(token=Oauth2Tokens(self._parameters, trust_certs_file_path))


_OURS = (AuthenticationToken, AuthenticationTLS, AuthenticationBasic, AuthenticationOauth2)
_ADMIN_ARGUMENTS = {
    "AuthenticationToken": "token=…",
    "AuthenticationTLS": "tls_certificate_file_path=…, tls_private_key_file_path=…",
    "AuthenticationBasic": "basic=(user, password)",
    "AuthenticationOauth2": "token=pulsar_ext.admin.Oauth2Tokens(…)",
}


@contextlib.contextmanager
def authentication_error_details(authentication: Any) -> Iterator[None]:
    """Add the exception of the token supplier to an `AuthenticationError`; C++ omits it for several topics.

    Args:
        authentication: the client's authentication; an official object has no details.
    """
    try:
        yield
    except pulsar.AuthenticationError as error:
        why = getattr(authentication, "failure", None)
        if why is None or str(why) in str(error):
            raise
        raise type(error)(f"{error}: {type(why).__name__}: {why}") from why


def credentials_of(authentication: Any, trust_certs_file_path: str | None) -> Credentials:
    """Return the credentials of a client's authentication for the admin API.

    Args:
        authentication: the client's authentication, or None.
        trust_certs_file_path: the client's trusted CAs.

    Raises:
        AdminRequired: it is not one of this library's classes, so its arguments are unknown.
        InvalidUse: an argument is missing.
    """
    if authentication is None:
        return Credentials()
    if isinstance(authentication, _OURS):
        return authentication.credentials(trust_certs_file_path)
    kind = next((name for name in _ADMIN_ARGUMENTS if isinstance(authentication, getattr(pulsar, name))), None)
    advice = f"use pulsar_ext.{kind}, or pass " if kind is not None else "pass "
    raise AdminRequired(
        f"The admin API is needed, but the client's {type(authentication).__name__} does not expose its arguments, "
        f"so the admin API's credentials are unknown. Nothing was changed; {advice}"
        f"Client(admin=PulsarAdmin(url, {_ADMIN_ARGUMENTS.get(kind or '', '…')}))."
    )
