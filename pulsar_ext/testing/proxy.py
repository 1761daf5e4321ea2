"""A TCP proxy that breaks connections on purpose: the fault injector between a client and its broker.

Put its `service_url` in a client. The harness's brokers answer look-ups with "proxy through the service URL", so that
all of the client's traffic passes here, and can be cut, refused, silenced or slowed down at a moment the test chooses.
A `PulsarCluster` has one before each of its brokers, whose look-ups stay behind them, and detours for further ones.

Each direction of a connection is a pure core, a lane: bytes in, and which of them may leave when. Time is handed in, so
nothing in it waits: latency and jitter decide when a piece is due, the bandwidth when the next one may follow, and a
trap at which byte of which frame the connection breaks. Order is kept, as TCP keeps it. A link is two sockets, two
lanes, and the one thread that owns them.
"""

from __future__ import annotations

import contextlib
import math
import random
import select
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pulsar_ext.errors import InvalidUse

from .access import Detour, Route, lease, way_to
from .ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


Direction = Literal["to_broker", "to_client"]
TO_BROKER: Final = "to_broker"
TO_CLIENT: Final = "to_client"

# What may be on the way at once: with a second of latency, a megabyte a second.
_ROOM_BYTES: Final = 1 << 20
_LENGTH: Final = struct.Struct(">I")
# A limited bandwidth is given out in pieces of this length, so that a low one does not come in one burst a second.
_SLICE_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Conditions:
    """What one direction of the network is like.

    Args:
        latency: seconds that each piece takes.
        jitter: up to so many seconds more, by chance.
        bytes_per_second: how much passes on each connection; None for no limit.
        silent: whether nothing passes.

    Raises:
        InvalidUse: a number is negative, or the bandwidth is not above 0.
    """

    latency: float = 0.0
    jitter: float = 0.0
    bytes_per_second: float | None = None
    silent: bool = False

    def __post_init__(self) -> None:
        if self.latency < 0 or self.jitter < 0:
            raise InvalidUse(f"latency and jitter are seconds from 0 on, not {self.latency} and {self.jitter}")
        if self.bytes_per_second is not None and self.bytes_per_second <= 0:
            raise InvalidUse(
                f"a bandwidth is above 0 bytes a second, not {self.bytes_per_second}: pause() lets nothing pass"
            )


class FrameTrap:
    """Breaks connections amid a frame: so many times, each time at a frame that is longer than that.

    Args:
        after: how many bytes of the frame still pass, its length field included.
        times: how many frames are broken.

    Raises:
        InvalidUse: `after` is negative, or `times` is not 1 or more.
    """

    def __init__(self, after: int, times: int = 1) -> None:
        if after < 0 or times < 1:
            raise InvalidUse(f"a frame breaks after 0 bytes or more, once or more, not after {after}, {times} times")
        self.after = after
        self._times = times
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """How many frames will still be broken."""
        return self._times

    def claim(self, length: int) -> bool:
        """Return whether a frame of that many bytes in all is to be broken; what was claimed is used up."""
        with self._lock:
            if length <= self.after or self._times == 0:
                return False
            self._times -= 1
            return True


@dataclass
class Way:
    """One direction's settings, which all connections of a proxy share; the proxy alone changes them."""

    conditions: Conditions = field(default_factory=Conditions)
    trap: FrameTrap | None = None


class Frames:
    """Finds where frames begin in a stream: four bytes say a length, big-endian, and as many bytes follow."""

    def __init__(self) -> None:
        self._base = 0
        self._next = 0
        self._part = b""

    def feed(self, data: bytes) -> list[tuple[int, int]]:
        """Take the next bytes; give the offset and the whole length of each frame whose length is known now."""
        data = self._part + data
        found = []
        at, end = self._next - self._base, len(data)
        while at + _LENGTH.size <= end:
            whole = _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            found.append((self._base + at, whole))
            at += whole
        self._next = self._base + at
        # What is there of the next frame's length stays for the next time.
        self._part = data[at:]
        self._base += end - len(self._part)
        return found


