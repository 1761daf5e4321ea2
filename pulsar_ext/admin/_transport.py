"""Synchronous and asyncio transports over httpx2.

TLS files are read again when they change, because certificates are renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpcore2  # noqa: F401  # otherwise the first request of a consumer's monitor would import it, for 30 ms
import httpx2

from pulsar_ext.errors import InvalidUse, NotOpen

from ._core import Answer

logger = logging.getLogger("pulsar_ext.admin")

_WITHOUT_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For URLs without TLS: a child forked while another thread creates a context may wait for OpenSSL forever."""
_PEM_BEGIN, _PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_NOT_AFTER = re.compile(rb"\dZ(?:\x17\x0d|\x18\x0f)(\d{12}(?:\d\d)?)Z")
"""The end of a certificate's validity after its beginning: each a tag, a length, and a UTCTime or GeneralizedTime."""

Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsFiles:
    """TLS settings from files, loaded on construction and again when a file has changed; for https they are needed."""

    def __init__(
        self,
        trust_certs_file_path: str | None,
        certificate_file_path: str | None = None,
        private_key_file_path: str | None = None,
        *,
        is_needed: bool,
        allow_insecure_connection: bool = False,
        validate_hostname: bool = True,
    ) -> None:
        if private_key_file_path and not certificate_file_path:
            raise InvalidUse("tls_private_key_file_path is set without tls_certificate_file_path; pass both")
        self._trust, self._certificate, self._key = trust_certs_file_path, certificate_file_path, private_key_file_path
        self._insecure, self._validates = allow_insecure_connection, validate_hostname
        self._paths = [path for path in (self._trust, self._certificate, self._key) if path]
        # Without a lock, which could be held during a fork. At worst two threads load the same files.
        stamp = self._stamp()
        self._built = (stamp, self._build() if is_needed or self._paths else _WITHOUT_TLS)

    def context(self) -> ssl.SSLContext:
        """Return one object until a file changes; while certificate and key do not match, the previous settings."""
        if not self._paths:
            return self._built[1]
        stamp = self._stamp()  # before the files are read: a change during that is found the next time
        if stamp != self._built[0]:
            try:
                self._built = (stamp, self._build())
            except InvalidUse as error:
                logger.warning("The changed TLS files cannot be used; the previous ones stay in use. %s", error)
        return self._built[1]

    def advice(self) -> str:
        """Return advice about the client's certificate after a failed TLS connection; empty without one."""
        if not self._certificate:
            return ""
        try:
            end = certificate_expiry(Path(self._certificate).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return f"the client's certificate {self._certificate} cannot be read"
        if end <= datetime.now(UTC):
            return f"the client's certificate {self._certificate} expired at {end:%Y-%m-%d %H:%M:%S} UTC: renew it"
        return (
            f"the client's certificate {self._certificate} is valid until {end:%Y-%m-%d %H:%M:%S} UTC: check that the "
            "broker trusts its authority"
        )

    def _stamp(self) -> Stamp:
        return tuple(map(_stamp_of, self._paths))

    def _build(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._trust)
            if self._certificate:
                context.load_cert_chain(self._certificate, self._key)
        except OSError as error:
            raise InvalidUse(
                f"Cannot load the TLS files (trust {self._trust!r}, certificate {self._certificate!r}, "
                f"key {self._key!r}): {error}"
            ) from error
        if self._insecure or not self._validates:
            context.check_hostname = False
        if self._insecure:
            context.verify_mode = ssl.CERT_NONE
        return context


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # follows links: mounted secrets change the link's target
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def certificate_expiry(pem: str) -> datetime:
    """Return the expiry time of the first certificate in a PEM text (pure); raise `ValueError` without one."""
    begin = pem.find(_PEM_BEGIN)
    end = pem.find(_PEM_END, begin)
    if begin < 0 or end < 0:
        raise ValueError("no certificate")
    found = _NOT_AFTER.search(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_PEM_END)]))
    if found is None:
        raise ValueError("no certificate")
    digits = found[1].decode()
    if len(digits) == 12:  # noqa: PLR2004  # a UTCTime has a two-digit year from 1950 to 2049
        digits = ("19" if digits >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


_main_thread_id = threading.get_native_id()
os.register_at_fork(after_in_child=lambda: globals().update(_main_thread_id=threading.get_native_id()))


def _may_keep() -> bool:
    """Return if a connection may stay open: sockets of gevent and eventlet belong to the thread that opened them."""
    return socket.socket.__module__ == "socket" or threading.get_native_id() == _main_thread_id


class SyncTransport:
    """Blocking transport. Thread-safe; a forked child opens its own connections.

    Each exchange uses its own HTTP client: a Ctrl-C may leave a lock of the interrupted client held, and a signal
    handler may send a request while the interrupted one holds a lock.
    """

    def __init__(self, tls: TlsFiles) -> None:
        self.tls = tls
        # By process: a forked child must neither use nor close its parent's sockets. Without a lock, because one that
        # is held during a fork stays held in the child.
        self._idle: dict[int, deque[tuple[ssl.SSLContext, httpx2.Client]]] = {}
        self._closed = False

    def _acquire(self) -> tuple[ssl.SSLContext, httpx2.Client]:
        """Return an idle client with the current TLS settings, preferably the last one used."""
        if self._closed:
            raise NotOpen("This PulsarAdmin is closed; create a new one")
        context = self.tls.context()
        with contextlib.suppress(LookupError):
            while _may_keep():
                known, client = self._idle[os.getpid()].pop()
                if known is context:
                    return known, client
                client.close()  # its connections use the previous certificate
        return context, httpx2.Client(verify=context, trust_env=False)  # without a proxy, which could see the token

    def _release(self, context: ssl.SSLContext, client: httpx2.Client) -> None:
        if self._closed or not _may_keep():
            client.close()
        else:
            self._idle.setdefault(os.getpid(), deque()).append((context, client))

    async def fetch(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None, timeout_seconds: float
    ) -> Answer:
        """Send a request and read the whole response; raise `httpx2.RequestError`, also after the timeout."""
        end, (context, client) = time.monotonic() + timeout_seconds, self._acquire()
        body = bytearray()
        try:
            with client.stream(method, url, headers=headers, content=content, timeout=timeout_seconds) as response:
                for chunk in response.iter_bytes():
                    body += chunk
                    _raise_if_past(end)
                answer = _answer(response, body)
        except Exception:  # after a Ctrl-C or other BaseException, the client is not reused
            self._release(context, client)
            raise
        self._release(context, client)
        return answer

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # this transport blocks on purpose

    def close(self) -> None:
        self._closed = True
        for _, client in self._idle.pop(os.getpid(), ()):
            client.close()


@dataclass(slots=True)
class _LoopClient:
    """HTTP client of an event loop, with the number of exchanges in progress."""

    context: ssl.SSLContext
    client: httpx2.AsyncClient
    in_flight: int = 0


class AsyncTransport:
    """Asyncio transport with one connection pool per event loop."""

    def __init__(self, tls: TlsFiles) -> None:
        self.tls = tls
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClient] = weakref.WeakKeyDictionary()
        self._closed = False

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Yield the loop's client with the current TLS settings; close a previous one when it is idle."""
        if self._closed:
            raise NotOpen("This AsyncPulsarAdmin is closed; create a new one")
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
        """Send a request and read the whole response; raise `httpx2.RequestError`, also after the timeout."""
        end, body = time.monotonic() + timeout_seconds, bytearray()
        try:
            async with (
                self._client() as client,
                client.stream(method, url, headers=headers, content=content, timeout=timeout_seconds) as response,
            ):
                async for chunk in response.aiter_bytes():
                    body += chunk
                    _raise_if_past(end)
                return _answer(response, body)
        except OSError as error:  # httpx2 does not wrap the broker's alert about the client's certificate
            raise httpx2.ReadError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        self._closed = True
        if used := self._clients.pop(asyncio.get_running_loop(), None):
            await used.client.aclose()


Transport = SyncTransport | AsyncTransport


def _answer(response: httpx2.Response, body: bytearray) -> Answer:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers.raw}
    return Answer(response.status_code, headers, bytes(body))


def _raise_if_past(end: float) -> None:
    """Raise after the deadline: httpx2's timeout is for each read, so a slow response would never end."""
    if time.monotonic() > end:
        raise httpx2.ReadTimeout("the response was not complete before the timeout")
