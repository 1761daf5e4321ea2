"""The official authentications, with credentials that the derived admin API can use.

The official classes pass their arguments to the C++ client, which does not expose them; these subclasses keep them.
With an official object the admin API must be passed: an operation that needs it raises before it changes anything.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pulsar

from pulsar_ext.admin import Oauth2Tokens
from pulsar_ext.errors import AdminRequired


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials for the admin API: a bearer token or its supplier, a user and password, paths of certificate and key.

    The repr shows no secret.
    """

    token: str | Callable[[], str] | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    certificate: tuple[str, str] | None = None

    @property
    def has_secret(self) -> bool:
        """True if requests carry a secret; a certificate's key is never sent."""
        return self.token is not None or self.basic is not None


class _Keeping:
    """Base of authentications that keep the credentials for the admin API."""

    _kept: Credentials

    def credentials(self, _: str | None) -> Credentials:
        """Return the credentials; an argument is the path of the client's trusted CAs."""
        return self._kept

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._kept.certificate or '(<hidden>)'}"


class AuthenticationToken(_Keeping, pulsar.AuthenticationToken):  # type: ignore[misc]  # untyped
    """The official token authentication."""

    def __init__(self, token: str | Callable[[], str]) -> None:
        self.failure: Exception | None = None
        """Last exception of the token supplier."""
        super().__init__(partial(self._supply, token) if callable(token) else token)
        self._kept = Credentials(token=token)

    def _supply(self, supplier: Callable[[], str]) -> str:
        try:
            token = supplier()
        except Exception as error:
            self.failure = error
            raise
        self.failure = None
        return token


class AuthenticationTLS(_Keeping, pulsar.AuthenticationTLS):  # type: ignore[misc]  # untyped
    """The official authentication by a client certificate."""

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        super().__init__(certificate_path, private_key_path)
        self._kept = Credentials(certificate=(certificate_path, private_key_path))


class AuthenticationBasic(_Keeping, pulsar.AuthenticationBasic):  # type: ignore[misc]  # untyped
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
        self._kept = Credentials(basic=(str(username), str(password)))


class AuthenticationOauth2(_Keeping, pulsar.AuthenticationOauth2):  # type: ignore[misc]  # untyped
    """The official authentication by OAuth 2.0's client credentials."""

    def __init__(self, auth_params_string: str) -> None:
        super().__init__(auth_params_string)
        self._kept, self._parameters = Credentials(), auth_params_string

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
def authentication_error_details(authentication: object) -> Iterator[None]:
    """Add the exception of our token supplier to an `AuthenticationError`; C++ omits it for several topics."""
    try:
        yield
    except pulsar.AuthenticationError as error:
        why = getattr(authentication, "failure", None)
        if why is None or str(why) in str(error):
            raise
        raise type(error)(f"{error}: {type(why).__name__}: {why}") from why


def credentials_of(authentication: object, trust_certs_file_path: str | None) -> Credentials:
    """Return the credentials for the admin API; raise `AdminRequired` for an official object, which hides them."""
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
