"""A TCP proxy that breaks connections on purpose: the fault injector between a client and its broker.

Put its `service_url` in a client. The harness's brokers answer look-ups with "proxy through the service URL", so that
all of the client's traffic passes here, and can be cut, refused or paused at a moment the test chooses.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from .ports import free_port

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["FaultProxy"]

_CHUNK_BYTES: Final = 65536
_IDLE_SECONDS: Final = 0.02
_CONNECT_SECONDS: Final = 5.0
# Linger on, zero seconds: closing sends a reset instead of a polite end.
_RESET: Final = struct.pack("ii", 1, 0)


class FaultProxy:
    """Forward connections from a free port on the loopback to a broker, and break them on demand.

    Args:
        target_host: the broker's host.
        target_port: the broker's port.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._lock = threading.RLock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._closed = threading.Event()
        self._pairs: set[_Pair] = set()
        self._accepted = 0
        self._listener: socket.socket | None = None
        self._port = free_port()
        self._acceptor = threading.Thread(target=self._accept_all, name="fault-proxy", daemon=True)
        self.accept()
        self._acceptor.start()

    @classmethod
    def to(cls, service_url: str) -> Self:
        """Return a proxy to the broker at that URL, `pulsar://host:port`."""
        parts = urlsplit(service_url)
        return cls(parts.hostname or "localhost", parts.port or 6650)

    def __repr__(self) -> str:
        host, port = self._target
        return f"<FaultProxy {self.service_url} to {host}:{port}, {self.connections} connections>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port that it listens on, the same for all its life."""
        return self._port

    @property
    def service_url(self) -> str:
        """The URL for clients, `pulsar://localhost:port`."""
        return f"pulsar://localhost:{self._port}"

    @property
    def connections(self) -> int:
        """How many connections go through it now."""
        with self._lock:
            return len(self._pairs)

    @property
    def accepted(self) -> int:
        """How many connections have ever gone through it."""
        with self._lock:
            return self._accepted

    def cut(self) -> int:
        """Reset every connection, on both sides; new ones are still welcome. Return how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            pair.reset()
        return len(pairs)

    def refuse(self) -> None:
        """Refuse new connections, as a broker that is down does; those that exist go on."""
        with self._lock:
            listener, self._listener = self._listener, None
            if listener is not None:
                # A blocked accept() would keep the socket listening after its close.
                with contextlib.suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)
                listener.close()

    def accept(self) -> None:
        """Accept new connections again, on the same port."""
        with self._lock:
            if self._listener is None and not self._closed.is_set():
                listener = socket.socket()
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", self._port))
                listener.listen()
                self._listener = listener

    def pause(self) -> None:
        """Stop forwarding in both directions; connections stay open, as on a network that swallows packets."""
        self._flowing.clear()

    def resume(self) -> None:
        """Forward again, beginning with what has piled up."""
        self._flowing.set()

    def close(self) -> None:
        """Refuse and reset everything and end the threads; a second call does nothing."""
        self._closed.set()
        self._flowing.set()
        self.refuse()
        self.cut()
        self._acceptor.join()

    def _accept_all(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                listener = self._listener
            if listener is None:
                self._closed.wait(_IDLE_SECONDS)
                continue
            try:
                client, _ = listener.accept()
            except OSError:  # refuse() closed it
                continue
            try:
                broker = socket.create_connection(self._target, _CONNECT_SECONDS)
            except OSError:
                _reset(client)
                continue
            pair = _Pair(client, broker, self._flowing)
            with self._lock:
                self._pairs.add(pair)
                self._accepted += 1
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(
                    target=self._forward, args=(pair, source, sink), name="fault-proxy", daemon=True
                ).start()
            if self._closed.is_set():
                pair.reset()

    def _forward(self, pair: _Pair, source: socket.socket, sink: socket.socket) -> None:
        pair.forward(source, sink)
        with self._lock:
            self._pairs.discard(pair)


class _Pair:
    """One connection from a client and the one to the broker that belongs to it."""

    def __init__(self, client: socket.socket, broker: socket.socket, flowing: threading.Event) -> None:
        self._client = client
        self._broker = broker
        self._flowing = flowing
        self._broken = threading.Event()
        for end in (client, broker):
            # No call blocks for long, so that a reset takes effect whatever the threads are doing.
            end.settimeout(_IDLE_SECONDS)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def reset(self) -> None:
        """Break both connections at once."""
        self._broken.set()
        for end in (self._client, self._broker):
            _reset(end)

    def forward(self, source: socket.socket, sink: socket.socket) -> None:
        """Forward in one direction until either side ends or `reset` is called; then end both."""
        with contextlib.suppress(OSError):
            while data := self._receive(source):
                self._send(sink, data)
        self._broken.set()
        for end in (source, sink):
            end.close()

    def _receive(self, source: socket.socket) -> bytes:
        while not self._broken.is_set():
            if self._flowing.wait(_IDLE_SECONDS):
                with contextlib.suppress(TimeoutError):
                    return source.recv(_CHUNK_BYTES)
        return b""

    def _send(self, sink: socket.socket, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self._broken.is_set():
            if self._flowing.wait(_IDLE_SECONDS):
                with contextlib.suppress(TimeoutError):
                    rest = rest[sink.send(rest) :]


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        # Wakes a thread that is blocked on it, which a close alone does not.
        end.shutdown(socket.SHUT_RD)
    end.close()
