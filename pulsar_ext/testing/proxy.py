"""TCP proxy that breaks connections on purpose: the fault injector between a client and its broker.

Use its `service_url` in a client. The harness's brokers answer look-ups with "proxy through the service URL", so that
all traffic of the client passes the proxy, which can cut, reject, silence or slow down connections. A `PulsarCluster`
has a proxy in front of each broker, whose look-ups return proxies, and detours for more proxies.

Each direction of a connection is a pure core, a flow: it accepts bytes, and decides which of them may be sent when. It
gets the time as an argument and never waits. Latency and jitter define when a piece is due, the bandwidth when the next
one may follow, and a trap the byte of a frame at which the connection breaks. The order is kept, as in TCP. A link is
two connections and two flows. All links of a proxy are in an event loop of their own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar, cast

from pulsar_ext.errors import InvalidUse

from .access import Detour, Route, lease, parse_service_url
from .ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

T = TypeVar("T")

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

    def claim(self, length: int) -> bool:
        """Return True if a frame of that total length is to be broken, which counts as one."""
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

    def take(self, now: float) -> memoryview:
        """Remove the bytes that are to be sent now; none if it is too early, or the direction is silent or broken."""
        if self.wait(now) != 0.0:
            return memoryview(b"")
        due, data = self._pieces.popleft()
        rate = self._settings.conditions.bytes_per_second
        count = len(data) if rate is None else min(len(data), max(1, int(rate * _SLICE_SECONDS)))
        if self._break_at is not None:
            count = min(count, self._break_at - self._sent_bytes)
        if count < len(data):
            self._pieces.appendleft((due, data[count:]))
        if rate is not None:
            self._free_at = max(self._free_at, now) + count / rate
        self._held -= count
        self._sent_bytes += count
        return data[:count]

    def wait(self, now: float) -> float | None:
        """Return the seconds until something may be sent; None if only an event can change that."""
        if not self._pieces or self._settings.conditions.silent or self.is_broken:
            return None
        free_at = 0.0 if self._settings.conditions.bytes_per_second is None else self._free_at
        return max(0.0, self._pieces[0][0] - now, free_at - now)


EndName = Literal["client", "broker"]

# Linger with zero seconds: closing sends a reset instead of a FIN.
_RESET: Final = struct.pack("ii", 1, 0)


class _End(asyncio.Protocol):
    """End of a link, and the flow of the bytes that arrive there."""

    def __init__(self, link: Link, flow: Flow) -> None:
        self._link = link
        self.flow = flow
        self.transport: asyncio.Transport | None = None
        self.is_full = False
        """True if it accepts no more bytes for now."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(0)

    def data_received(self, data: bytes) -> None:
        if not self._link.is_half_open:
            self.flow.accept(data, time.monotonic())
            self._link.forward()

    def eof_received(self) -> bool:
        self.data_received(b"")
        return not self._link.is_half_open  # else the transport is closed

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._link.forward()

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        self._link.on_lost()

    def reset(self) -> None:
        """Close the connection with a reset, as a killed process or a firewall does."""
        if self.transport is not None:
            with contextlib.suppress(OSError):
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()


