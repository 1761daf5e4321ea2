"""The official authentications, which the derived admin API uses as well.

The official classes hand their arguments to the C++ client, where nobody can read them. These keep them, so that
`import pulsar_ext as pulsar` is all it takes. Of an official object nothing is known: where it was given, the admin API
has to be given too, and whatever needs it says so before anything is changed.
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
    """What the admin API is given of an authentication; no secret shows in its repr.

    Args:
        token: a bearer token, or what supplies it.
        basic: user and password.
        certificate: the paths of the client's certificate and of its key.
    """

    token: str | Callable[[], str] | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    certificate: tuple[str, str] | None = None

    @property
    def has_secret(self) -> bool:
        """Whether a request carries what others must not see; a certificate's key never leaves this process."""
        return self.token is not None or self.basic is not None


class AuthenticationToken(pulsar.AuthenticationToken):  # type: ignore[misc]  # the official client ships no types
    """The official token authentication."""

    def __init__(self, token: Any) -> None:
        self.failure: Exception | None = None
        """What the supplier of the token raised last."""
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
        """Give the token, or its supplier."""
        return Credentials(token=self._token)


class AuthenticationTLS(pulsar.AuthenticationTLS):  # type: ignore[misc]  # likewise
    """The official authentication by a client certificate."""

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        super().__init__(certificate_path, private_key_path)
        self._paths = (certificate_path, private_key_path)

    def __repr__(self) -> str:
        return f"AuthenticationTLS{self._paths!r}"

    def credentials(self, _trust_certs_file_path: str | None) -> Credentials:
        """Give the paths of certificate and key."""
        return Credentials(certificate=self._paths)


class AuthenticationBasic(pulsar.AuthenticationBasic):  # type: ignore[misc]  # likewise
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
            values = json.loads(auth_params_string)  # the C++ client has read it: it is an object with both
            username, password = values["username"], values["password"]
        self._basic = (str(username), str(password))

    def __repr__(self) -> str:
        return "AuthenticationBasic(<hidden>)"

    def credentials(self, _trust_certs_file_path: str | None) -> Credentials:
        """Give user and password."""
        return Credentials(basic=self._basic)


class AuthenticationOauth2(pulsar.AuthenticationOauth2):  # type: ignore[misc]  # likewise
    """The official authentication by OAuth 2.0's client credentials."""

    def __init__(self, auth_params_string: str) -> None:
        super().__init__(auth_params_string)
        self._parameters = auth_params_string

    def __repr__(self) -> str:
        return "AuthenticationOauth2(<hidden>)"

    def credentials(self, trust_certs_file_path: str | None) -> Credentials:
        """Give a supplier of access tokens, which trusts whom the client trusts."""
        return Credentials(token=Oauth2Tokens(self._parameters, trust_certs_file_path))


_OURS = (AuthenticationToken, AuthenticationTLS, AuthenticationBasic, AuthenticationOauth2)
_HAND_OVER = {
    "AuthenticationToken": "token=…",
    "AuthenticationTLS": "tls_certificate_file_path=…, tls_private_key_file_path=…",
    "AuthenticationBasic": "basic=(user, password)",
    "AuthenticationOauth2": "token=pulsar_ext.admin.Oauth2Tokens(…)",
}


@contextlib.contextmanager
def telling_why(authentication: Any) -> Iterator[None]:
    """Have an `AuthenticationError` say what the supplier of the token raised; of several topics C++ does not say it.

    Args:
        authentication: what the client was given; only of this library's own it is known.
    """
    try:
        yield
    except pulsar.AuthenticationError as error:
        why = getattr(authentication, "failure", None)
        if why is None or str(why) in str(error):
            raise
        raise type(error)(f"{error}: {type(why).__name__}: {why}") from why


def credentials_of(authentication: Any, trust_certs_file_path: str | None) -> Credentials:
    """Give what the admin API needs of a client's authentication.

    Args:
        authentication: what the client was given; None for nothing.
        trust_certs_file_path: whom the client trusts.

    Raises:
        AdminRequired: it is none of this library's, so that its arguments are not known.
        InvalidUse: they lack something.
    """
    if authentication is None:
        return Credentials()
    if isinstance(authentication, _OURS):
        return authentication.credentials(trust_certs_file_path)
    kind = next((name for name in _HAND_OVER if isinstance(authentication, getattr(pulsar, name))), None)
    advice = f"use pulsar_ext.{kind}, or give " if kind is not None else "give "
    raise AdminRequired(
        f"The admin API is needed, and the client's {type(authentication).__name__} does not show what it was given, "
        f"so that the admin API cannot be asked in its name. Nothing was changed; {advice}"
        f"Client(admin=PulsarAdmin(url, {_HAND_OVER.get(kind or '', '…')}))."
    )
