"""What the parts of a test cluster are configured with; pure, so that a test can look at all of it.

A cluster is one ZooKeeper, some bookies and some brokers: all on the loopback, or in a network of containers where they
know each other by their names, and all brokers share one loopback. Every broker has two proxies: one between clients
and the broker, under an address that the broker advertises to whoever comes through it, and one between the broker and
ZooKeeper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .access import Detour, Route
from .java_program import LOOPBACK
from .ports import free_port
from .profiles import Profile, broker_settings, get_profile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import PurePath


CLUSTER: Final = "cluster"
HOST: Final = "127.0.0.1"
ZOOKEEPER: Final = "zookeeper"
SETUP: Final = "setup"
NETWORK_LISTENER: Final = "network"
"""What brokers call the listener that other containers of the cluster's network come by."""

_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104  # inside a container

_FIRST_NETWORK_PORT: Final = 6650
# For as many fault proxies at a time as the tests of a run have open, in all of its processes.
_DETOURS: Final = 8
_TICK_MILLIS: Final = 1_000
# Until a session ends, what a killed broker owned is nobody's; ZooKeeper takes 2 to 20 ticks.
_SESSION_MILLIS: Final = 5_000


class Layout(NamedTuple):
    """How the parts of a cluster reach each other, which depends on what they run in; the default is the loopback.

    Args:
        network: whether they have a network of their own, in which each has its name.
        stores: the host of the proxies between the brokers and ZooKeeper.
    """

    network: bool = False
    stores: str = HOST

    @property
    def bind(self) -> str:
        """The address that everything listens on."""
        return _EVERYWHERE if self.network else HOST

    def host(self, name: str) -> str:
        """Return the host that ZooKeeper or a bookie has for the others."""
        return name if self.network else HOST


LOCAL: Final = Layout()


class BrokerPorts(NamedTuple):
    """The ports of one broker.

    Args:
        service: where clients and other brokers connect.
        admin: its admin REST API.
        behind: where it takes what comes through its proxy.
        proxy: where that proxy listens.
        store: where the proxy before ZooKeeper listens.
    """

    service: int
    admin: int
    behind: int
    proxy: int
    store: int


