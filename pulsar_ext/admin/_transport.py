"""Transports, which carry bytes over httpx2: the one part that exists twice, synchronous and for asyncio."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Protocol

import httpcore2  # noqa: F401  # else what looks after a consumer would import it amid its messages, for 30 ms
import httpx2

from pulsar_ext.errors import InvalidUse, NotOpen

from ._core import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["AsyncTransport", "SyncTransport", "Transport", "tls_context"]


class Transport(Protocol):
    """Carries one HTTP exchange."""

    async def fetch(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None, timeout_seconds: float
    ) -> Answer:
        """Send and read the whole answer; raises `httpx2.RequestError`, also when the time is over."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        """Wait between two attempts."""
        raise NotImplementedError


class SyncTransport:
    """Blocks instead of suspending. Safe between threads; after a fork, the child opens connections of its own.

    Each exchange has an HTTP client to itself: one that a Ctrl-C interrupts may leave a lock of its client held, and
    the handler of a signal may ask while the request that it interrupts holds one.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        # By process: a forked child must not use its parent's sockets, and must not close them either. No lock guards
        # this, for a lock that is held at the moment of a fork stays held in the child for ever.
        self._idle: dict[int, deque[httpx2.Client]] = {}
        self._closed = False

    def _take(self) -> httpx2.Client:
        """Give a client that nobody uses, the last one that was used if possible."""
        if self._closed:
            raise NotOpen("This PulsarAdmin is closed")
        try:
            return self._idle[os.getpid()].pop()
        except LookupError:
            return httpx2.Client(verify=self._context, trust_env=False)  # no proxy sees the token

    def _put_back(self, client: httpx2.Client) -> None:
        if self._closed:
            client.close()
        else:
            self._idle.setdefault(os.getpid(), deque()).append(client)

    async def fetch(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None, timeout_seconds: float
    ) -> Answer:
        """See `Transport`."""
        end, client = time.monotonic() + timeout_seconds, self._take()
        try:
            with client.stream(method, url, headers=headers, content=content, timeout=timeout_seconds) as response:
                answer = _answer(response, b"".join(_until(end, response.iter_bytes())))
        except Exception:  # after anything else, such as a Ctrl-C, nobody uses it any more
            self._put_back(client)
            raise
        self._put_back(client)
        return answer

    async def sleep(self, seconds: float) -> None:
        """See `Transport`."""
        time.sleep(seconds)  # noqa: ASYNC251  # this transport blocks, that is what it is for

    def close(self) -> None:
        """Close this process's connections. A second call does nothing."""
        self._closed = True
        for client in self._idle.pop(os.getpid(), ()):
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
            client = self._clients[loop] = httpx2.AsyncClient(verify=self._context, trust_env=False)
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


_WITHOUT_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For URLs without TLS: a child that is forked while another thread makes a context may wait for OpenSSL for ever."""


def tls_context(
    trust_certs_file_path: str | None,
    certificate_file_path: str | None,
    private_key_file_path: str | None,
    *,
    is_needed: bool,
    allow_insecure_connection: bool,
    validate_hostname: bool,
) -> ssl.SSLContext:
    """Build the TLS settings once, so that a wrong file is found when the admin object is made.

    Args:
        trust_certs_file_path: whom to trust; None for the system's certificates.
        certificate_file_path: the client's own.
        private_key_file_path: its key.
        is_needed: whether the URL begins with https.
        allow_insecure_connection: whether any certificate is taken.
        validate_hostname: whether the certificate has to name the host.

    Raises:
        InvalidUse: a file is missing or unreadable, or only one of certificate and key is given.
    """
    if private_key_file_path and not certificate_file_path:
        raise InvalidUse("tls_private_key_file_path is given without tls_certificate_file_path")
    if not (is_needed or trust_certs_file_path or certificate_file_path):
        return _WITHOUT_TLS
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
