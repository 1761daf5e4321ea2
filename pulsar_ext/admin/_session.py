"""Session of both clients: credentials, redirects, retries, the deadline and errors.

It maps an HTTP response or a failed connection to a typed error, like
`org.apache.pulsar.client.admin.internal.BaseResource.getApiException`. No error and no repr contains a credential: the
token is never part of a path, and user and password are removed from the URL before anything is sent.
"""

from __future__ import annotations

import html
import json
import logging
import re
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode, urljoin

import httpx2
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)

from pulsar_ext.errors import (
    AdminConflict,
    AdminError,
    AdminNotAllowed,
    AdminNotFound,
    AdminPrecondition,
    AdminUnauthorized,
    AdminUnavailable,
    InvalidUse,
)

from ._core import Answer, Request
from ._transport import Transport
from ._url import ClusterAddresses, host_of, is_less_safe

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Authorization:
    """Credentials of one admin API: a bearer token, or a function that returns it, or user and password."""

    token: str | Callable[[], str] | None
    basic: tuple[str, str] | None

    def __post_init__(self) -> None:
        if self.token is not None and self.basic is not None:
            raise InvalidUse("A token and a user with a password are both given; pass one of them")

    @property
    def is_secret(self) -> bool:
        return self.token is not None or self.basic is not None

    def headers(self) -> dict[str, str]:
        """Return the header of one request; empty without credentials. The token's supplier may raise."""
        if self.basic is not None:
            user, password = self.basic
            return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}
        if self.token is None:
            return {}
        token = (self.token if isinstance(self.token, str) else self.token()).strip()
        if not token.isascii() or not token.isprintable():
            raise InvalidUse("The token has characters that are invalid in an HTTP header; pass a valid token")
        return {"Authorization": f"Bearer {token}"}