class Lane:
    """What is on its way in one direction of one connection."""

    def __init__(self, way: Way, dice: random.Random | None = None) -> None:
        self._way = way
        self._dice = dice or random.Random()  # noqa: S311  # no secret
        self._frames = Frames()
        self._pieces: deque[tuple[float, memoryview]] = deque()
        self._held = 0
        self._left_bytes = 0
        self._last_due = 0.0
        self._free_at = 0.0
        self._break_at: int | None = None
        self._ended = False

    @property
    def wants_more(self) -> bool:
        """Whether the next bytes may be read."""
        return not (self._ended or self._way.conditions.silent or self._held >= _ROOM_BYTES)

    @property
    def is_broken(self) -> bool:
        """Whether all that may leave has left, because a trap has closed: the connection is to be reset."""
        return self._break_at is not None and self._left_bytes >= self._break_at

    @property
    def is_done(self) -> bool:
        """Whether the source has ended, and all of it has left."""
        return self._ended and not self._pieces

    def accept(self, data: bytes, now: float) -> None:
        """Take what the source sent; no bytes at all are its end."""
        if not data:
            self._ended = True
            return
        conditions = self._way.conditions
        for offset, length in self._frames.feed(data):
            trap = self._way.trap
            if trap is not None and self._break_at is None and trap.claim(length):
                self._break_at = offset + trap.after
        delay = conditions.latency + self._dice.uniform(0.0, conditions.jitter)
        # Later bytes do not overtake earlier ones, however the dice fall.
        self._last_due = max(self._last_due, now + delay)
        self._pieces.append((self._last_due, memoryview(data)))
        self._held += len(data)

    def take(self, now: float) -> memoryview:
        """Give what may leave now; nothing if it is too early, or the direction is silent or broken."""
        if not self._may_leave(now):
            return memoryview(b"")
        data = self._pieces[0][1]
        rate = self._way.conditions.bytes_per_second
        most = len(data) if rate is None else max(1, int(rate * _SLICE_SECONDS))
        if self._break_at is not None:
            most = min(most, self._break_at - self._left_bytes)
        return data[:most]

    def left(self, count: int, now: float) -> None:
        """Note that so many bytes of what `take` gave have left."""
        due, data = self._pieces.popleft()
        if count < len(data):
            self._pieces.appendleft((due, data[count:]))
        self._held -= count
        self._left_bytes += count
        rate = self._way.conditions.bytes_per_second
        if rate is not None:
            self._free_at = max(self._free_at, now) + count / rate

    def wait(self, now: float) -> float | None:
        """Return the seconds until something may leave; None if only an event can bring that about."""
        if not self._pieces or self._way.conditions.silent or self.is_broken:
            return None
        return max(0.0, self._pieces[0][0] - now, self._paced_until() - now)

    def _may_leave(self, now: float) -> bool:
        return self.wait(now) == 0.0

    def _paced_until(self) -> float:
        return 0.0 if self._way.conditions.bytes_per_second is None else self._free_at


End = Literal["client", "broker"]

_CHUNK_BYTES: Final = 65536
# Linger on, zero seconds: closing sends a reset instead of a polite end.
_RESET: Final = struct.pack("ii", 1, 0)


class Link:
    """A connection from a client and the one to the broker that belongs to it."""

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


_IDLE_SECONDS: Final = 0.02
_CONNECT_SECONDS: Final = 5.0
_BOTH: Final[tuple[Direction, ...]] = (TO_BROKER, TO_CLIENT)


