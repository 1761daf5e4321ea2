"""What a request says about who asks: a token or a user's password, which show in no repr and in no error (pure)."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Authorization"]


class Authorization:
    """The credentials of one admin API.

    Args:
        token: a bearer token, or what supplies it before each request.
        basic: user and password.

    Raises:
        InvalidUse: both are given.
    """

    def __init__(self, token: str | Callable[[], str] | None, basic: tuple[str, str] | None) -> None:
        if token is not None and basic is not None:
            raise InvalidUse("Both a token and a user with a password are given; give one of them")
        self._token = token
        self._basic = basic

    def __repr__(self) -> str:
        return "Authorization(<hidden>)"

    @property
    def is_secret(self) -> bool:
        """Whether a request carries anything that others must not see."""
        return self._token is not None or self._basic is not None

    def headers(self) -> dict[str, str]:
        """Write the header of one request; none without credentials.

        Raises:
            InvalidUse: the token cannot stand in a header.
            Exception: what the supplier of the token raises.
        """
        if self._basic is not None:
            user, password = self._basic
            return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}
        if self._token is None:
            return {}
        token = (self._token if isinstance(self._token, str) else self._token()).strip()
        if not token.isascii() or not token.isprintable():
            raise InvalidUse("The token has characters that an HTTP header cannot carry")
        return {"Authorization": f"Bearer {token}"}
