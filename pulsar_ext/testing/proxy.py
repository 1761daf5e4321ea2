"""TCP proxy that breaks connections on purpose: the fault injector between a client and its broker.

Use its `service_url` in a client. The harness's brokers answer look-ups with "proxy through the service URL", so that
all traffic of the client passes the proxy, which can cut, reject, silence or slow down connections. A `PulsarCluster`
has a proxy in front of each broker, whose look-ups return proxies, and detours for more proxies.

Each direction of a connection is a pure core, a flow: it accepts bytes, and decides which of them may be sent when. It
gets the time as an argument and never waits. Latency and jitter define when a piece is due, the bandwidth when the next
one may follow, and a trap the byte of a frame at which the connection breaks. The order is kept, as in TCP. A link is
two sockets, two flows, and the thread that owns them.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import TYPE_CHECKING, Final, Literal, Self

from pulsar_ext.errors import InvalidUse

from .access import Detour, Route, lease, parse_service_url
from .ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


Direction = Literal["to_broker", "to_client"]
TO_BROKER: Final = "to_broker"
TO_CLIENT: Final = "to_client"

# Maximum number of bytes in flight: a megabyte per second with a second of latency.
_MAX_BYTES_IN_FLIGHT: Final = 1 << 20
_LENGTH: Final = struct.Struct(">I")
# A limited bandwidth is divided into pieces of this duration, so that a low one is not a single burst per second.
_SLICE_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Conditions:
    """Conditions of one direction of the network: delays in seconds, the bandwidth, and if nothing is forwarded."""

    latency: float = 0.0
    jitter: float = 0.0
    bytes_per_second: float | None = None
    silent: bool = False

    def __post_init__(self) -> None:
        if self.latency < 0 or self.jitter < 0:
            raise InvalidUse(f"latency and jitter must be >= 0 seconds, got {self.latency} and {self.jitter}")
        if self.bytes_per_second is not None and self.bytes_per_second <= 0:
            raise InvalidUse(f"bytes_per_second must be > 0, got {self.bytes_per_second}; pause() stops forwarding")


class FrameTrap:
    """Trap that breaks connections inside a frame, at frames longer than `after` bytes, which are still forwarded."""

    def __init__(self, after: int, times: int = 1) -> None:
        if after < 0 or times < 1:
            raise InvalidUse(f"after must be >= 0 and times >= 1, got {after} and {times}")
        self.after = after
        self.left = times
        """Number of frames that will still be broken."""
        self._lock = threading.Lock()

    def claim(self, length: int) -> bool:
        """Return True if a frame of that total length is to be broken, which counts as one."""
        with self._lock:
            if length <= self.after or self.left == 0:
                return False
            self.left -= 1
            return True


@dataclass
class DirectionSettings:
    """Settings of one direction, which all connections of a proxy share; only the proxy changes them."""

    conditions: Conditions = field(default_factory=Conditions)
    trap: FrameTrap | None = None


class Frames:
    """Finder of frame starts in a stream: four bytes are a big-endian length, and as many bytes follow."""

    def __init__(self) -> None:
        self._base = 0
        self._next = 0
        self._part = b""

    def feed(self, data: bytes) -> list[tuple[int, int]]:
        """Accept the next bytes; return offset and total length of each frame whose length became known."""
        data = self._part + data
        found = []
        at, end = self._next - self._base, len(data)
        while at + _LENGTH.size <= end:
            whole = _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            found.append((self._base + at, whole))
            at += whole
        self._next = self._base + at
        # An incomplete length of the next frame is kept.
        self._part = data[at:]
        self._base += end - len(self._part)
        return found


class Flow:
    """Bytes in flight in one direction of one connection."""

    def __init__(self, settings: DirectionSettings, generator: random.Random | None = None) -> None:
        self._settings = settings
        self._random = generator or random.Random()  # noqa: S311  # not a secret
        self._frames = Frames()
        self._pieces: deque[tuple[float, memoryview]] = deque()
        self._held = 0
        self._sent_bytes = 0
        self._last_due = 0.0
        self._free_at = 0.0
        self._break_at: int | None = None
        self._ended = False

    @property
    def wants_more(self) -> bool:
        """True if more bytes may be read."""
        return not (self._ended or self._settings.conditions.silent or self._held >= _MAX_BYTES_IN_FLIGHT)

    @property
    def is_broken(self) -> bool:
        """True if a trap has closed and all bytes before the break were sent: the connection is to be reset."""
        return self._break_at is not None and self._sent_bytes >= self._break_at

    @property
    def is_done(self) -> bool:
        """True if the source has ended and all of its bytes were sent."""
        return self._ended and not self._pieces

    def accept(self, data: bytes, now: float) -> None:
        """Accept bytes of the source; empty bytes are its end."""
        if not data:
            self._ended = True
            return
        conditions = self._settings.conditions
        for offset, length in self._frames.feed(data):
            trap = self._settings.trap
            if trap is not None and self._break_at is None and trap.claim(length):
                self._break_at = offset + trap.after
        delay = conditions.latency + self._random.uniform(0.0, conditions.jitter)
        # Later bytes do not overtake earlier ones, whatever the jitter.
        self._last_due = max(self._last_due, now + delay)
        self._pieces.append((self._last_due, memoryview(data)))
        self._held += len(data)

    def sendable(self, now: float) -> memoryview:
        """Return the bytes that may be sent now; empty if it is too early, or the direction is silent or broken."""
        if self.wait(now) != 0.0:
            return memoryview(b"")
        data = self._pieces[0][1]
        rate = self._settings.conditions.bytes_per_second
        limit = len(data) if rate is None else max(1, int(rate * _SLICE_SECONDS))
        if self._break_at is not None:
            limit = min(limit, self._break_at - self._sent_bytes)
        return data[:limit]

    def confirm_sent(self, count: int, now: float) -> None:
        """Record that `count` bytes of the result of `sendable` were sent."""
        due, data = self._pieces.popleft()
        if count < len(data):
            self._pieces.appendleft((due, data[count:]))
        self._held -= count
        self._sent_bytes += count
        rate = self._settings.conditions.bytes_per_second
        if rate is not None:
            self._free_at = max(self._free_at, now) + count / rate

    def wait(self, now: float) -> float | None:
        """Return the seconds until something may be sent; None if only an event can change that."""
        if not self._pieces or self._settings.conditions.silent or self.is_broken:
            return None
        free_at = 0.0 if self._settings.conditions.bytes_per_second is None else self._free_at
        return max(0.0, self._pieces[0][0] - now, free_at - now)


End = Literal["client", "broker"]

_CHUNK_BYTES: Final = 65536
# Linger with zero seconds: closing sends a reset instead of a FIN.
_RESET: Final = struct.pack("ii", 1, 0)


class Link:
    """Connection of a client, and the proxy's connection to the broker for it."""

    def __init__(
        self,
        client: socket.socket,
        broker: socket.socket,
        settings: Mapping[Direction, DirectionSettings],
        on_end: Callable[[Link], None],
    ) -> None:
        self._ends = {"client": client, "broker": broker}
        self._flows: list[tuple[socket.socket, Flow, socket.socket]] = [
            (client, Flow(settings[TO_BROKER]), broker),
            (broker, Flow(settings[TO_CLIENT]), client),
        ]
        self._on_end = on_end
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._orders: deque[Literal["reset"] | End] = deque()
        self._survivor: socket.socket | None = None
        for end in (client, broker, self._wake_sender, self._wake_receiver):
            end.settimeout(0)
        for end in (client, broker):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)

    def start(self) -> None:
        """Start forwarding."""
        self._thread.start()

    def wake(self) -> None:
        """Make the thread check the settings again."""
        with contextlib.suppress(OSError):  # it has ended, or many wake-ups are pending
            self._wake_sender.send(b"x")

    def reset(self) -> None:
        """Reset both ends, and return afterwards."""
        self._orders.append("reset")
        self.wake()
        self._thread.join()

    def forget(self, end: End) -> None:
        """Reset one end; the other stays open, and its bytes are discarded, until it ends or is reset."""
        self._orders.append(end)
        self.wake()

    def _run(self) -> None:
        try:
            with contextlib.suppress(OSError):
                while self._step():
                    pass
        finally:
            for end in (*self._ends.values(), self._wake_sender, self._wake_receiver):
                end.close()
            self._on_end(self)

    def _step(self) -> bool:
        """Execute orders, send what is due, wait, and read; return False when the connection has ended."""
        while self._orders:
            order = self._orders.popleft()
            if order == "reset":
                return self._break()
            self._survivor = self._ends["broker" if order == "client" else "client"]
            reset_socket(self._ends[order])
        if self._survivor is not None:
            return self._discard(self._survivor)
        full = {sink for _, flow, sink in self._flows if not self._send(flow, sink)}
        if any(flow.is_broken for _, flow, _ in self._flows):
            return self._break()
        if any(flow.is_done for _, flow, _ in self._flows):
            return False
        readable = self._wait(full)
        for source, flow, _ in self._flows:
            if source in readable:
                with contextlib.suppress(BlockingIOError):
                    flow.accept(source.recv(_CHUNK_BYTES), time.monotonic())
        return True

    @staticmethod
    def _send(flow: Flow, sink: socket.socket) -> bool:
        """Send what is due; return False if the sink accepts no more for now."""
        while data := flow.sendable(time.monotonic()):
            try:
                count = sink.send(data)
            except BlockingIOError:
                return False
            flow.confirm_sent(count, time.monotonic())
        return True

    def _wait(self, full: set[socket.socket]) -> set[socket.socket]:
        """Wait until something can be read or sent, or is due; return the readable sockets."""
        events = dict.fromkeys(self._ends.values(), 0)
        waits = []
        now = time.monotonic()
        for source, flow, sink in self._flows:
            if flow.wants_more:
                events[source] |= EVENT_READ
            if sink in full:
                events[sink] |= EVENT_WRITE
            elif (wait := flow.wait(now)) is not None:
                waits.append(wait)
        return self._select(events, min(waits, default=None))

    def _discard(self, survivor: socket.socket) -> bool:
        """Read and discard the surviving end's bytes; return False when it has ended."""
        self._select({survivor: EVENT_READ}, None)
        with contextlib.suppress(BlockingIOError):
            return bool(survivor.recv(_CHUNK_BYTES))
        return True

    def _select(self, events: Mapping[socket.socket, int], wait: float | None) -> set[socket.socket]:
        """Wait for the events or an order, and return the sockets to read, reset ones among them."""
        with DefaultSelector() as selector:
            for end, mask in {**events, self._wake_receiver: EVENT_READ}.items():
                if mask:  # a broken connection that must not be read would wake the thread forever
                    selector.register(end, mask)
            readable = {key.fileobj for key, mask in selector.select(wait) if mask & EVENT_READ}
        if self._wake_receiver in readable:
            with contextlib.suppress(BlockingIOError):
                self._wake_receiver.recv(_CHUNK_BYTES)
        return {end for end in events if end in readable}

    def _break(self) -> bool:
        for end in self._ends.values():
            reset_socket(end)
        return False


