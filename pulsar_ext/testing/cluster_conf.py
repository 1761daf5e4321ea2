"""Configuration of the parts of a test cluster (pure).

A cluster is one ZooKeeper, bookies and brokers: all on the loopback, or in a network of containers with names, where
all brokers share one loopback. Each broker has two proxies: one between clients and the broker, whose address the
broker advertises to clients that connect through it, and one between the broker and ZooKeeper.
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
"""Name of the brokers' listener for other containers of the cluster's network."""

_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104  # inside a container

_FIRST_NETWORK_PORT: Final = 6650
# Maximum number of fault proxies open at a time in all processes of a test run.
_DETOURS: Final = 8
_TICK_MILLIS: Final = 1_000
# A killed broker's bundles have no owner until its session ends; ZooKeeper allows 2 to 20 ticks.
_SESSION_MILLIS: Final = 5_000


class Layout(NamedTuple):
    """Addresses by which the parts of a cluster reach each other: on the loopback, or by names in their own network."""

    network: bool = False
    stores: str = HOST
    """Host of the proxies between the brokers and ZooKeeper."""

    @property
    def bind(self) -> str:
        """Address that everything listens on."""
        return _EVERYWHERE if self.network else HOST

    def host(self, name: str) -> str:
        """Return the host of ZooKeeper or a bookie for the other parts."""
        return name if self.network else HOST


LOCAL: Final = Layout()


class BrokerPorts(NamedTuple):
    """Ports of one broker, of the proxy in front of it, and of its proxy to ZooKeeper (`store`)."""

    service: int
    admin: int
    proxied: int  # for connections through its proxy
    proxy: int
    store: int


class Addresses(NamedTuple):
    """Ports of a whole cluster by the names of its parts, and its use of TLS."""

    zookeeper: int
    bookies: Mapping[str, int]
    brokers: Mapping[str, BrokerPorts]
    tls: bool = False
    detours: tuple[Detour, ...] = ()

    @classmethod
    def choose(cls, brokers: int, bookies: int, *, tls: bool = False, detours: bool = True) -> Addresses:
        """Choose free ports for all parts."""
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
        """Names of all parts, each after those that it needs."""
        return (ZOOKEEPER, *self.bookies, *self.brokers)

    @property
    def scheme(self) -> str:
        """Scheme of the service URLs."""
        return "pulsar+ssl" if self.tls else "pulsar"

    @property
    def service_url(self) -> str:
        """URL for clients, with all brokers."""
        return f"{self.scheme}://" + ",".join(f"{HOST}:{ports.service}" for ports in self.brokers.values())

    @property
    def proxied_url(self) -> str:
        """URL for clients through the proxies."""
        return f"{self.scheme}://" + ",".join(f"{HOST}:{ports.proxy}" for ports in self.brokers.values())

    @property
    def network_url(self) -> str:
        """URL for clients in other containers of the cluster's network."""
        return f"{self.scheme}://" + ",".join(f"{name}:{self.network_port(name)}" for name in self.brokers)

    @staticmethod
    def network_port(broker: str) -> int:
        """Return the port for other containers; that of broker-1 is the usual one."""
        return _FIRST_NETWORK_PORT - 1 + int(broker.rpartition("-")[2])

    @property
    def admin_urls(self) -> list[str]:
        """URL of each broker's admin REST API."""
        return [self.admin_url(name) for name in self.brokers]

    def admin_url(self, broker: str) -> str:
        """Return the URL of a broker's admin REST API."""
        return f"http{'s' if self.tls else ''}://{self.broker_id(broker)}"

    def broker_at(self, service_url: str) -> str:
        """Return the name of the broker with a service URL."""
        for name, ports in self.brokers.items():
            if service_url.endswith(f":{ports.service}"):
                return name
        raise BrokerStartError(f"{service_url} is not a broker of this cluster: {self.service_url}")

    def broker_id(self, broker: str) -> str:
        """Return the broker's id in the cluster, `host:admin-port`."""
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
    """Return the settings of a bookie."""
    return {
        "bookiePort": str(addresses.bookies[name]),
        "advertisedAddress": layout.host(name),
        **({} if layout.network else {"listeningInterface": LOOPBACK}),
        "allowLoopback": "true",
        # With a path after the port, the cluster's instance id would be searched one level too deep.
        "metadataServiceUri": f"metadata-store:zk:{layout.host(ZOOKEEPER)}:{addresses.zookeeper}",
        "zkTimeout": str(_SESSION_MILLIS),
        "nettyMaxFrameSizeBytes": str(frame_bytes),
        "journalDirectories": str(data / "journal"),
        "ledgerDirectories": str(data / "ledgers"),
        # A killed bookie's writes are in the page cache; only a power cut would need the slow sync.
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
    """Return the settings of a broker of the cluster: base, profile, cluster, then the caller's."""
    ports = addresses.brokers[name]
    store = f"zk:{layout.stores}:{ports.store}"
    # Look-ups by clients of one of these ports return the address of a proxy, on each broker.
    index = list(addresses.brokers).index(name)
    routes = {"proxied": Route(ports.proxy, HOST, ports.proxied)} | {
        f"detour{number}": detour.routes[index] for number, detour in enumerate(addresses.detours, 1)
    }
    advertised = {"internal": f"{HOST}:{ports.service}"} | {one: f"{HOST}:{way.port}" for one, way in routes.items()}
    bound = {one: f"{layout.bind}:{way.target}" for one, way in routes.items()}
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
        raise InvalidUse(f"the cluster sets {', '.join(clash)}: omit it from the settings")
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
            # Only tests move bundles.
            "loadBalancerSheddingEnabled": False,
            "loadBalancerAutoBundleSplitEnabled": False,
            "brokerShutdownTimeoutMs": 10_000,
            **(settings or {}),
        },
    )


def _listed(scheme: str, places: Mapping[str, str]) -> str:
    """Return addresses in the broker's notation, by the names of their listeners."""
    return ",".join(f"{listener}:{scheme}://{place}" for listener, place in places.items())
