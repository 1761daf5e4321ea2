"""One proxied connection: two sockets, two lanes, and the one thread that owns them."""

from __future__ import annotations

import contextlib
import math
import select
import socket
import struct
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Literal

from .proxy_lane import TO_BROKER, TO_CLIENT, Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .proxy_lane import Direction, Way

__all__ = ["End", "Link", "reset_socket"]

End = Literal["client", "broker"]

_CHUNK_BYTES: Final = 65536
# Linger on, zero seconds: closing sends a reset instead of a polite end.
_RESET: Final = struct.pack("ii", 1, 0)


class Link:
    """A connection from a client and the one to the broker that belongs to it.

    Args:
        client: the client's socket.
        broker: the broker's socket.
        ways: what each direction is like.
        on_end: called with this link when it is over.
    """

    def __init__(
        self,
        client: socket.socket,
        broker: socket.socket,
        ways: Mapping[Direction, Way],
        on_end: Callable[[Link], None],
    ) -> None:
        self._ends = {"client": client, "broker": broker}
        self._lanes: list[tuple[socket.socket, Lane, socket.socket]] = [
            (client, Lane(ways[TO_BROKER]), broker),
            (broker, Lane(ways[TO_CLIENT]), client),
        ]
        self._on_end = on_end
        self._bell, self._ear = socket.socketpair()
        self._orders: deque[Literal["reset"] | End] = deque()
        self._survivor: socket.socket | None = None
        for end in (client, broker, self._bell, self._ear):
            end.settimeout(0)
        for end in (client, broker):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)

    def start(self) -> None:
        """Begin to forward."""
        self._thread.start()

    def wake(self) -> None:
        """Have it look at the settings again."""
        with contextlib.suppress(OSError):  # it is over, or so many rings are unheard that one more says nothing
            self._bell.send(b"x")

    def reset(self) -> None:
        """Reset both ends, and return when that is done."""
        self._orders.append("reset")
        self.wake()
        self._thread.join()

    def forget(self, end: End) -> None:
        """Reset one end; the other stays open, and what it sends goes nowhere, until it ends or is reset."""
        self._orders.append(end)
        self.wake()

    def _run(self) -> None:
        try:
            with contextlib.suppress(OSError):
                while self._step():
                    pass
        finally:
            for end in (*self._ends.values(), self._bell, self._ear):
                end.close()
            self._on_end(self)

    def _step(self) -> bool:
        """Carry out an order, send what is due, wait, and read; return whether the connection goes on."""
        while self._orders:
            order = self._orders.popleft()
            if order == "reset":
                return self._break()
            self._survivor = self._ends["broker" if order == "client" else "client"]
            reset_socket(self._ends[order])
        if self._survivor is not None:
            return self._swallow(self._survivor)
        full = {sink for _, lane, sink in self._lanes if not self._send(lane, sink)}
        if any(lane.is_broken for _, lane, _ in self._lanes):
            return self._break()
        if any(lane.is_done for _, lane, _ in self._lanes):
            return False
        readable = self._wait(full)
        for source, lane, _ in self._lanes:
            if source in readable:
                with contextlib.suppress(BlockingIOError):
                    lane.accept(source.recv(_CHUNK_BYTES), time.monotonic())
        return True

    @staticmethod
    def _send(lane: Lane, sink: socket.socket) -> bool:
        """Send what is due; return False when the sink takes no more for now."""
        while data := lane.take(time.monotonic()):
            try:
                count = sink.send(data)
            except BlockingIOError:
                return False
            lane.left(count, time.monotonic())
        return True

    def _wait(self, full: set[socket.socket]) -> set[socket.socket]:
        """Wait until something can be read or sent, or is due; return what can be read."""
        masks: dict[socket.socket, int] = {}
        waits = []
        now = time.monotonic()
        for source, lane, sink in self._lanes:
            if lane.wants_more:
                masks[source] = masks.get(source, 0) | select.POLLIN
            if sink in full:
                masks[sink] = masks.get(sink, 0) | select.POLLOUT
            elif (wait := lane.wait(now)) is not None:
                waits.append(wait)
        ready = self._poll(masks, min(waits, default=None))
        # A reset is read too, whatever was asked for: then `recv` says so.
        return {
            end for end, mask in masks.items() if mask & select.POLLIN and ready.get(end.fileno(), 0) & ~select.POLLOUT
        }

    def _swallow(self, survivor: socket.socket) -> bool:
        """Read what the surviving end sends, and drop it; return False when it has ended."""
        self._poll({survivor: select.POLLIN}, None)
        with contextlib.suppress(BlockingIOError):
            return bool(survivor.recv(_CHUNK_BYTES))
        return True

    def _poll(self, masks: Mapping[socket.socket, int], wait: float | None) -> dict[int, int]:
        # Only what is asked for is registered: a broken connection that nobody may read would wake it for ever.
        poll = select.poll()
        poll.register(self._ear, select.POLLIN)
        for end, mask in masks.items():
            poll.register(end, mask)
        ready = dict(poll.poll(None if wait is None else math.ceil(wait * 1000)))
        if self._ear.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                self._ear.recv(_CHUNK_BYTES)
        return ready

    def _break(self) -> Literal[False]:
        for end in self._ends.values():
            reset_socket(end)
        return False


def reset_socket(end: socket.socket) -> None:
    """Close a connection by a reset, as a process that was killed, or a firewall, does."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()