def reset_socket(end: socket.socket) -> None:
    """Close a connection with a reset, as a killed process or a firewall does."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()


_CONNECT_SECONDS: Final = 5.0
_BOTH: Final[tuple[Direction, ...]] = (TO_BROKER, TO_CLIENT)


class FaultProxy:
    """Proxy from a free port, by default on the loopback, to a broker or a cluster's brokers, with faults on demand.

    A method without `direction`, `"to_broker"` or `"to_client"`, applies to both. Settings apply to existing and to new
    connections. Methods raise `InvalidUse` for an unknown direction or end, and for a number out of range.

    Args:
        target_host: the broker's host.
        target_port: the broker's port.
        port: port to listen on; a free one by default.
        host: address to listen on.
        scheme: scheme of its URL; the bytes are never interpreted, so TLS is end to end.
        more: more brokers, with the ports for them.
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
        self._settings: dict[Direction, DirectionSettings] = {direction: DirectionSettings() for direction in _BOTH}
        self._closed = False
        self._links: set[Link] = set()
        self._accepted = 0
        self._listeners: dict[Route, socket.socket] = {}
        self._acceptors: list[threading.Thread] = []
        try:
            self.accept()
        except BaseException:
            self.close()
            raise

    @classmethod
    def to(cls, service_url: str, detours: Sequence[Detour] = ()) -> Self:
        """Return a proxy to the broker at a URL, `pulsar://host:port`, or through a detour to those of a cluster.

        Args:
            service_url: URL of the broker or the cluster.
            detours: a broker's `detours`: a free one belongs to the proxy until it is closed.

        Raises:
            InvalidUse: the URL has several brokers and there is no detour, so that look-ups would bypass the proxy.
            BrokerStartError: all detours are in use.
        """
        if not detours:
            scheme, host, port = parse_service_url(service_url)
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
        """Port that it listens on, constant for its life; of a cluster the first one."""
        return self._routes[0].port

    @property
    def service_url(self) -> str:
        """URL for clients, `pulsar://localhost:port`, with TLS `pulsar+ssl://…`."""
        return f"{self._scheme}://" + ",".join(f"localhost:{route.port}" for route in self._routes)

    @property
    def connections(self) -> int:
        """Number of current connections."""
        with self._lock:
            return len(self._links)

    @property
    def accepted(self) -> int:
        """Number of all connections so far."""
        with self._lock:
            return self._accepted

    # -- connections -------------------------------------------------------------------------------------------------

    def cut(self) -> int:
        """Reset every connection on both sides, and return their number; new ones are accepted."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.reset()
        return len(links)

    def cut_in_frame(self, after: int, direction: Direction, *, times: int = 1) -> FrameTrap:
        """Reset connections inside a frame, `times` times: each at the next frame that is longer than `after` bytes.

        A frame of brokers and ZooKeeper is four bytes of length, and as many bytes. `after` of its bytes are still
        forwarded, so a large `after` skips small frames. Another call replaces the setting of the direction. The
        `left` of the returned trap is the number of frames that it will still break.
        """
        trap = FrameTrap(after, times)
        self._settings_of(direction).trap = trap
        return trap

    def forget(self, end: End) -> int:
        """Reset the client's or the broker's end of every connection, and leave the other end half open.

        That end is not notified, and its bytes are discarded, until it closes, or `cut()` or `close()` resets it. New
        connections are accepted. Return the number of connections.
        """
        if end not in ("client", "broker"):
            raise InvalidUse(f'end must be "client" or "broker", got {end!r}')
        with self._lock:
            links = list(self._links)
        for link in links:
            link.forget(end)
        return len(links)

    def refuse(self) -> None:
        """Reject new connections, as a broker that is down does; existing ones stay."""
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
                if route not in self._listeners and not self._closed:
                    listener = self._listeners[route] = socket.create_server((self._host, route.port))
                    acceptor = threading.Thread(
                        target=self._accept_all, args=(route, listener), name="fault-proxy", daemon=True
                    )
                    self._acceptors.append(acceptor)
                    acceptor.start()

    # -- network conditions ------------------------------------------------------------------------------------------

    def pause(self, direction: Direction | None = None) -> None:
        """Stop forwarding; connections stay open, as on a network that drops packets."""
        self._change(direction, lambda one: replace(one, silent=True))

    def resume(self, direction: Direction | None = None) -> None:
        """Forward again, beginning with the bytes that have accumulated."""
        self._change(direction, lambda one: replace(one, silent=False))

    def delay(self, latency: float, jitter: float = 0.0, direction: Direction | None = None) -> None:
        """Delay everything by `latency` seconds, and up to `jitter` random seconds more; 0 means no delay.

        The order is kept, and up to a megabyte can be in flight on each connection.
        """
        self._change(direction, lambda one: replace(one, latency=latency, jitter=jitter))

    def limit(self, bytes_per_second: float | None, direction: Direction | None = None) -> None:
        """Limit the bandwidth of each connection; None removes the limit."""
        self._change(direction, lambda one: replace(one, bytes_per_second=bytes_per_second))

    def heal(self) -> None:
        """Remove all faults: accept, resume, no delay, no limit, no trap."""
        with self._lock:
            for settings in self._settings.values():
                settings.trap = None
        self._change(None, lambda _: Conditions())
        self.accept()

    def close(self) -> None:
        """Reject and reset everything and end the threads; a second call does nothing."""
        self._closed = True
        self.refuse()
        self.cut()
        for acceptor in self._acceptors:
            acceptor.join()
        if self._lease is not None:
            self._lease.close()

    def _settings_of(self, direction: Direction) -> DirectionSettings:
        if direction not in self._settings:
            raise InvalidUse(f"direction must be one of {', '.join(_BOTH)}, got {direction!r}")
        return self._settings[direction]

    def _change(self, direction: Direction | None, change: Callable[[Conditions], Conditions]) -> None:
        with self._lock:
            changed = [self._settings_of(one) for one in (_BOTH if direction is None else (direction,))]
            for settings in changed:
                settings.conditions = change(settings.conditions)
            links = list(self._links)
        for link in links:
            link.wake()

    def _accept_all(self, route: Route, listener: socket.socket) -> None:
        while self._listeners.get(route) is listener:
            try:
                client, _ = listener.accept()
            except OSError:  # `refuse()` closed it
                continue
            try:
                broker = socket.create_connection((route.host, route.target), _CONNECT_SECONDS)
            except OSError:
                reset_socket(client)
                continue
            with self._lock:
                # A connection accepted before `refuse()` is rejected, too, because a later `cut()` would not find it.
                if self._listeners.get(route) is listener:
                    link = Link(client, broker, self._settings, self._drop)
                    self._links.add(link)
                    self._accepted += 1
                    link.start()
                    continue
            reset_socket(client)
            reset_socket(broker)

    def _drop(self, link: Link) -> None:
        with self._lock:
            self._links.discard(link)
