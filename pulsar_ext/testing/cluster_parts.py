"""The processes of a test cluster: launched by their names, and what "ready" means for each of them.

ZooKeeper is ready when it takes connections, a bookie when it says so, a broker when it is among the active ones and
has the default namespace, and all together when one message went in and came out through the official client.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .broker import start_error, tail_of
from .cluster_admin import ClusterAdmin
from .cluster_conf import CLUSTER, HOST, ZOOKEEPER, Addresses, bookie_conf, broker_conf, zookeeper_conf
from .identity import Identity
from .java_program import Java, JavaProgram
from .profiles import PULSAR_VERSION, standalone_conf
from .proxy import FaultProxy
from .readiness import default_namespace_exists, round_trip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .access import Access
    from .profiles import Profile

__all__ = ["ClusterParts"]

_POLL_SECONDS: Final = 0.1
_CONNECT_SECONDS: Final = 1.0
_ROUND_TRIP_SECONDS: Final = 15.0
_BOOKIE_READY: Final = "Started component bookie-server"
# Around the longest frame of a broker a bookie needs some room for its own headers.
_BOOKIE_HEADROOM_BYTES: Final = 10 * 1024
_SETUP: Final = "setup"
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
    """One cluster's processes, on ports and in a directory of their own; `discard()` leaves nothing of them.

    Args:
        java: what to run them with.
        addresses: their ports, which say how many there are.
        profile: of the brokers.
        settings: more broker settings.
        options: more options for every Java machine.
        seconds: how long one of them may take to get ready.
    """

    def __init__(
        self,
        java: Java,
        addresses: Addresses,
        profile: Profile,
        settings: Mapping[str, object],
        options: Sequence[str],
        seconds: float,
    ) -> None:
        self.addresses = addresses
        self._java, self._profile, self._options, self._seconds = java, profile, options, seconds
        self._home = home = Path(tempfile.mkdtemp(prefix="pulsar-ext-"))
        self._identity = Identity.make(profile)
        self._identity.write(home)
        own = self._identity.settings(home)
        brokers = {name: broker_conf(name, addresses, profile, settings) | own for name in addresses.brokers}
        frame = max(int(one["nettyMaxFrameSizeBytes"]) for one in brokers.values()) + _BOOKIE_HEADROOM_BYTES
        self._settings = {
            ZOOKEEPER: zookeeper_conf(addresses.zookeeper, home / ZOOKEEPER / "data"),
            **{
                name: bookie_conf(port, addresses.zookeeper, home / name / "data", frame)
                for name, port in addresses.bookies.items()
            },
            **brokers,
        }
        self._programs: dict[str, JavaProgram] = {}
        for name in (_SETUP, *addresses.parts):
            (home / name).mkdir()
            self._programs[name] = JavaProgram(home / name, name, home)
        self.proxies: dict[str, FaultProxy] = {}
        self.stores: dict[str, FaultProxy] = {}

    @property
    def access(self) -> Access:
        """What a client needs besides the URLs."""
        return self._identity.access(self._home)

    def program(self, name: str) -> JavaProgram:
        """Return the part's process.

        Raises:
            InvalidUse: there is no such part.
        """
        if name not in self.addresses.parts:
            raise InvalidUse(f"the cluster has no part {name!r}; it has {', '.join(self.addresses.parts)}")
        return self._programs[name]

    def running(self, names: Iterable[str]) -> list[str]:
        """Return which of these are alive now."""
        return [name for name in names if self.program(name).is_running()]

    def launch(self, name: str) -> None:
        """Start a part on the data and the port that it had, if any, and return without waiting for it."""
        program = self.program(name)
        conf = self._home / name / "part.conf"
        conf.write_text(standalone_conf(self._settings[name]), encoding="utf-8")
        self._run(program, name, [str(conf)])

    def bring_up(self) -> None:
        """Start all of them for the first time, with the proxies between them, and return when they are ready.

        Raises:
            BrokerStartError: one did not become ready; what was started runs on.
        """
        addresses = self.addresses
        for name, ports in addresses.brokers.items():
            self.proxies[name] = FaultProxy(HOST, ports.behind, port=ports.proxy, scheme=addresses.scheme)
            self.stores[name] = FaultProxy(HOST, addresses.zookeeper, port=ports.store)
        self.launch(ZOOKEEPER)
        self.wait_until_ready([ZOOKEEPER])
        self._set_up()
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
        """Return whether a part could not start because its port was taken meanwhile."""
        return any(program.has_lost_a_port() for program in self._programs.values())

    def discard(self) -> None:
        """Kill all of them, and remove their data and logs."""
        for program in reversed(self._programs.values()):
            program.kill()
        for proxy in (*self.proxies.values(), *self.stores.values()):
            proxy.close()
        self._identity.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _set_up(self) -> None:
        """Write the cluster's first metadata: itself, its public namespace, and what bookies look for."""
        program = self._programs[_SETUP]
        store = f"zk:{HOST}:{self.addresses.zookeeper}"
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
        self._run(program, _SETUP, [text for pair in arguments.items() for text in pair])
        if program.finish(self._seconds) != 0:
            raise self._error(_SETUP, "its metadata could not be written")

    def _tls_urls(self) -> dict[str, str]:
        if not self.addresses.tls:
            return {}
        return {
            "--web-service-url-tls": self.addresses.admin_urls[0],
            "--broker-service-url-tls": self.addresses.service_url,
        }

    def _run(self, program: JavaProgram, name: str, arguments: Sequence[str]) -> None:
        kind = name.partition("-")[0]
        main, *flags = _MAINS[kind]
        program.launch(
            self._java,
            main,
            [*flags, *arguments],
            unpacked=self._home / name / "tmp",
            heap=_HEAPS[kind],
            options=[*(_ZOOKEEPER_OPTIONS if name == ZOOKEEPER else ()), *self._options],
        )

    def _is_ready(self, admin: ClusterAdmin, name: str) -> bool:
        addresses = self.addresses
        if name == ZOOKEEPER:
            return _accepts(addresses.zookeeper)
        if name in addresses.bookies:
            # It takes connections before brokers can know of it.
            return self.program(name).has_said(_BOOKIE_READY)
        url = addresses.admin_url(name)
        return default_namespace_exists(url, self.access) and addresses.broker_id(name) in admin.active_brokers(url)

    def _error(self, name: str, reason: str) -> BrokerStartError:
        what = f"no Pulsar {PULSAR_VERSION} cluster (profile {self._profile.name}), {name}"
        return start_error(what, reason, tail_of(self._programs[name].log_text()))


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
