"""The session under both shells: credentials, redirects, retries, the deadline and errors, decided once.

From an HTTP answer or a failed connection to a typed error it mirrors
`org.apache.pulsar.client.admin.internal.BaseResource.getApiException`. No error and no repr has a credential: the token
is never part of a path, and user and password were removed from the URL before anything was sent.
"""

from __future__ import annotations

import html
import json
import logging
import re
import time
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
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

from ._core import Answer, Request, refuse_page
from ._url import host_of, is_less_safe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._transport import Transport


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


_BY_STATUS: dict[int, type[AdminError]] = {
    307: AdminUnavailable,  # one redirect too many: a topic changes hands, and brokers name each other
    308: AdminUnavailable,
    401: AdminUnauthorized,
    403: AdminUnauthorized,
    404: AdminNotFound,
    405: AdminNotAllowed,
    409: AdminConflict,
    412: AdminPrecondition,
    429: AdminUnavailable,  # httpRequestsLimitEnabled: the broker asks to come back later
    502: AdminUnavailable,
    503: AdminUnavailable,
    504: AdminUnavailable,
}
_HINT = {
    # The broker answers 401 also to a role that it knows but that lacks a permission on a tenant or topic.
    401: "give PulsarAdmin a valid token, of a role that may do this",
    403: "give PulsarAdmin a token of a role that may do this",
    307: "the cluster's brokers send each other in circles; try again",
    308: "the cluster's brokers send each other in circles; try again",
    429: "the broker limits its admin requests (httpRequestsLimitEnabled); try again later",
}
_PASSED_ON = frozenset({502, 503, 504})
"""What a proxy answers in the place of a broker that it may have passed the request on to."""
_UNSEEN = re.compile(r"<(script|style|title)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_SERVER_ERROR = re.compile(r"Message:\s*(.*?)\s*(?:Stacktrace:|$)", re.DOTALL)
_TLS_ALERT = re.compile(r"\bALERT\b|_ALERT_", re.IGNORECASE)
"""How OpenSSL words what the other side says as it refuses a connection."""
_MAX_REASON = 500


def reason_of(answer: Answer) -> str:
    """Return the broker's own words: its JSON `reason` or `message`, without stack trace, or its text without HTML."""
    text = answer.text()
    try:
        data = json.loads(text)
    except ValueError:
        text = html.unescape(_TAG.sub(" ", _UNSEEN.sub(" ", text)))
    else:
        # The broker's own errors have a reason; those of its web server, such as a refused token, a message.
        text = str(data.get("reason") or data.get("message") or text) if isinstance(data, dict) else str(data)
    if "unexpected error occurred in the server" in text and (match := _SERVER_ERROR.search(text)):
        text = match[1]
    text = " ".join(text.split())
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def error_of_answer(request: Request[Any], base_url: str, answer: Answer, redirected_to: str = "") -> AdminError:
    """Map a failure's status to its error; `reason`, `status`, `method` and `path` are attributes.

    Args:
        request: what was sent.
        base_url: the admin URL, without credentials.
        answer: the failure.
        redirected_to: the broker that gave it, where that is another one.
    """
    reason, kind = reason_of(answer), _BY_STATUS.get(answer.status, AdminError)
    hint = _HINT.get(answer.status)
    details: dict[str, Any] = {"status": answer.status, "reason": reason}
    details |= {"method": request.method, "path": request.path}
    maybe_applied = answer.status in _PASSED_ON and not request.may_repeat
    if kind is AdminUnavailable:
        details["maybe_applied"] = maybe_applied
    return kind(
        f"{_asked(request, base_url, redirected_to)}: HTTP {answer.status}"
        + (f": {reason}" if reason else "")
        + ("; the broker may have carried it out" if maybe_applied else "")
        + (f" ({hint})" if hint else ""),
        **details,
    )


def error_of_connection(
    request: Request[Any],
    base_url: str,
    cause: Exception,
    *,
    sent: bool,
    attempts: int,
    seconds: float,
    redirected_to: str = "",
    tls_advice: str = "",
) -> AdminUnavailable:
    """Describe that no answer came: what was tried, how often, and what to check.

    Args:
        request: what was to be sent.
        base_url: the admin URL, without credentials.
        cause: what the HTTP library raised.
        sent: whether the broker may have seen the request; the error's attribute `maybe_applied` for a changing call.
        attempts: how often it was tried.
        seconds: how long that took.
        redirected_to: the broker that did not answer, where that is another one.
        tls_advice: what is known of the client's certificate; empty without one.
    """
    found = str(cause) or type(cause).__name__
    if "CERTIFICATE_VERIFY_FAILED" in found and "expired" in found:
        hint = "the broker's certificate, or its authority's, has ended: renew it on the broker"
    elif tls_advice and _TLS_ALERT.search(found):
        hint = tls_advice
    elif "CERTIFICATE_VERIFY_FAILED" in found:
        hint = "name the CA's certificate in tls_trust_certs_file_path"
    elif sent:
        hint = (
            "something listens there but gives no HTTP answer in time: check the port (webServicePort), http against "
            "https, the broker's log, and timeout_seconds"
        )
    else:
        hint = "check that a broker's web service listens there (webServicePort), or set PULSAR_ADMIN_URL"
    maybe_applied = sent and not request.may_repeat
    times = "once" if attempts == 1 else f"{attempts} times"
    return AdminUnavailable(
        f"{_asked(request, base_url, redirected_to)}: no answer: {found} (tried {times} in {seconds:.1f} s)"
        + ("; the broker may have carried it out" if maybe_applied else "")
        + f"; {hint}",
        status=None,
        reason=found,
        method=request.method,
        path=request.path,
        attempts=attempts,
        maybe_applied=maybe_applied,
    )


def _asked(request: Request[Any], base_url: str, redirected_to: str) -> str:
    """Say what was asked, and of whom."""
    asked = f"{request.method} {base_url}/admin/v2/{request.path}"
    return f"{asked} (redirected to {redirected_to})" if redirected_to else asked


_OK = 200
_TOPIC_PARTS = 4
_URLS_OF_LOOKUP = ("httpUrl", "httpUrlTls", "brokerUrl", "brokerUrlTls")


class Places:
    """The admin URLs of one cluster and what is known of its brokers, shared by all that asks them.

    Safe between threads: each of the two facts is replaced as a whole.

    Args:
        bases: the admin URLs, in the order in which they are to be asked.
    """

    def __init__(self, bases: Sequence[str]) -> None:
        self._bases = tuple(bases)
        self._hosts = frozenset(map(host_of, bases))

    @property
    def first(self) -> str:
        """The one that is asked first."""
        return self._bases[0]

    def in_order(self) -> tuple[str, ...]:
        """Give all of them, the one that answered last before the others."""
        return self._bases

    def answered(self, base: str) -> None:
        """Ask this one first from now on."""
        bases = self._bases
        if bases[0] != base:
            at = bases.index(base)
            self._bases = bases[at:] + bases[:at]

    def knows(self, url: str) -> bool:
        """Whether a URL is of a host that the application named, or that the cluster lists as a broker."""
        return host_of(url) in self._hosts

    def learn(self, brokers: frozenset[str]) -> None:
        """Note the hosts of the cluster's brokers."""
        self._hosts = self._hosts | brokers


def questions_about_brokers(path: str) -> tuple[str, ...]:
    """Give what to ask a cluster for its brokers, for a request to this path below `/admin/v2/`.

    The first is for superusers only; where a topic is, whoever may use the topic may ask.
    """
    parts = path.split("/")
    if len(parts) <= _TOPIC_PARTS or parts[0] not in {"persistent", "non-persistent"}:
        return ("admin/v2/brokers",)
    return "admin/v2/brokers", "/".join(["lookup/v2/topic", *parts[:_TOPIC_PARTS]])


def brokers_of(answer: Answer) -> frozenset[str]:
    """Read the hosts of the cluster's brokers from the answer to one of these questions; none if it is no answer."""
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
    """Read where a redirect leads.

    Raises:
        AdminError: to what is no URL; or from https to something else, where others could read along.
    """
    try:
        target = urljoin(url, answer.headers.get("location", ""))
    except ValueError as error:
        raise AdminError(
            f"The broker redirects to what is no URL: {error}", status=answer.status, reason="redirect to no URL"
        ) from error
    if is_less_safe(url, target):
        raise AdminError(
            "The broker redirects from https to something else; set webServiceUrlTls on it",
            status=answer.status,
            reason="redirect to an insecure URL",
        )
    return target


def last_of(redirects: Sequence[str]) -> str:
    """Give the scheme, host and port of the last URL; an empty text if there is none."""
    if not redirects:
        return ""
    scheme, _, rest = redirects[-1].partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


T = TypeVar("T")

logger = logging.getLogger("pulsar_ext.admin")

_LONGEST_SECONDS = 1e6  # more than an operating system can wait
_MAX_REDIRECTS = 5
_REDIRECTS = {307, 308}
# After these errors it is certain that no byte of the request was sent.
_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how often to try.

    Args:
        timeout_seconds: for one attempt.
        deadline_seconds: for all attempts of one request and the pauses between them.
        max_attempts: for requests that may be repeated; all others are sent once.

    Raises:
        InvalidUse: a limit is not positive.
    """

    timeout_seconds: float = 30.0
    deadline_seconds: float = 60.0
    max_attempts: int = 4

    def __post_init__(self) -> None:
        times = (self.timeout_seconds, self.deadline_seconds)
        if not all(0 < seconds <= _LONGEST_SECONDS for seconds in times) or self.max_attempts < 1:
            raise InvalidUse(f"Limits must be positive, and times at most {_LONGEST_SECONDS:.0f} s: {self}")


class HttpSession:
    """Sends requests: adds credentials, follows the broker's redirects, retries what may be repeated, types errors.

    Args:
        transport: carries the bytes.
        places: the cluster's admin URLs; where one does not answer, the next is asked.
        authorization: the credentials; they go to these URLs and to the cluster's own brokers only.
        limits: how long and how often to try.
        check: is called with the path of each request before anything is sent; what it raises keeps it from that.
    """

    def __init__(
        self,
        transport: Transport,
        places: Places,
        authorization: Authorization,
        limits: Limits,
        check: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._transport = transport
        self._check = check
        self._places = places
        self._authorization = authorization
        self._limits = limits

    def with_limits(self, limits: Limits) -> HttpSession:
        """Give a session over the same connections with other limits."""
        return HttpSession(self._transport, self._places, self._authorization, limits, self._check)

    def with_check(self, check: Callable[[str], None]) -> HttpSession:
        """Give a session over the same connections that has each request checked."""
        return HttpSession(self._transport, self._places, self._authorization, self._limits, check)

    async def send(self, request: Request[T]) -> T:
        """Send the request, repeatedly if it may be, and parse the answer; see `Session`."""
        self._check(request.path)
        start = time.monotonic()
        attempts = 0

        async def once() -> Answer:
            nonlocal attempts
            attempts += 1
            end = min(time.monotonic() + self._limits.timeout_seconds, start + self._limits.deadline_seconds)
            return await self._ask(request, end, attempts, start)

        answer = await (self._retrying()(once) if request.may_repeat else once())
        try:
            refuse_page(answer)
            return request.parse(answer)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise AdminError(
                f"{request.method} {self._places.first}/admin/v2/{request.path}: the answer is not a Pulsar "
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
                "Attempt %d of %d failed, next in %.1f s: %s",
                state.attempt_number,
                self._limits.max_attempts,
                pause,
                error,
            )

        return AsyncRetrying(
            sleep=self._transport.sleep,
            retry=retry_if_exception_type(AdminUnavailable),
            stop=stop_after_attempt(self._limits.max_attempts) | stop_before_delay(self._limits.deadline_seconds),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            before_sleep=log,
            reraise=True,
        )

    async def _ask(self, request: Request[T], end: float, attempts: int, start: float) -> Answer:
        """Ask one admin URL after the other until one answers; each has an equal part of the time that is left.

        What may not be repeated goes on to the next one only if it is certain that nothing was sent.
        """
        bases = self._places.in_order()
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
                    redirected_to=last_of(redirects),
                    tls_advice=self._transport.tls.advice(),
                )
                if not may_go_on or (sent and not request.may_repeat):
                    raise failure from error
            except AdminUnavailable as error:
                failure = error
                if not may_go_on or not request.may_repeat:
                    raise
            except AdminError:  # an answer like any other
                self._places.answered(base)
                raise
            else:
                self._places.answered(base)
                return answer
            logger.warning("The next admin URL is asked: %s", failure)
        raise AssertionError("there is no admin URL")  # pragma: no cover

    async def _exchange(self, request: Request[T], base: str, seconds: float, redirects: list[str]) -> Answer:
        """Get a successful answer from an admin URL, or from where it redirects to, which is noted in `redirects`."""
        query = urlencode(request.query())
        url = f"{base}/admin/v2/{request.path}" + (f"?{query}" if query else "")
        content = request.content()
        headers = {"Accept": "application/json, */*;q=0.5", **self._authorization.headers()}
        if content is not None:
            headers["Content-Type"] = "application/json"
        end = time.monotonic() + seconds
        answer = await self._transport.fetch(request.method, url, headers, content, seconds)
        for _ in range(_MAX_REDIRECTS):
            if answer.status not in _REDIRECTS:
                break
            # A broker that does not own the topic names the one that does. httpx2 would drop the token on the way.
            url = redirect_target(url, answer)
            if self._authorization.is_secret and not self._places.knows(url):
                await self._insist_on_broker(url, base, request.path, headers, end)
            redirects.append(url)
            left = max(end - time.monotonic(), 0.001)
            answer = await self._transport.fetch(request.method, url, headers, content, left)
        if 200 <= answer.status < 300:  # noqa: PLR2004  # the successes
            return answer
        raise error_of_answer(request, base, answer, last_of(redirects))

    async def _insist_on_broker(self, url: str, base: str, path: str, headers: dict[str, str], end: float) -> None:
        """Have the cluster say that a redirect leads to one of its brokers, before any credentials go there.

        Raises:
            AdminError: it does not.
        """
        said = ""
        for question in questions_about_brokers(path):
            left = max(end - time.monotonic(), 0.001)
            answer = await self._transport.fetch("GET", f"{base}/{question}", headers, None, left)
            said = f"HTTP {answer.status}: {reason_of(answer)!r}"
            self._places.learn(brokers_of(answer))
            if self._places.knows(url):
                return
        raise AdminError(
            f"{base} redirects to the host {host_of(url)}, which the cluster names neither as a broker nor as the "
            f"topic's ({said}). The token or password was not sent there. If that "
            "host is one of the cluster's, give its admin URL as well: admin=[…]",
            status=None,
            reason="redirect to a host that is not known",
        )
