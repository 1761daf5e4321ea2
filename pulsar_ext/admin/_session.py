"""The session under both shells: credentials, redirects, retries, the deadline and errors, decided once."""

from __future__ import annotations

import logging
import time
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import httpx2
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)

from pulsar_ext.errors import AdminError, AdminUnavailable, InvalidUse

from ._errors import error_of_answer, error_of_connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._core import Answer, Request
    from ._transport import Transport
    from ._url import AdminUrl

__all__ = ["HttpSession", "Limits"]

T = TypeVar("T")

logger = logging.getLogger("pulsar_ext.admin")

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
        if self.timeout_seconds <= 0 or self.deadline_seconds <= 0 or self.max_attempts < 1:
            raise InvalidUse(f"Limits must be positive: {self}")


class HttpSession:
    """Sends requests: adds credentials, follows the broker's redirects, retries what may be repeated, types errors."""

    def __init__(
        self, transport: Transport, url: AdminUrl, token: str | Callable[[], str] | None, limits: Limits
    ) -> None:
        if token is not None and url.credentials:
            raise InvalidUse("Both a token and a user in the URL are given; give one of them")
        self._transport = transport
        self._url = url
        self._token = token
        self._limits = limits

    def with_limits(self, limits: Limits) -> HttpSession:
        """Give a session over the same connections with other limits."""
        return HttpSession(self._transport, self._url, self._token, limits)

    async def send(self, request: Request[T]) -> T:
        """Send the request, repeatedly if it may be, and parse the answer; see `Session`."""
        start = time.monotonic()
        attempts = 0

        async def once() -> Answer:
            nonlocal attempts
            attempts += 1
            seconds = min(self._limits.timeout_seconds, start + self._limits.deadline_seconds - time.monotonic())
            try:
                return await self._exchange(request, max(seconds, 0.001))
            except httpx2.RequestError as error:
                raise error_of_connection(
                    request,
                    self._url.base,
                    error,
                    sent=not isinstance(error, _NOT_SENT),
                    attempts=attempts,
                    seconds=time.monotonic() - start,
                ) from error

        answer = await (self._retrying()(once) if request.may_repeat else once())
        try:
            return request.parse(answer)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise AdminError(
                f"{request.method} {self._url.base}/admin/v2/{request.path}: the answer is not a Pulsar "
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

    async def _exchange(self, request: Request[T], seconds: float) -> Answer:
        query = urlencode(request.query())
        url = f"{self._url.base}/admin/v2/{request.path}" + (f"?{query}" if query else "")
        content = request.content()
        headers = self._headers(has_body=content is not None)
        end = time.monotonic() + seconds
        answer = await self._transport.fetch(request.method, url, headers, content, seconds)
        for _ in range(_MAX_REDIRECTS):
            if answer.status not in _REDIRECTS:
                break
            # A broker that does not own the topic names the one that does. httpx2 would drop the token on the way.
            url = _redirect(url, answer)
            left = max(end - time.monotonic(), 0.001)
            answer = await self._transport.fetch(request.method, url, headers, content, left)
        if 200 <= answer.status < 300:  # noqa: PLR2004  # the successes
            return answer
        raise error_of_answer(request, self._url.base, answer)

    def _headers(self, *, has_body: bool) -> dict[str, str]:
        headers = {"Accept": "application/json, */*;q=0.5"}
        if has_body:
            headers["Content-Type"] = "application/json"
        if self._url.credentials:
            user, password = self._url.credentials
            headers["Authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        elif self._token is not None:
            token = (self._token if isinstance(self._token, str) else self._token()).strip()
            if not token.isascii() or not token.isprintable():
                raise InvalidUse("The token has characters that an HTTP header cannot carry")
            headers["Authorization"] = f"Bearer {token}"
        return headers


def _redirect(url: str, answer: Answer) -> str:
    """Read where a redirect leads; refuse one that would send the token in the clear."""
    target = urljoin(url, answer.headers.get("location", ""))
    scheme = urlsplit(target).scheme
    if scheme not in {"http", "https"} or (urlsplit(url).scheme == "https" and scheme != "https"):
        raise AdminError(
            "The broker redirects from https to something else; set webServiceUrlTls on it",
            status=answer.status,
            reason="redirect to an insecure URL",
        )
    return target
