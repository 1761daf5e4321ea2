"""Transports, which carry bytes over httpx2: the one part that exists twice, synchronous and for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import httpcore2  # noqa: F401  # else what looks after a consumer would import it amid its messages, for 30 ms
import httpx2

from pulsar_ext.errors import NotOpen

from ._core import Answer

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterator

    from ._tls import TlsFiles

__all__ = ["AsyncTransport", "SyncTransport", "Transport"]


_home = threading.get_native_id()
os.register_at_fork(after_in_child=lambda: globals().update(_home=threading.get_native_id()))


def _may_keep() -> bool:
    """Return if a connection may stay open: gevent's and eventlet's sockets belong to the thread that opens them."""
    return socket.socket.__module__ == "socket" or threading.get_native_id() == _home


class Transport(Protocol):
    """Carries one HTTP exchange."""

    tls: TlsFiles

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

    def __init__(self, tls: TlsFiles) -> None:
        self.tls = tls
        # By process: a forked child must not use its parent's sockets, and must not close them either. No lock guards
        # this, for a lock that is held at the moment of a fork stays held in the child for ever.
        self._idle: dict[int, deque[tuple[ssl.SSLContext, httpx2.Client]]] = {}
        self._closed = False

    def _take(self) -> tuple[ssl.SSLContext, httpx2.Client]:
        """Return a client that nobody uses, with the TLS settings of now; the last one that was used if possible."""
        if self._closed:
            raise NotOpen("This PulsarAdmin is closed")
        context = self.tls.context()
        with contextlib.suppress(LookupError):
            while _may_keep():
                known, client = self._idle[os.getpid()].pop()
                if known is context:
                    return known, client
                client.close()  # its connections have the certificate of before
        return context, httpx2.Client(verify=context, trust_env=False)  # no proxy sees the token

    def _put_back(self, context: ssl.SSLContext, client: httpx2.Client) -> None:
        if self._closed or not _may_keep():
            client.close()
        else:
            self._idle.setdefault(os.getpid(), deque()).append((context, client))

    async def fetch(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None, timeout_seconds: float
    ) -> Answer:
        """See `Transport`."""
        end, (context, client) = time.monotonic() + timeout_seconds, self._take()
        try:
            with client.stream(method, url, headers=headers, content=content, timeout=timeout_seconds) as response:
                answer = _answer(response, b"".join(_until(end, response.iter_bytes())))
        except Exception:  # after anything else, such as a Ctrl-C, nobody uses it any more
            self._put_back(context, client)
            raise
        self._put_back(context, client)
        return answer

    async def sleep(self, seconds: float) -> None:
        """See `Transport`."""
        time.sleep(seconds)  # noqa: ASYNC251  # this transport blocks, that is what it is for

    def close(self) -> None:
        """Close this process's connections. A second call does nothing."""
        self._closed = True
        for _, client in self._idle.pop(os.getpid(), ()):
            client.close()


@dataclass(slots=True)
class _LoopClient:
    """The HTTP client of an event loop.

    Args:
        context: the TLS settings of its connections.
        client: itself.
        in_flight: number of exchanges that use it.
    """

    context: ssl.SSLContext
    client: httpx2.AsyncClient
    in_flight: int = 0


class AsyncTransport:
    """Suspends on asyncio, with one pool of connections for each event loop."""

    def __init__(self, tls: TlsFiles) -> None:
        self.tls = tls
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClient] = weakref.WeakKeyDictionary()
        self._closed = False

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Lend the loop's client with the TLS settings of now; one of before is closed when nobody uses it."""
        if self._closed:
            raise NotOpen("This AsyncPulsarAdmin is closed")
        loop, context = asyncio.get_running_loop(), self.tls.context()
        used = before = self._clients.get(loop)
        if used is None or used.context is not context:
            client = httpx2.AsyncClient(verify=context, trust_env=False)
            used = self._clients[loop] = _LoopClient(context, client)
        used.in_flight += 1
        try:
            if before is not None and before is not used and not before.in_flight:
                await before.client.aclose()
            yield used.client
        finally:
            used.in_flight -= 1
            if not used.in_flight and self._clients.get(loop) is not used:
                await used.client.aclose()

    async def fetch(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None, timeout_seconds: float
    ) -> Answer:
        """See `Transport`."""
        end = time.monotonic() + timeout_seconds
        options: Any = {"headers": headers, "content": content, "timeout": timeout_seconds}
        try:
            async with self._client() as client, client.stream(method, url, **options) as response:
                return _answer(response, b"".join([chunk async for chunk in _until_async(end, response.aiter_bytes())]))
        except OSError as error:  # httpx2 passes on what the broker says of the client's certificate
            raise httpx2.ReadError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        """See `Transport`."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the running loop's connections. A second call does nothing."""
        self._closed = True
        if used := self._clients.pop(asyncio.get_running_loop(), None):
            await used.client.aclose()


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
