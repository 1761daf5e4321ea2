"""What the parts of a test cluster are configured with; pure, so that a test can look at all of it.

A cluster is one ZooKeeper, some bookies and some brokers, all on the loopback. Every broker has two proxies: one
between clients and the broker, under an address that the broker advertises to whoever comes through it, and one between
the broker and ZooKeeper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .detour import Detour, Route
from .java_program import LOOPBACK
from .ports import free_port
from .profiles import broker_settings, get_profile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .profiles import Profile

__all__ = ["CLUSTER", "HOST", "ZOOKEEPER", "Addresses", "BrokerPorts", "bookie_conf", "broker_conf", "zookeeper_conf"]

CLUSTER: Final = "cluster"
HOST: Final = "127.0.0.1"
ZOOKEEPER: Final = "zookeeper"

# For as many fault proxies at a time as the tests of a run have open, in all of its processes.
_DETOURS: Final = 8
_TICK_MILLIS: Final = 1_000
# Until a session ends, what a killed broker owned is nobody's; ZooKeeper takes 2 to 20 ticks.
_SESSION_MILLIS: Final = 5_000


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
    """The ports of a whole cluster, by the names of its parts; a detour's routes are in the order of its brokers."""

    zookeeper: int
    bookies: Mapping[str, int]
    brokers: Mapping[str, BrokerPorts]
    detours: tuple[Detour, ...] = ()

    @classmethod
    def choose(cls, brokers: int, bookies: int) -> Addresses:
        """Find a free port for everything.

        Raises:
            BrokerStartError: too few ports are free.
        """
        taken: set[int] = set()

        def another() -> int:
            taken.add(port := free_port(taken))
            return port

        return cls(
            another(),
            {f"bookie-{number}": another() for number in range(1, bookies + 1)},
            {
                f"broker-{number}": BrokerPorts(*(another() for _ in BrokerPorts._fields))
                for number in range(1, brokers + 1)
            },
            tuple(
                Detour(another(), tuple(Route(another(), HOST, another()) for _ in range(brokers)))
                for _ in range(_DETOURS)
            ),
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of all parts, in the order in which they need each other."""
        return (ZOOKEEPER, *self.bookies, *self.brokers)

    @property
    def service_url(self) -> str:
        """One URL for clients, with all brokers."""
        return "pulsar://" + ",".join(f"{HOST}:{ports.service}" for ports in self.brokers.values())

    @property
    def proxied_url(self) -> str:
        """The same through the proxies."""
        return "pulsar://" + ",".join(f"{HOST}:{ports.proxy}" for ports in self.brokers.values())

    @property
    def admin_urls(self) -> list[str]:
        """The URL of each broker's admin REST API."""
        return [self.admin_url(name) for name in self.brokers]

    def admin_url(self, broker: str) -> str:
        """Return the URL of that broker's admin REST API."""
        return f"http://{self.broker_id(broker)}"

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


def zookeeper_conf(port: int, data: Path) -> dict[str, str]:
    """Return the settings of ZooKeeper."""
    return {
        "tickTime": str(_TICK_MILLIS),
        "dataDir": str(data),
        "clientPortAddress": HOST,
        "clientPort": str(port),
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
    }


def bookie_conf(port: int, zookeeper: int, data: Path, frame_bytes: int) -> dict[str, str]:
    """Return the settings of a bookie.

    Args:
        port: where it listens.
        zookeeper: ZooKeeper's port.
        data: where its data goes.
        frame_bytes: the longest frame; above the brokers' `nettyMaxFrameSizeBytes`, or sends time out.
    """
    return {
        "bookiePort": str(port),
        "advertisedAddress": HOST,
        "listeningInterface": LOOPBACK,
        "allowLoopback": "true",
        # With a path behind the port it would look one level too deep for the cluster's instance id.
        "metadataServiceUri": f"metadata-store:zk:{HOST}:{zookeeper}",
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
    name: str, addresses: Addresses, profile: str | Profile, settings: Mapping[str, object] | None = None
) -> dict[str, str]:
    """Return the settings of a broker of the cluster: base, profile, cluster, then the caller's own.

    Args:
        name: which broker.
        addresses: the cluster's.
        profile: a profile or its name.
        settings: more settings by their names in `broker.conf`.

    Raises:
        InvalidUse: no such profile, a setting that no broker could have, or one by which the cluster is held together.
    """
    if get_profile(profile).tls:
        raise InvalidUse(f"the profile {get_profile(profile).name} speaks TLS, which a cluster's brokers do not here")
    ports = addresses.brokers[name]
    # Who comes in on one of these ports is shown the way through a proxy by every look-up, on each broker.
    place = list(addresses.brokers).index(name)
    behind = {"proxied": Route(ports.proxy, HOST, ports.behind)} | {
        f"detour{number}": detour.routes[place] for number, detour in enumerate(addresses.detours, 1)
    }
    advertised = {"internal": ports.service} | {listener: route.port for listener, route in behind.items()}
    store = f"zk:{HOST}:{ports.store}"
    own = {
        "clusterName": CLUSTER,
        "metadataStoreUrl": store,
        "configurationMetadataStoreUrl": store,
        "advertisedAddress": HOST,
        "advertisedListeners": _listed(advertised),
        "internalListenerName": "internal",
        "bindAddresses": _listed({listener: route.target for listener, route in behind.items()}),
    }
    clash = sorted(own.keys() & dict(settings or {}).keys())
    if clash:
        raise InvalidUse(f"the cluster itself sets {', '.join(clash)}: leave it out")
    copies = str(min(2, len(addresses.bookies)))
    return broker_settings(
        replace(get_profile(profile), brokers=1),
        broker_port=ports.service,
        admin_port=ports.admin,
        bind_address=HOST,
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


def _listed(ports: Mapping[str, int]) -> str:
    """Write ports as the broker reads them, by the names of their listeners."""
    return ",".join(f"{listener}:pulsar://{HOST}:{port}" for listener, port in ports.items())