class FaultProxy:
    """Forward connections from a free port, by default on the loopback, to a broker or a cluster's brokers.

    It breaks them on demand.

    Where a direction can be given, `"to_broker"` or `"to_client"`, both are meant without one. What is set holds for
    connections that exist and for new ones.

    Args:
        target_host: the broker's host.
        target_port: the broker's port.
        port: where it listens; a free port by default.
        host: the address that it listens on.
        scheme: what its URL begins with; what passes is never looked into, so TLS goes from end to end.
        more: further brokers, with the ports where it listens for them.
    """

    def __init__(
        self,
        target_host: str,
        target_port: int,
        *,
        port: int | None = None,
        host: str = "127.0.0.1",
        scheme: str = "pulsar",
        more: Sequence[Route] = (),
    ) -> None:
        self._host = host
        self._scheme = scheme
        self._routes = (Route(port or free_port(), target_host, target_port), *more)
        self._lease: socket.socket | None = None
        self._lock = threading.RLock()
        self._ways: dict[Direction, Way] = {direction: Way() for direction in _BOTH}
        self._closed = threading.Event()
        self._links: set[Link] = set()
        self._accepted = 0
        self._listeners: dict[Route, socket.socket] = {}
        self._acceptors = [
            threading.Thread(target=self._accept_all, args=(route,), name="fault-proxy", daemon=True)
            for route in self._routes
        ]
        self.accept()
        for acceptor in self._acceptors:
            acceptor.start()

    @classmethod
    def to(cls, service_url: str, detours: Sequence[Detour] = ()) -> Self:
        """Return a proxy to the broker at that URL, `pulsar://host:port`, or by a detour to those of a cluster.

        Args:
            service_url: where clients connect.
            detours: a broker's `detours`: one that nobody takes now belongs to the proxy until it is closed.

        Raises:
            InvalidUse: the URL has several brokers, and there is no detour, without which look-ups lead past a proxy.
            BrokerStartError: all detours are taken.
        """
        if not detours:
            scheme, host, port = way_to(service_url)
            return cls(host, port, scheme=scheme)
        detour, held = lease(detours)
        first, *more = detour.routes
        try:
            proxy = cls(first.host, first.target, port=first.port, scheme=detour.scheme, more=more)
        except BaseException:
            held.close()
            raise
        proxy._lease = held  # its own class
        return proxy

    def __repr__(self) -> str:
        targets = ", ".join(f"{route.host}:{route.target}" for route in self._routes)
        return f"<FaultProxy {self.service_url} to {targets}, {self.connections} connections>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port that it listens on, the same for all its life; before a cluster the first one."""
        return self._routes[0].port

    @property
    def service_url(self) -> str:
        """The URL for clients, `pulsar://localhost:port`, with TLS `pulsar+ssl://…`."""
        return f"{self._scheme}://" + ",".join(f"localhost:{route.port}" for route in self._routes)

    @property
    def connections(self) -> int:
        """How many connections go through it now."""
        with self._lock:
            return len(self._links)

    @property
    def accepted(self) -> int:
        """How many connections have ever gone through it."""
        with self._lock:
            return self._accepted

    # -- connections -------------------------------------------------------------------------------------------------

    def cut(self) -> int:
        """Reset every connection, on both sides; new ones are still welcome. Return how many there were."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.reset()
        return len(links)

    def cut_in_frame(self, after: int, direction: Direction, *, times: int = 1) -> FrameTrap:
        """Reset connections amid a frame, as many as `times`: each at the next frame that is longer than `after` bytes.

        A frame is what brokers and ZooKeeper speak in: four bytes of length, and as many bytes. `after` of them still
        pass, so a large `after` leaves small frames alone. Setting it again replaces what was set for the direction.

        Returns:
            The trap; its `left` says how many frames it will still break.

        Raises:
            InvalidUse: `after` is negative, `times` is below 1, or there is no such direction.
        """
        trap = FrameTrap(after, times)
        self._way(direction).trap = trap
        return trap

    def forget(self, end: End) -> int:
        """Reset the client's or the broker's end of every connection, and leave the other end half open.

        That end hears nothing of it, and what it sends goes nowhere, until it gives up, or `cut()` or `close()` resets
        it. New connections are welcome. Return how many there were.

        Raises:
            InvalidUse: the end is neither `"client"` nor `"broker"`.
        """
        if end not in ("client", "broker"):
            raise InvalidUse(f'a connection has the ends "client" and "broker", not {end!r}')
        with self._lock:
            links = list(self._links)
        for link in links:
            link.forget(end)
        return len(links)

    def refuse(self) -> None:
        """Refuse new connections, as a broker that is down does; those that exist go on."""
        with self._lock:
            listeners, self._listeners = self._listeners, {}
            for listener in listeners.values():
                # A blocked accept() would keep the socket listening after its close.
                with contextlib.suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)
                listener.close()

    def accept(self) -> None:
        """Accept new connections again, on the same ports."""
        with self._lock:
            for route in self._routes:
                if route not in self._listeners and not self._closed.is_set():
                    listener = socket.socket()
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    try:
                        listener.bind((self._host, route.port))
                        listener.listen()
                    except BaseException:
                        listener.close()
                        raise
                    self._listeners[route] = listener

    # -- what the network is like ------------------------------------------------------------------------------------

    def pause(self, direction: Direction | None = None) -> None:
        """Stop forwarding; connections stay open, as on a network that swallows packets."""
        self._change(direction, silent=True)

    def resume(self, direction: Direction | None = None) -> None:
        """Forward again, beginning with what has piled up."""
        self._change(direction, silent=False)

    def delay(self, latency: float, jitter: float = 0.0, direction: Direction | None = None) -> None:
        """Make everything take so many seconds longer, and up to `jitter` seconds more by chance; 0 is no delay.

        Order is kept, and a megabyte can be on its way on each connection.

        Raises:
            InvalidUse: a number is negative, or there is no such direction.
        """
        self._change(direction, latency=latency, jitter=jitter)

    def limit(self, bytes_per_second: float | None, direction: Direction | None = None) -> None:
        """Let so many bytes a second pass on each connection; None lifts the limit.

        Raises:
            InvalidUse: the bandwidth is not above 0, or there is no such direction.
        """
        self._change(direction, bytes_per_second=bytes_per_second)

    def heal(self) -> None:
        """Take back everything that was set: accept, resume, no delay, no limit, no frame to cut in."""
        with self._lock:
            for way in self._ways.values():
                way.trap = None
        self._change(None, latency=0.0, jitter=0.0, bytes_per_second=None, silent=False)
        self.accept()

    def close(self) -> None:
        """Refuse and reset everything and end the threads; a second call does nothing."""
        self._closed.set()
        self.refuse()
        self.cut()
        for acceptor in self._acceptors:
            acceptor.join()
        if self._lease is not None:
            self._lease.close()

    def _way(self, direction: Direction) -> Way:
        if direction not in self._ways:
            raise InvalidUse(f"a proxy has the directions {' and '.join(_BOTH)}, not {direction!r}")
        return self._ways[direction]

    def _change(self, direction: Direction | None, **changes: Any) -> None:
        with self._lock:
            ways = [self._way(one) for one in (_BOTH if direction is None else (direction,))]
            for way in ways:
                way.conditions = replace(way.conditions, **changes)
            links = list(self._links)
        for link in links:
            link.wake()

    def _accept_all(self, route: Route) -> None:
        while not self._closed.is_set():
            with self._lock:
                listener = self._listeners.get(route)
            if listener is None:
                self._closed.wait(_IDLE_SECONDS)
                continue
            try:
                client, _ = listener.accept()
            except OSError:  # refuse() closed it
                continue
            try:
                broker = socket.create_connection((route.host, route.target), _CONNECT_SECONDS)
            except OSError:
                reset_socket(client)
                continue
            with self._lock:
                # Who was on the way when refuse() came is refused too, for a cut() behind it would not have found it.
                if self._listeners.get(route) is listener:
                    link = Link(client, broker, self._ways, self._drop)
                    self._links.add(link)
                    self._accepted += 1
                    link.start()
                    continue
            reset_socket(client)
            reset_socket(broker)

    def _drop(self, link: Link) -> None:
        with self._lock:
            self._links.discard(link)
