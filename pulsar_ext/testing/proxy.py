"""A TCP proxy that breaks connections on purpose: the fault injector between a client and its broker.

Put its `service_url` in a client. The harness's brokers answer look-ups with "proxy through the service URL", so that
all of the client's traffic passes here, and can be cut, refused, silenced or slowed down at a moment the test chooses.
A `PulsarCluster` has one before each of its brokers, whose look-ups stay behind them, and detours for further ones.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from pulsar_ext.errors import InvalidUse

from .detour import Route, lease, way_to
from .ports import free_port
from .proxy_lane import TO_BROKER, TO_CLIENT, Direction, FrameTrap, Way
from .proxy_link import End, Link, reset_socket

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from .detour import Detour

__all__ = ["FaultProxy"]

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