class Addresses(NamedTuple):
    """The ports of a whole cluster, by the names of its parts, and whether its brokers speak TLS on theirs.

    A detour's routes are in the order of the brokers.
    """

    zookeeper: int
    bookies: Mapping[str, int]
    brokers: Mapping[str, BrokerPorts]
    tls: bool = False
    detours: tuple[Detour, ...] = ()

    @classmethod
    def choose(cls, brokers: int, bookies: int, *, tls: bool = False, detours: bool = True) -> Addresses:
        """Find a free port for everything.

        Raises:
            BrokerStartError: too few ports are free.
        """
        scheme = "pulsar+ssl" if tls else "pulsar"
        return cls(
            free_port(),
            {f"bookie-{number}": free_port() for number in range(1, bookies + 1)},
            {
                f"broker-{number}": BrokerPorts(*(free_port() for _ in BrokerPorts._fields))
                for number in range(1, brokers + 1)
            },
            tls,
            tuple(
                Detour(free_port(), tuple(Route(free_port(), HOST, free_port()) for _ in range(brokers)), scheme)
                for _ in range(_DETOURS if detours else 0)
            ),
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of all parts, in the order in which they need each other."""
        return (ZOOKEEPER, *self.bookies, *self.brokers)

    @property
    def scheme(self) -> str:
        """What comes before `://` where clients connect."""
        return "pulsar+ssl" if self.tls else "pulsar"

    @property
    def service_url(self) -> str:
        """One URL for clients, with all brokers."""
        return f"{self.scheme}://" + ",".join(f"{HOST}:{ports.service}" for ports in self.brokers.values())

    @property
    def proxied_url(self) -> str:
        """The same through the proxies."""
        return f"{self.scheme}://" + ",".join(f"{HOST}:{ports.proxy}" for ports in self.brokers.values())

    @property
    def network_url(self) -> str:
        """The same for other containers of the cluster's network."""
        return f"{self.scheme}://" + ",".join(f"{name}:{self.network_port(name)}" for name in self.brokers)

    @staticmethod
    def network_port(broker: str) -> int:
        """Return the port by which other containers connect; broker-1 has the usual one."""
        return _FIRST_NETWORK_PORT - 1 + int(broker.rpartition("-")[2])

    @property
    def admin_urls(self) -> list[str]:
        """The URL of each broker's admin REST API."""
        return [self.admin_url(name) for name in self.brokers]

    def admin_url(self, broker: str) -> str:
        """Return the URL of that broker's admin REST API."""
        return f"http{'s' if self.tls else ''}://{self.broker_id(broker)}"

    def broker_at(self, service_url: str) -> str:
        """Return the name of the broker that clients reach at that URL.

        Raises:
            BrokerStartError: it is none of this cluster.
        """
        for name, ports in self.brokers.items():
            if service_url.endswith(f":{ports.service}"):
                return name
        raise BrokerStartError(f"{service_url} is none of this cluster's brokers: {self.service_url}")

    def broker_id(self, broker: str) -> str:
        """Return what the cluster calls that broker, `host:admin-port`."""
        return f"{HOST}:{self.brokers[broker].admin}"


def zookeeper_conf(port: int, data: PurePath, layout: Layout = LOCAL) -> dict[str, str]:
    """Return the settings of ZooKeeper."""
    return {
        "tickTime": str(_TICK_MILLIS),
        "dataDir": str(data),
        "clientPortAddress": layout.bind,
        "clientPort": str(port),
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
    }


def bookie_conf(
    name: str, addresses: Addresses, data: PurePath, frame_bytes: int, layout: Layout = LOCAL
) -> dict[str, str]:
    """Return the settings of a bookie.

    Args:
        name: which bookie.
        addresses: the cluster's.
        data: where its data goes.
        frame_bytes: the longest frame; above the brokers' `nettyMaxFrameSizeBytes`, or sends time out.
        layout: how it reaches ZooKeeper, and brokers reach it.
    """
    return {
        "bookiePort": str(addresses.bookies[name]),
        "advertisedAddress": layout.host(name),
        **({} if layout.network else {"listeningInterface": LOOPBACK}),
        "allowLoopback": "true",
        # With a path behind the port it would look one level too deep for the cluster's instance id.
        "metadataServiceUri": f"metadata-store:zk:{layout.host(ZOOKEEPER)}:{addresses.zookeeper}",
        "zkTimeout": str(_SESSION_MILLIS),
        "nettyMaxFrameSizeBytes": str(frame_bytes),
        "journalDirectories": str(data / "journal"),
        "ledgerDirectories": str(data / "ledgers"),
        # A killed bookie's writes are in the page cache; only a power cut would need the sync, and it is slow.
        "journalSyncData": "false",
        "journalPreAllocSizeMB": "4",
        "diskUsageThreshold": "0.99",
        "diskUsageWarnThreshold": "0.98",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "dbStorage_writeCacheMaxSizeMb": "32",
        "dbStorage_readAheadCacheMaxSizeMb": "16",
        "dbStorage_rocksDB_blockCacheSize": str(8 << 20),
        "httpServerEnabled": "false",
    }


def broker_conf(
    name: str,
    addresses: Addresses,
    profile: str | Profile,
    settings: Mapping[str, object] | None = None,
    layout: Layout = LOCAL,
) -> dict[str, str]:
    """Return the settings of a broker of the cluster: base, profile, cluster, then the caller's own.

    Raises:
        InvalidUse: no such profile, a setting that no broker could have, or one by which the cluster is held together.
    """
    ports = addresses.brokers[name]
    store = f"zk:{layout.stores}:{ports.store}"
    # Who comes in on one of these ports is shown the way through a proxy by every look-up, on each broker.
    place = list(addresses.brokers).index(name)
    behind = {"proxied": Route(ports.proxy, HOST, ports.behind)} | {
        f"detour{number}": detour.routes[place] for number, detour in enumerate(addresses.detours, 1)
    }
    advertised = {"internal": f"{HOST}:{ports.service}"} | {one: f"{HOST}:{way.port}" for one, way in behind.items()}
    bound = {one: f"{layout.bind}:{way.target}" for one, way in behind.items()}
    if layout.network:
        port = addresses.network_port(name)
        advertised[NETWORK_LISTENER], bound[NETWORK_LISTENER] = f"{name}:{port}", f"{layout.bind}:{port}"
    own = {
        "clusterName": CLUSTER,
        "metadataStoreUrl": store,
        "configurationMetadataStoreUrl": store,
        "advertisedAddress": HOST,
        "advertisedListeners": _listed(addresses.scheme, advertised),
        "internalListenerName": "internal",
        "bindAddresses": _listed(addresses.scheme, bound),
    }
    clash = sorted(own.keys() & dict(settings or {}).keys())
    if clash:
        raise InvalidUse(f"the cluster itself sets {', '.join(clash)}: leave it out")
    copies = str(min(2, len(addresses.bookies)))
    return broker_settings(
        replace(get_profile(profile), brokers=1),
        broker_port=ports.service,
        admin_port=ports.admin,
        bind_address=layout.bind,
        settings={
            **own,
            "managedLedgerDefaultEnsembleSize": copies,
            "managedLedgerDefaultWriteQuorum": copies,
            "managedLedgerDefaultAckQuorum": copies,
            "metadataStoreSessionTimeoutMillis": _SESSION_MILLIS,
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
            # Bundles move when a test says so.
            "loadBalancerSheddingEnabled": False,
            "loadBalancerAutoBundleSplitEnabled": False,
            "brokerShutdownTimeoutMs": 10_000,
            **(settings or {}),
        },
    )


def _listed(scheme: str, places: Mapping[str, str]) -> str:
    """Write addresses as the broker reads them, by the names of their listeners."""
    return ",".join(f"{listener}:{scheme}://{place}" for listener, place in places.items())
