"""The parts of a test cluster: launched by their names, and what "ready" means for each of them.

ZooKeeper is ready when it says so and takes connections, a bookie when it says so, a broker when it is among the active
ones and has the default namespace, and all together when one message went in and came out through the official client.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Final

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .broker import start_error, tail_of
from .cluster_admin import ClusterAdmin
from .cluster_conf import CLUSTER, HOST, SETUP, ZOOKEEPER, Addresses, bookie_conf, broker_conf, zookeeper_conf
from .cluster_ground import Command
from .identity import Identity
from .profiles import standalone_conf
from .proxy import FaultProxy
from .readiness import default_namespace_exists, round_trip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .access import Access
    from .cluster_ground import Ground, Part
    from .profiles import Profile

__all__ = ["ClusterParts"]

_POLL_SECONDS: Final = 0.1
_CONNECT_SECONDS: Final = 1.0
_ROUND_TRIP_SECONDS: Final = 15.0
# Connections alone say little: another program may have taken its port.
_ZOOKEEPER_READY: Final = "PrepRequestProcessor (sid:0) started"
_BOOKIE_READY: Final = "Started component bookie-server"
# Around the longest frame of a broker a bookie needs some room for its own headers.
_BOOKIE_HEADROOM_BYTES: Final = 10 * 1024
_HEAPS: Final = {"zookeeper": "96m", "setup": "96m", "bookie": "192m", "broker": "320m"}
_MAINS: Final = {
    "zookeeper": ("org.apache.zookeeper.server.ZooKeeperServerMain",),
    "setup": ("org.apache.pulsar.PulsarClusterMetadataSetup",),
    "bookie": ("org.apache.bookkeeper.server.Main", "--conf"),
    "broker": ("org.apache.pulsar.PulsarBrokerStarter", "--broker-conf"),
}
_ZOOKEEPER_OPTIONS: Final = (
    # A killed ZooKeeper's writes are in the page cache; only a power cut would need the sync.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",
)


class ClusterParts:
    """One cluster's parts, on ports and in a place of their own; `discard()` leaves nothing of them.

    Args:
        ground: what they run on.
        addresses: their ports, which say how many there are.
        profile: of the brokers.
        settings: more broker settings.
        options: more options for every Java machine.
        seconds: how long one of them may take to get ready.
    """

    def __init__(
        self,
        ground: Ground,
        addresses: Addresses,
        profile: Profile,
        settings: Mapping[str, object],
        options: Sequence[str],
        seconds: float,
    ) -> None:
        self.addresses = addresses
        self._ground, self._profile, self._options, self._seconds = ground, profile, options, seconds
        self._given = settings
        self._identity = Identity.make(profile)
        self._identity.write(ground.home)
        self._settings: dict[str, dict[str, str]] = {}
        self.proxies: dict[str, FaultProxy] = {}
        self.stores: dict[str, FaultProxy] = {}
        self._proxy_lost_a_port = False

    @property
    def access(self) -> Access:
        """What a client needs besides the URLs."""
        return self._identity.access(self._ground.home)

    @property
    def network(self) -> str | None:
        """The name of the parts' own Docker network, if they have one."""
        return self._ground.network

    @property
    def network_url(self) -> str | None:
        """The URL for clients in that network."""
        return self.addresses.network_url if self._ground.network is not None else None

    def program(self, name: str) -> Part:
        """Return the part, to end it or look at it.

        Raises:
            InvalidUse: there is no such part.
        """
        if name not in self.addresses.parts:
            raise InvalidUse(f"the cluster has no part {name!r}; it has {', '.join(self.addresses.parts)}")
        return self._ground.part(name)

    def running(self, names: Iterable[str]) -> list[str]:
        """Return which of these are alive now."""
        return [name for name in names if self.program(name).is_running()]

    def launch(self, name: str) -> None:
        """Start a part on the data and the port that it had, if any, and return without waiting for it."""
        self._run(name, [], standalone_conf(self._settings[name]))

    def bring_up(self) -> None:
        """Start all of them for the first time, with the proxies between them, and return when they are ready.

        Raises:
            BrokerStartError: one did not become ready; what was started runs on.
        """
        addresses = self.addresses
        self._ground.open(addresses, self._identity.files())
        self._settings = self._make_settings()
        stores = self._ground.layout.stores
        for name, ports in addresses.brokers.items():
            self.proxies[name] = self._proxy(name, ports.behind, HOST, ports.proxy, addresses.scheme)
            self.stores[name] = self._proxy(name, addresses.zookeeper, stores, ports.store)
        self.launch(ZOOKEEPER)
        # Its Java machine has work to do until ZooKeeper is there, for which it waits.
        self._launch_set_up()
        self.wait_until_ready([ZOOKEEPER])
        if self._ground.part(SETUP).finish(self._seconds) != 0:
            self._launch_set_up()  # ZooKeeper may have taken its connection too early to answer it
            if self._ground.part(SETUP).finish(self._seconds) != 0:
                raise self._error(SETUP, "its metadata could not be written")
        rest = [name for name in addresses.parts if name != ZOOKEEPER]
        for name in rest:
            self.launch(name)
        self.wait_until_ready(rest)

    def wait_until_ready(self, names: Iterable[str]) -> None:
        """Wait until each of them takes part, and where nothing else is down until a message passes.

        Raises:
            BrokerStartError: one of them ended, or took too long; the message ends with its log.
        """
        deadline = time.monotonic() + self._seconds
        chosen = list(names)
        with ClusterAdmin(self.access) as admin:
            for name in chosen:
                while not self._is_ready(admin, name):
                    if self.program(name).has_lost_a_port():
                        # Without its admin port a broker goes on, and would be waited for in vain.
                        self.program(name).kill()
                        raise self._error(name, "another program took a port of its own while it was starting")
                    if not self.program(name).is_running():
                        raise self._error(name, "it ended while it was starting")
                    if time.monotonic() > deadline:
                        raise self._error(name, f"it was not ready in {self._seconds:.0f} s")
                    time.sleep(_POLL_SECONDS)
        if len(self.running(self.addresses.parts)) < len(self.addresses.parts):
            return
        # A broker that has not heard of a bookie yet refuses a first topic, and the client may wait for ever.
        while failure := round_trip(self.addresses.service_url, self.access, timeout=_ROUND_TRIP_SECONDS):
            if time.monotonic() > deadline:
                raise self._error(chosen[-1], f"a message did not come back: {failure}")

    def any_admin_url(self) -> str:
        """Return the admin URL of a broker that runs."""
        for name in self.running(self.addresses.brokers):
            return self.addresses.admin_url(name)
        raise BrokerStartError("none of the cluster's brokers runs; restart one")

    def lost_a_port(self) -> bool:
        """Return whether a part or a proxy could not start because its port was taken meanwhile."""
        return self._proxy_lost_a_port or self._ground.lost_a_port()

    def discard(self) -> None:
        """Kill all of them, and remove their data and logs."""
        self._ground.close()
        for proxy in (*self.proxies.values(), *self.stores.values()):
            proxy.close()
        self._identity.close()

    def _proxy(self, name: str, target: int, host: str, port: int, scheme: str = "pulsar") -> FaultProxy:
        try:
            return FaultProxy(HOST, target, port=port, host=host, scheme=scheme)
        except OSError as error:
            self._proxy_lost_a_port = True
            raise self._error(name, f"a proxy of its own cannot listen on {host}:{port} ({error})") from error

    def _make_settings(self) -> dict[str, dict[str, str]]:
        addresses, ground = self.addresses, self._ground
        own = self._identity.settings(ground.secrets)
        brokers = {
            name: broker_conf(name, addresses, self._profile, self._given, ground.layout) | own
            for name in addresses.brokers
        }
        frame = max(int(one["nettyMaxFrameSizeBytes"]) for one in brokers.values()) + _BOOKIE_HEADROOM_BYTES
        return {
            ZOOKEEPER: zookeeper_conf(addresses.zookeeper, ground.data(ZOOKEEPER), ground.layout),
            **{
                name: bookie_conf(name, addresses, ground.data(name), frame, ground.layout)
                for name in addresses.bookies
            },
            **brokers,
        }

    def _launch_set_up(self) -> None:
        """Begin to write the cluster's first metadata: itself, its public namespace, and what bookies look for."""
        store = f"zk:{self._ground.layout.host(ZOOKEEPER)}:{self.addresses.zookeeper}"
        arguments = {
            "--cluster": CLUSTER,
            "--metadata-store": store,
            "--configuration-metadata-store": store,
            # The first two are asked for even where nothing listens without TLS.
            "--web-service-url": self.addresses.admin_urls[0].replace("https:", "http:"),
            "--broker-service-url": self.addresses.service_url.replace("pulsar+ssl:", "pulsar:"),
            **self._tls_urls(),
            # They are for BookKeeper's own table service, which no broker uses.
            "--initial-num-stream-storage-containers": "0",
        }
        self._run(SETUP, [text for pair in arguments.items() for text in pair])

    def _tls_urls(self) -> dict[str, str]:
        if not self.addresses.tls:
            return {}
        return {
            "--web-service-url-tls": self.addresses.admin_urls[0],
            "--broker-service-url-tls": self.addresses.service_url,
        }

    def _run(self, name: str, arguments: Sequence[str], settings: str | None = None) -> None:
        kind = name.partition("-")[0]
        main, *flags = _MAINS[kind]
        options = [*(_ZOOKEEPER_OPTIONS if name == ZOOKEEPER else ()), *self._options]
        self._ground.launch(name, Command(main, [*flags, *arguments], settings, _HEAPS[kind], options))

    def _is_ready(self, admin: ClusterAdmin, name: str) -> bool:
        addresses = self.addresses
        if name == ZOOKEEPER:
            return self.program(name).has_said(_ZOOKEEPER_READY) and _accepts(addresses.zookeeper)
        if name in addresses.bookies:
            # It takes connections before brokers can know of it.
            return self.program(name).has_said(_BOOKIE_READY)
        url = addresses.admin_url(name)
        return default_namespace_exists(url, self.access) and addresses.broker_id(name) in admin.active_brokers(url)

    def _error(self, name: str, reason: str) -> BrokerStartError:
        what = f"no Pulsar {self._ground.version} cluster (profile {self._profile.name}), {name}"
        return start_error(what, reason, tail_of(self._ground.part(name).log_text()))


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
