"""The session under both shells: credentials, redirects, retries, the deadline and errors, decided once."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

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

from ._core import refuse_page
from ._errors import error_of_answer, error_of_connection, reason_of
from ._places import brokers_of, last_of, questions_about_brokers, redirect_target
from ._url import host_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._authorization import Authorization
    from ._core import Answer, Request
    from ._places import Places
    from ._transport import Transport

__all__ = ["HttpSession", "Limits"]

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
