"""OAuth 2.0 client credentials for the admin API, like those of the official client.

Mirrors `ClientCredentialFlow` of the C++ client: the issuer's `.well-known/openid-configuration` names the token
endpoint, to which the client's id and secret are sent. The secret goes nowhere else: redirects are not followed, and
an issuer with TLS must not name an endpoint without TLS. The secret appears in no repr and in no error.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from pathlib import Path

import httpx2

from pulsar_ext.errors import AdminUnauthorized, AdminUnavailable, InvalidUse

from ._transport import TlsFiles
from ._url import is_less_safe, scheme_of

_TIMEOUT_SECONDS = 5.0
_OK = 200
_DATA_PREFIX = "data:application/json;base64,"


_NAMES = ("private_key", "client_id", "client_secret", "audience", "scope")


class Oauth2Tokens:
    """Supplier of access tokens: `PulsarAdmin(url, token=Oauth2Tokens('{"issuer_url": …, "private_key": …}'))`.

    The parameters are the JSON that `AuthenticationOauth2` takes, and the CAs (PEM) that an issuer with TLS needs. A
    token is kept until it expires. Two threads may request one at the same time; both tokens are valid.
    """

    def __init__(self, parameters: str, tls_trust_certs_file_path: str | None = None) -> None:
        # An error repeats nothing of the parameters.
        values = _object(parameters, "The parameters of AuthenticationOauth2 are")
        self._issuer = str(values.get("issuer_url"))
        if scheme_of(self._issuer) not in {"http", "https"}:
            raise InvalidUse("The parameters of AuthenticationOauth2 have no issuer_url that begins with http(s)://")
        self._values = {name: str(values[name]) for name in _NAMES if values.get(name) is not None}
        if "private_key" not in self._values and not {"client_id", "client_secret"} <= self._values.keys():
            raise InvalidUse(
                "The parameters of AuthenticationOauth2 have neither private_key nor client_id and client_secret; for "
                "another authentication, pass admin=PulsarAdmin(url, token=a function that returns the token)"
            )
        self._tls = TlsFiles(tls_trust_certs_file_path, is_needed=self._issuer.startswith("https:"))
        self._kept: tuple[str, float] | None = None

    def __repr__(self) -> str:
        return f"Oauth2Tokens({self._issuer!r})"

    def _form(self) -> dict[str, object]:
        """Return the token request; the credentials file is read each time, because it may be renewed."""
        given: dict[str, object] = {**self._values}
        if "private_key" in given:
            given |= {"client_id": None, "client_secret": None}
            given |= _object(_read_key(self._values["private_key"]), "The OAuth 2.0 credentials are")
        if not given.get("client_id") or not given.get("client_secret"):
            raise InvalidUse("The OAuth 2.0 credentials lack client_id or client_secret. Nothing was sent")
        form = {name: given[name] for name in ("client_id", "client_secret")}
        own = {name: self._values[name] for name in ("audience", "scope") if self._values.get(name)}
        return {"grant_type": "client_credentials", **form, "audience": "", **own}

    def __call__(self) -> str:
        """Return a valid access token, or raise `AdminUnavailable`, `AdminUnauthorized` or `InvalidUse`."""
        kept = self._kept
        if kept is None or time.monotonic() >= kept[1]:
            kept = self._kept = self._fetch()
        return kept[0]

    def _fetch(self) -> tuple[str, float]:
        form = self._form()
        asked = time.monotonic()
        with httpx2.Client(verify=self._tls.context(), trust_env=False, timeout=_TIMEOUT_SECONDS) as http:
            configuration = self._answer(
                http, "GET", f"{self._issuer.rstrip('/')}/.well-known/openid-configuration", None
            )
            endpoint = str(configuration.get("token_endpoint", ""))
            if is_less_safe(self._issuer, endpoint):
                raise InvalidUse(
                    f"The issuer {self._issuer} names a missing or insecure token endpoint. The "
                    "client's secret was not sent"
                )
            answer = self._answer(http, "POST", endpoint, form)
        token, seconds = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(token, str) or not token:
            raise _unauthorized("POST", endpoint, _OK, "the answer has no access_token")
        lasts = float(seconds) if isinstance(seconds, int | float) else 0.0
        return token, asked + lasts

    @staticmethod
    def _answer(http: httpx2.Client, method: str, url: str, form: dict[str, object] | None) -> dict[str, object]:
        try:
            answer = http.request(method, url, data=form, headers={"Accept": "application/json"})
        except httpx2.RequestError as error:
            raise AdminUnavailable(
                f"{method} {url}: no answer ({error or type(error).__name__}), so no OAuth 2.0 access token for the "
                "admin API; check issuer_url, and tls_trust_certs_file_path if it uses TLS",
                status=None,
                reason=str(error),
                method=method,
                path=url,
            ) from None
        if answer.status_code != _OK:
            raise _unauthorized(method, url, answer.status_code, answer.reason_phrase)
        try:
            return _object(answer.text, "The response is")
        except InvalidUse as error:
            raise _unauthorized(method, url, _OK, str(error)) from None


def _unauthorized(method: str, url: str, status: int, reason: str) -> AdminUnauthorized:
    # Without the body: an endpoint may repeat the request in it.
    return AdminUnauthorized(
        f"{method} {url}: HTTP {status}: {reason}; no OAuth 2.0 access token for the admin API. Check the client's id "
        "and secret, audience and scope",
        status=status,
        reason=reason,
        method=method,
        path=url,
    )


def _object(text: str, what: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidUse(f"{what} not a JSON object")
    return value


def _read_key(place: str) -> str:
    if place.startswith("data:"):
        try:
            return base64.b64decode(place.removeprefix(_DATA_PREFIX), validate=True).decode()
        except (binascii.Error, ValueError):
            raise InvalidUse(f"private_key begins with data: but not with {_DATA_PREFIX}…") from None
    path = place.removeprefix("file:")
    path = path[2:] if path.startswith("//") and path != place else path
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidUse(f"The OAuth 2.0 credentials in {path!r} cannot be read: {type(error).__name__}") from None