class Link:
    """Connection of a client, and the proxy's connection to the broker for it; its methods run in the event loop."""

    def __init__(self, settings: Mapping[Direction, DirectionSettings], on_end: Callable[[Link], None]) -> None:
        self.client = _End(self, Flow(settings[TO_BROKER]))
        self.broker = _End(self, Flow(settings[TO_CLIENT]))
        self.is_half_open = False
        """True if one end was reset alone; the bytes of the other are discarded."""
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None

    def forward(self) -> None:
        """Send what is due, and read as much as the flows accept; called when anything has changed."""
        if self._timer is not None:
            self._timer.cancel()
        waits = []
        for source, sink in ((self.client, self.broker), (self.broker, self.client)):
            if source.transport is None or sink.transport is None or self.is_half_open:
                return  # it is not connected yet, or ends
            flow = source.flow
            while not sink.is_full and (data := flow.take(time.monotonic())):
                sink.transport.write(data)
            if flow.is_broken and not sink.is_full:
                self.reset()
                return
            if flow.is_done:
                sink.transport.close()  # after the bytes that it has not accepted yet
                return
            (source.transport.resume_reading if flow.wants_more else source.transport.pause_reading)()
            if not sink.is_full and (wait := flow.wait(time.monotonic())) is not None:
                waits.append(wait)
        if waits:
            self._timer = asyncio.get_running_loop().call_later(min(waits), self.forward)

    def reset(self) -> None:
        """Reset both ends."""
        self.client.reset()
        self.broker.reset()

    def forget(self, name: EndName) -> None:
        """Reset one end; the other stays open, and its bytes are discarded, until it ends or is reset."""
        self.is_half_open = True
        end, survivor = (self.client, self.broker) if name == "client" else (self.broker, self.client)
        end.reset()
        if survivor.transport is not None:
            survivor.transport.resume_reading()

    def on_lost(self) -> None:
        """Close the other end of a lost one, unless they were separated; the link ends with the last one."""
        left = [end.transport for end in (self.client, self.broker) if end.transport is not None]
        if not left:
            self._on_end(self)
        elif not self.is_half_open:
            left[0].close()


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
        self._settings: dict[Direction, DirectionSettings] = {direction: DirectionSettings() for direction in _BOTH}
        self._links: set[Link] = set()
        self._accepted = 0
        self._listeners: dict[Route, asyncio.Server] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
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
        return len(self._links)

    @property
    def accepted(self) -> int:
        """Number of all connections so far."""
        return self._accepted

    # -- connections -------------------------------------------------------------------------------------------------

    def cut(self) -> int:
        """Reset every connection on both sides, and return their number; new ones are accepted."""
        return self._run(self._each(Link.reset)) or 0

    def cut_in_frame(self, after: int, direction: Direction, *, times: int = 1) -> FrameTrap:
        """Reset connections inside a frame, `times` times: each at the next frame that is longer than `after` bytes.

        A frame of brokers and ZooKeeper is four bytes of length, and as many bytes. `after` of its bytes are still
        forwarded, so a large `after` skips small frames. Another call replaces the setting of the direction. The
        `left` of the returned trap is the number of frames that it will still break.
        """
        trap = FrameTrap(after, times)
        self._settings_of(direction).trap = trap
        return trap

    def forget(self, end: EndName) -> int:
        """Reset the client's or the broker's end of every connection, and leave the other end half open.

        That end is not notified, and its bytes are discarded, until it closes, or `cut()` or `close()` resets it. New
        connections are accepted. Return the number of connections.
        """
        if end not in ("client", "broker"):
            raise InvalidUse(f'end must be "client" or "broker", got {end!r}')
        return self._run(self._each(lambda link: link.forget(end))) or 0

    def refuse(self) -> None:
        """Reject new connections, as a broker that is down does; existing ones stay."""
        self._run(self._refuse())

    def accept(self) -> None:
        """Accept new connections again, on the same ports."""
        self._run(self._accept())

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
        for settings in self._settings.values():
            settings.trap = None
        self._change(None, lambda _: Conditions())
        self.accept()

    def close(self) -> None:
        """Reject and reset everything and end the threads; a second call does nothing."""
        self.refuse()
        self.cut()
        if self._thread.is_alive():
            self._run(self._end())
            self._thread.join()
            self._loop.close()
        if self._lease is not None:
            self._lease.close()

    def _settings_of(self, direction: Direction) -> DirectionSettings:
        if direction not in self._settings:
            raise InvalidUse(f"direction must be one of {', '.join(_BOTH)}, got {direction!r}")
        return self._settings[direction]

    def _change(self, direction: Direction | None, change: Callable[[Conditions], Conditions]) -> None:
        changed = [self._settings_of(one) for one in (_BOTH if direction is None else (direction,))]
        for settings in changed:
            settings.conditions = change(settings.conditions)
        self._run(self._each(Link.forward))

    # -- in the event loop -------------------------------------------------------------------------------------------

    def _run(self, step: Coroutine[object, object, T]) -> T | None:
        """Return the result of a step in the event loop; do nothing after the close, or in a forked process."""
        if self._thread.is_alive():
            return asyncio.run_coroutine_threadsafe(step, self._loop).result()
        step.close()
        return None

    async def _accept(self) -> None:
        for route in self._routes:
            if route not in self._listeners:
                accepting = partial(self._accepted_end, route)
                self._listeners[route] = await self._loop.create_server(accepting, self._host, route.port)

    def _accepted_end(self, route: Route) -> _End:
        link = Link(self._settings, self._links.discard)
        self._connecting.add(task := self._loop.create_task(self._connect(link, route)))
        task.add_done_callback(self._connecting.discard)
        return link.client

    async def _connect(self, link: Link, route: Route) -> None:
        listener = self._listeners.get(route)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._loop.create_connection(lambda: link.broker, route.host, route.target)
            # A connection accepted before `refuse()` is rejected, too, because a later `cut()` would not find it.
            if link.client.transport is not None and listener is not None and self._listeners.get(route) is listener:
                self._links.add(link)
                self._accepted += 1
                link.forward()
        except OSError:
            pass
        finally:
            if link not in self._links:
                link.reset()

    async def _refuse(self) -> None:
        while self._listeners:
            self._listeners.popitem()[1].close()

    async def _each(self, step: Callable[[Link], None]) -> int:
        links = list(self._links)
        for link in links:
            step(link)
        await asyncio.sleep(0)  # until reset connections are closed
        return len(links)

    async def _end(self) -> None:
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        self._loop.call_soon(self._loop.stop)