_REDIRECTS = {307, 308}
_BY_STATUS: dict[int, tuple[type[AdminError], str]] = {
    # Too many redirects: brokers name each other while a topic is moved.
    **dict.fromkeys(_REDIRECTS, (AdminUnavailable, "the cluster's brokers redirect in circles; try again")),
    # The broker answers 401 also to a known role that lacks a permission on a tenant or topic.
    401: (AdminUnauthorized, "pass PulsarAdmin a valid token of a role with this permission"),
    403: (AdminUnauthorized, "pass PulsarAdmin a token of a role with this permission"),
    404: (AdminNotFound, ""),
    405: (AdminNotAllowed, ""),
    409: (AdminConflict, ""),
    412: (AdminPrecondition, ""),
    429: (AdminUnavailable, "the broker limits its admin requests (httpRequestsLimitEnabled); try again later"),
    **dict.fromkeys((502, 503, 504), (AdminUnavailable, "")),
}
"""The error of each status, and a hint."""
_GATEWAY_ERRORS = frozenset({502, 503, 504})
"""Statuses of a proxy that may have forwarded the request to a broker."""
_HIDDEN_ELEMENTS = re.compile(r"<(script|style|title)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_SERVER_ERROR = re.compile(r"Message:\s*(.*?)\s*(?:Stacktrace:|$)", re.DOTALL)
_TLS_ALERT = re.compile(r"\bALERT\b|_ALERT_", re.IGNORECASE)
"""OpenSSL's words for an alert of the peer that rejects a connection."""
_MAX_REASON = 500


def reason_of(answer: Answer) -> str:
    """Return the broker's reason: the JSON's `reason` or `message` without stack trace, or the text without HTML."""
    text = answer.text()
    try:
        data = json.loads(text)
    except ValueError:
        text = html.unescape(_TAG.sub(" ", _HIDDEN_ELEMENTS.sub(" ", text)))
    else:
        # The broker's errors have a `reason`; those of its web server, such as an invalid token, a `message`.
        text = str(data.get("reason") or data.get("message") or text) if isinstance(data, dict) else str(data)
    if "unexpected error occurred in the server" in text and (match := _SERVER_ERROR.search(text)):
        text = match[1]
    text = " ".join(text.split())
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def error_of_answer(request: Request[T], base_url: str, answer: Answer, redirected_to: str = "") -> AdminError:
    reason, (kind, hint) = reason_of(answer), _BY_STATUS.get(answer.status, (AdminError, ""))
    details = {"status": answer.status, "reason": reason, "method": request.method, "path": request.path}
    maybe_applied = answer.status in _GATEWAY_ERRORS and not request.may_repeat
    if kind is AdminUnavailable:
        details["maybe_applied"] = maybe_applied
    return kind(
        f"{_describe(request, base_url, redirected_to)}: HTTP {answer.status}"
        + (f": {reason}" if reason else "")
        + ("; the broker may have carried it out" if maybe_applied else "")
        + (f" ({hint})" if hint else ""),
        **details,
    )


def error_of_connection(
    request: Request[T],
    base_url: str,
    cause: Exception,
    *,
    sent: bool,
    attempts: int,
    seconds: float,
    redirected_to: str = "",
    tls_advice: str = "",
) -> AdminUnavailable:
    """Return the error of a missing response; `sent` if the broker may have received the request."""
    found = str(cause) or type(cause).__name__
    if "CERTIFICATE_VERIFY_FAILED" in found and "expired" in found:
        hint = "the broker's certificate, or its authority's, has expired: renew it on the broker"
    elif tls_advice and _TLS_ALERT.search(found):
        hint = tls_advice
    elif "CERTIFICATE_VERIFY_FAILED" in found:
        hint = "name the CA's certificate in tls_trust_certs_file_path"
    elif sent:
        hint = (
            "a listener there sends no HTTP answer in time: check the port (webServicePort), http or https, the "
            "broker's log, and timeout_seconds"
        )
    else:
        hint = "check that a broker's web service listens there (webServicePort), or set PULSAR_ADMIN_URL"
    maybe_applied = sent and not request.may_repeat
    times = "once" if attempts == 1 else f"{attempts} times"
    return AdminUnavailable(
        f"{_describe(request, base_url, redirected_to)}: no answer: {found} (tried {times} in {seconds:.1f} s)"
        + ("; the broker may have carried it out" if maybe_applied else "")
        + f"; {hint}",
        status=None,
        reason=found,
        method=request.method,
        path=request.path,
        attempts=attempts,
        maybe_applied=maybe_applied,
    )


def _describe(request: Request[T], base_url: str, redirected_to: str) -> str:
    asked = f"{request.method} {base_url}/admin/v2/{request.path}"
    return f"{asked} (redirected to {redirected_to})" if redirected_to else asked


_OK = 200
_TOPIC_PARTS = 4
_URLS_OF_LOOKUP = ("httpUrl", "httpUrlTls", "brokerUrl", "brokerUrlTls")


def broker_lookup_paths(path: str) -> tuple[str, ...]:
    """Return paths that list a cluster's brokers, for superusers, and for roles that may use the request's topic."""
    parts = path.split("/")
    if len(parts) <= _TOPIC_PARTS or parts[0] not in {"persistent", "non-persistent"}:
        return ("admin/v2/brokers",)
    return "admin/v2/brokers", "/".join(["lookup/v2/topic", *parts[:_TOPIC_PARTS]])


def brokers_of(answer: Answer) -> frozenset[str]:
    """Parse the broker hosts in the response to such a path; return an empty set if it is invalid."""
    try:
        found = json.loads(answer.body) if answer.status == _OK else None
    except ValueError:
        return frozenset()
    if isinstance(found, dict):
        found = [found.get(name) for name in _URLS_OF_LOOKUP]
    if not isinstance(found, list):
        return frozenset()
    return frozenset(filter(None, (host_of(one) for one in found if isinstance(one, str))))


def redirect_target(url: str, answer: Answer) -> str:
    """Return the target of a redirect; raise if it is invalid, or lacks TLS although the URL has it."""
    try:
        target = urljoin(url, answer.headers.get("location", ""))
    except ValueError as error:
        message = f"The broker redirects to an invalid URL: {error}"
        raise AdminError(message, status=answer.status, reason="redirect to invalid URL") from error
    if is_less_safe(url, target):
        raise AdminError(
            "The broker redirects from https to another scheme; set webServiceUrlTls on it",
            status=answer.status,
            reason="redirect to an insecure URL",
        )
    return target


def _last_of(redirects: Sequence[str]) -> str:
    """Return the scheme, host and port of the last URL; an empty string if the list is empty."""
    if not redirects:
        return ""
    scheme, _, rest = redirects[-1].partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


logger = logging.getLogger("pulsar_ext.admin")

_LONGEST_SECONDS = 1e6  # operating systems do not support longer waits
_MAX_REDIRECTS = 5
# After these errors it is certain that nothing was sent.
_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts of one attempt and of all attempts of a request, and the number of attempts, if it may be repeated."""

    timeout_seconds: float
    deadline_seconds: float
    max_attempts: int

    def __post_init__(self) -> None:
        times = (self.timeout_seconds, self.deadline_seconds)
        if not all(0 < seconds <= _LONGEST_SECONDS for seconds in times) or self.max_attempts < 1:
            raise InvalidUse(f"Limits must be positive, and times at most {_LONGEST_SECONDS:.0f} s: {self}")


@dataclass(frozen=True, slots=True)
class HttpSession:
    """Sends requests: adds credentials, follows redirects, retries what may be repeated, raises typed errors."""

    transport: Transport
    addresses: ClusterAddresses
    authorization: Authorization
    """Sent to these addresses and to the cluster's own brokers only."""
    limits: Limits
    check: Callable[[str], None] = lambda _: None
    """Called with the path of each request before it is sent; an exception prevents the request."""

    async def send(self, request: Request[T]) -> T:
        """Send the request, repeatedly if allowed, and parse the response."""
        self.check(request.path)
        start = time.monotonic()
        attempts = 0

        async def once() -> Answer:
            nonlocal attempts
            attempts += 1
            end = min(time.monotonic() + self.limits.timeout_seconds, start + self.limits.deadline_seconds)
            return await self._send_to_any(request, end, attempts, start)

        answer = await (self._retrying()(once) if request.may_repeat else once())
        try:
            if answer.headers.get("content-type", "").lower().startswith("text/html"):
                raise ValueError("a web page")  # noqa: TRY301  # no broker returns it for a success
            return request.parse(answer)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise AdminError(
                f"{request.method} {self.addresses.bases[0]}/admin/v2/{request.path}: the answer is not a Pulsar "
                f"broker's ({error!r}); check that the admin URL is that of a broker or a Pulsar proxy",
                status=answer.status,
                reason=repr(error),
                method=request.method,
                path=request.path,
            ) from error

    def _retrying(self) -> AsyncRetrying:
        def log(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            pause = state.next_action.sleep if state.next_action else 0.0
            logger.warning(
                "Attempt %d of %d failed; retrying in %.1f s: %s",
                state.attempt_number,
                self.limits.max_attempts,
                pause,
                error,
            )

        return AsyncRetrying(
            sleep=self.transport.sleep,
            retry=retry_if_exception_type(AdminUnavailable),
            stop=stop_after_attempt(self.limits.max_attempts) | stop_before_delay(self.limits.deadline_seconds),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            before_sleep=log,
            reraise=True,
        )

    async def _send_to_any(self, request: Request[T], end: float, attempts: int, start: float) -> Answer:
        """Send to one admin URL after the other, if nothing was sent or it may be repeated; each has equal time."""
        bases = self.addresses.bases
        for left, base in zip(range(len(bases), 0, -1), bases, strict=True):
            seconds = max((end - time.monotonic()) / left, 0.001)
            may_go_on = left > 1
            redirects: list[str] = []
            try:
                answer = await self._exchange(request, base, seconds, redirects)
            except httpx2.RequestError as error:
                sent = not isinstance(error, _NOT_SENT)
                passed = time.monotonic() - start
                failure = error_of_connection(
                    request,
                    base,
                    error,
                    sent=sent,
                    attempts=attempts,
                    seconds=passed,
                    redirected_to=_last_of(redirects),
                    tls_advice=self.transport.tls.advice(),
                )
                if not may_go_on or (sent and not request.may_repeat):
                    raise failure from error
            except AdminUnavailable as error:
                failure = error
                if not may_go_on or not request.may_repeat:
                    raise
            except AdminError:  # a response like any other
                self.addresses.prefer(base)
                raise
            else:
                self.addresses.prefer(base)
                return answer
            logger.warning("Trying the next admin URL: %s", failure)
        raise AssertionError("there is no admin URL")  # pragma: no cover

    async def _exchange(self, request: Request[T], base: str, seconds: float, redirects: list[str]) -> Answer:
        """Return a successful response of an admin URL or its redirect target; append redirects to `redirects`."""
        query = urlencode(request.query())
        url = f"{base}/admin/v2/{request.path}" + (f"?{query}" if query else "")
        content = request.content()
        headers = {"Accept": "application/json, */*;q=0.5", **self.authorization.headers()}
        if content is not None:
            headers["Content-Type"] = "application/json"
        end = time.monotonic() + seconds
        answer = await self.transport.fetch(request.method, url, headers, content, seconds)
        for _ in range(_MAX_REDIRECTS):
            if answer.status not in _REDIRECTS:
                break
            # A broker that does not own the topic names the owner. httpx2 would drop the token on a redirect.
            url = redirect_target(url, answer)
            if self.authorization.is_secret and not self.addresses.is_known(url):
                await self._verify_broker(url, base, request.path, headers, end)
            redirects.append(url)
            left = max(end - time.monotonic(), 0.001)
            answer = await self.transport.fetch(request.method, url, headers, content, left)
        if 200 <= answer.status < 300:  # noqa: PLR2004  # success
            return answer
        raise error_of_answer(request, base, answer, _last_of(redirects))

    async def _verify_broker(self, url: str, base: str, path: str, headers: dict[str, str], end: float) -> None:
        """Raise unless the cluster lists a redirect's target as a broker, before credentials are sent there."""
        last_response = ""
        for lookup in broker_lookup_paths(path):
            left = max(end - time.monotonic(), 0.001)
            answer = await self.transport.fetch("GET", f"{base}/{lookup}", headers, None, left)
            last_response = f"HTTP {answer.status}: {reason_of(answer)!r}"
            self.addresses.add_brokers(brokers_of(answer))
            if self.addresses.is_known(url):
                return
        raise AdminError(
            f"{base} redirects to the host {host_of(url)}, which the cluster lists neither as a broker nor as the "
            f"topic's ({last_response}). The token or password was not sent there. If the host "
            "belongs to the cluster, pass its admin URL as well: admin=[…]",
            status=None,
            reason="redirect to an unknown host",
        )
