"""TCP proxy of a broker's admin port that holds responses until the test releases them."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class HeldAdmin:
    """Forwards every request at once, and keeps the broker's responses while `hold()` is in effect.

    Args:
        admin_url: the broker's admin URL.
    """

    def __init__(self, admin_url):
        parts = urlsplit(admin_url)
        self._target = parts.hostname, parts.port
        self._answers = threading.Event()
        self._answers.set()
        self.asked = threading.Event()
        """Set when a response is held."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listener]
        self.url = f"{parts.scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    @property
    def holds(self):
        """True if a response is held."""
        return self.asked.is_set() and not self._answers.is_set()

    def hold(self):
        """Hold all later responses."""
        self.asked.clear()
        self._answers.clear()

    def release(self):
        """Forward all held responses."""
        self._answers.set()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                asking, _ = self._listener.accept()
                broker = socket.create_connection(self._target)
                self._open += [asking, broker]
                for pair in ((asking, broker, False), (broker, asking, True)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source, sink, waits):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if waits and not self._answers.is_set():
                    self.asked.set()
                    self._answers.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
