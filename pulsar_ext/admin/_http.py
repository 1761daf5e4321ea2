"""The shells: httpx2 clients under the shared core, one synchronous and one for asyncio.

One `HttpSession` holds all that decides: headers, retries, the deadline, redirects and errors. A transport only carries
bytes, and is the one thing there is two of.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
import weakref
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar
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

from pulsar_ext.admin._core import Answer, Request
from pulsar_ext.admin._errors import error_of_answer, error_of_connection
from pulsar_ext.errors import AdminError, AdminUnavailable, InvalidUse, NotOpen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from pulsar_ext.admin._url import AdminUrl

__all__ = ["AsyncTransport", "HttpSession", "Limits", "SyncTransport", "Transport", "tls_context"]

T = TypeVar("T")

logger = logging.getLogger("pulsar_ext.admin")

_MAX_REDIRECTS = 5
_REDIRECTS = {307, 308}
# Of these it is known that no byte of the request has left.
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


class Transport(Protocol):
    """Carries one HTTP exchange."""

    async def fetch(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None, timeout_seconds: float
    ) -> Answer:
        """Send and read the whole answer; raises `httpx2.RequestError`, also when the time is over."""

    async def sleep(self, seconds: float) -> None:
        """Wait between two attempts."""


class SyncTransport:
    """Blocks instead of suspending. Safe between threads; after a fork, the child opens connections of its own."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        # By process: a forked child must not use its parent's sockets, and must not close them either. No lock guards
        # this, for a lock that is held at the moment of a fork stays held in the child for ever.
        self._clients: dict[int, httpx2.Client] = {}
        self._closed = False

    def _client(self) -> httpx2.Client:
        if self._closed:
            raise NotOpen("This PulsarAdmin is closed")
        client = self._clients.get(os.getpid())
        if client is None:
            made = httpx2.Client(verify=self._context)
            client = self._clients.setdefault(os.getpid(), made)
            if client is not made:
                made.close()
        return client

    async def fetch(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None, timeout_seconds: float
    ) -> Answer:
        """See `Transport`."""
        end = time.monotonic() + timeout_seconds
        with self._client().stream(method, url, headers=headers, content=content, timeout=timeout_seconds) as response:
            return _answer(response, b"".join(_until(end, response.iter_bytes())))

    async def sleep(self, seconds: float) -> None:
        """See `Transport`."""
        time.sleep(seconds)  # noqa: ASYNC251  # this transport blocks, that is what it is for

    def close(self) -> None:
        """Close this process's connections. A second call does nothing."""
        self._closed = True
        if client := self._clients.pop(os.getpid(), None):
            client.close()


class AsyncTransport:
    """Suspends on asyncio, with one pool of connections for each event loop."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )
        self._closed = False

    def _client(self) -> httpx2.AsyncClient:
        if self._closed:
            raise NotOpen("This AsyncPulsarAdmin is closed")
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = httpx2.AsyncClient(verify=self._context)
        return client

    async def fetch(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None, timeout_seconds: float
    ) -> Answer:
        """See `Transport`."""
        end = time.monotonic() + timeout_seconds
        exchange = self._client().stream(method, url, headers=headers, content=content, timeout=timeout_seconds)
        async with exchange as response:
            return _answer(response, b"".join([chunk async for chunk in _until_async(end, response.aiter_bytes())]))

    async def sleep(self, seconds: float) -> None:
        """See `Transport`."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the running loop's connections. A second call does nothing."""
        self._closed = True
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.aclose()


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
        for _ in range(_MAX_REDIRECTS):
            left = max(end - time.monotonic(), 0.001)
            answer = await self._transport.fetch(request.method, url, headers, content, left)
            if answer.status not in _REDIRECTS:
                break
            # A broker that does not own the topic names the one that does. httpx2 would drop the token on the way.
            url = _redirect(url, answer)
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


def _answer(response: httpx2.Response, body: bytes) -> Answer:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers.raw}
    return Answer(response.status_code, headers, body)


# httpx2's own timeout is for each read, so an answer that drips would never end.
def _until(end: float, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        _check(end)


async def _until_async(end: float, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield chunk
        _check(end)


def _check(end: float) -> None:
    if time.monotonic() > end:
        raise httpx2.ReadTimeout("the answer was not complete in time")


def tls_context(
    trust_certs_file_path: str | None,
    certificate_file_path: str | None,
    private_key_file_path: str | None,
    *,
    allow_insecure_connection: bool,
    validate_hostname: bool,
) -> ssl.SSLContext:
    """Build the TLS settings once, so that a wrong file is found when the admin object is made.

    Raises:
        InvalidUse: a file is missing or unreadable, or only one of certificate and key is given.
    """
    if private_key_file_path and not certificate_file_path:
        raise InvalidUse("tls_private_key_file_path is given without tls_certificate_file_path")
    try:
        context = ssl.create_default_context(cafile=trust_certs_file_path)
        if certificate_file_path:
            context.load_cert_chain(certificate_file_path, private_key_file_path)
    except OSError as error:
        raise InvalidUse(
            f"Cannot load the TLS files (trust {trust_certs_file_path!r}, certificate {certificate_file_path!r}, "
            f"key {private_key_file_path!r}): {error}"
        ) from error
    if allow_insecure_connection or not validate_hostname:
        context.check_hostname = False
    if allow_insecure_connection:
        context.verify_mode = ssl.CERT_NONE
    return context
