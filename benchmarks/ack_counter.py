"""Proxy that counts the acknowledgement commands sent to a broker."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final
from urllib.parse import urlsplit

__all__ = ["AckCountingProxy"]

_ACK: Final = 10
"""`BaseCommand.Type.ACK` of the wire protocol."""


class AckCountingProxy:
    """Proxy to a broker that counts acknowledgement commands and their bytes."""

    def __init__(self, service_url: str) -> None:
        target = urlsplit(service_url)
        self._target = (target.hostname or "localhost", target.port or 6650)
        self._listener = socket.create_server(("localhost", 0))
        self.service_url = f"pulsar://localhost:{self._listener.getsockname()[1]}"
        self.commands = self.bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._target)
                threading.Thread(target=self._forward, args=(broker, client), daemon=True).start()
                threading.Thread(target=self._count, args=(client, broker), daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)

    def _count(self, source: socket.socket, sink: socket.socket) -> None:
        held = bytearray()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
                held += data
                # A frame is its size, the command's size and the command; a command begins with its type.
                while len(held) >= 4 and len(held) >= (size := 4 + int.from_bytes(held[:4], "big")):
                    if held[8] == 0x08 and held[9] == _ACK:
                        self.commands += 1
                        self.bytes += size
                    del held[:size]
