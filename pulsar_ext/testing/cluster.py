"""Real Pulsar cluster for tests on one machine: ZooKeeper, bookies and brokers, each addressed by its name.

Each part is a Java process or a container. A fault proxy is in front of each broker, and between each broker and
ZooKeeper: a look-up through a proxy returns the address of a proxy.

ZooKeeper is ready when it logs so and accepts connections, a bookie when it logs so, a broker when it is active and has
the default namespace, and the cluster when a message was sent and received through the official client. A
`ClusterBroker` is a whole cluster with the interface of one broker.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .access import Access, Address
from .backend import BACKENDS, choose_backend
from .broker import START_SECONDS, Broker, Reachable, start_error
from .cluster_conf import CLUSTER, HOST, LOCAL, SETUP, ZOOKEEPER, Addresses, bookie_conf, broker_conf, zookeeper_conf
from .identity import Identity
from .java_program import Java, JavaCommand, JavaProgram, ScratchDirectory
from .profiles import Profile, choose_version, get_profile, standalone_conf
from .proxy import FaultProxy
from .readiness import default_namespace_exists, round_trip
from .tenancy import ClusterAdmin, call_with_retries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import PurePath

    from .container import ContainerProgram, ContainerRuntime

_POLL_SECONDS: Final = 0.1
_CONNECT_SECONDS: Final = 1.0
_ROUND_TRIP_SECONDS: Final = 15.0
# A connection alone proves little: another program may have taken the port.
_ZOOKEEPER_READY: Final = "PrepRequestProcessor (sid:0) started"
_BOOKIE_READY: Final = ("Started component bookie-server", "Started component {component=bookie-server}")
# A bookie needs room for its own headers around a broker's longest frame.
_BOOKIE_HEADROOM_BYTES: Final = 10 * 1024
_HEAPS: Final = {"zookeeper": "96m", "setup": "96m", "bookie": "192m", "broker": "320m"}
_MAINS: Final = {
    "zookeeper": ("org.apache.zookeeper.server.ZooKeeperServerMain",),
    "setup": ("org.apache.pulsar.PulsarClusterMetadataSetup",),
    "bookie": ("org.apache.bookkeeper.server.Main", "--conf"),
    "broker": ("org.apache.pulsar.PulsarBrokerStarter", "--broker-conf"),
}
_OPTIONS: Final = {
    # A killed ZooKeeper's writes are in the page cache; only a power cut would need the sync.
    "zookeeper": ("-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"),
    # The bookie of Pulsar 5 does not accept the loopback's IPv6 address as its own.
    "bookie": ("-Djava.net.preferIPv4Stack=true",),
}


class ProcessRuntime:
    """Runtime with a process for each part, all on the loopback."""

    layout = LOCAL
    """Addresses of the parts for each other; known after `open()`."""

    network = None
    """Name of the parts' own Docker network, if any."""

    has_detours = True
    """True if this machine reaches every port of a broker, not only published ones."""

    def __init__(self, report: Callable[[str], None], version: str, addresses: Addresses) -> None:
        self._java = Java.find(report, version)
        self._scratch = ScratchDirectory()
        self.home = self._scratch.path
        """Directory of the cluster's secrets on this machine, for clients."""
        self.secrets = self.home
        """Directory of the cluster's secrets, as the parts see it."""
        self.parts = {name: JavaProgram(self.home / name, name) for name in (SETUP, *addresses.parts)}

    def open(self) -> None:
        """Create a directory for each part."""
        for name in self.parts:
            (self.home / name).mkdir()

    def data(self, name: str) -> PurePath:
        """Return the data directory of a part."""
        return self.home / name / "data"

    def conf(self, name: str) -> PurePath:
        """Return the path of a part's settings."""
        return self.home / name / "part.conf"

    def launch(self, name: str, command: JavaCommand, settings: str | None) -> None:
        """Start a part on its existing data, if any, and return without waiting for it."""
        if settings is not None:
            Path(self.conf(name)).write_text(settings, encoding="utf-8")
        self.parts[name].launch(self._java, command)

    def close(self) -> None:
        """Stop all parts and remove their files; a second call does nothing."""
        for program in reversed(self.parts.values()):
            program.kill()
        self._scratch.remove()


class _State(NamedTuple):
    """Ports, programs, secrets and proxies of a cluster, from its start to its stop."""

    addresses: Addresses
    runtime: ProcessRuntime | ContainerRuntime
    identity: Identity
    proxies: dict[str, FaultProxy]
    stores: dict[str, FaultProxy]


class PulsarCluster(Reachable):
    """Cluster of one ZooKeeper, bookies and brokers on the loopback; needs Java 17 or newer, and Maven the first time.

    Its parts are named `zookeeper`, `bookie-1`, …, `broker-1`, …. Each entry is on two bookies, so with two bookies
    nothing can be written while one is down, and clients wait. Use it as a context manager, or call `start()` and
    `stop()`. Its methods raise `InvalidUse` for a part that does not exist or, if it has to, does not run, and
    `BrokerStartError` if a part is not ready, or a bundle not moved, within the start timeout.

    Args:
        profile: a profile or its name, for all brokers.
        backend: back end of its parts, `process` or `docker`; for `auto` and None see `start_broker`.
        brokers: number of brokers, 1 or more.
        bookies: number of bookies, 1 or more.
        settings: see `Broker`.
        java_options: more options for every Java machine; they take precedence over the harness's.
        start_timeout: see `Broker`.
        report: called with short lines of progress if the jars are fetched.
        version: see `Broker`.

    Raises:
        InvalidUse: a number is below 1, or the profile, the version or a setting is invalid.
    """

    def __init__(
        self,
        profile: str | Profile = "plain",
        *,
        backend: str | None = "process",
        brokers: int = 2,
        bookies: int = 2,
        settings: Mapping[str, object] | None = None,
        java_options: Sequence[str] = (),
        start_timeout: float = START_SECONDS,
        report: Callable[[str], None] = lambda _: None,
        version: str | None = None,
    ) -> None:
        if brokers < 1 or bookies < 1:
            raise InvalidUse(f"brokers and bookies must be >= 1, got {brokers} and {bookies}")
        self._backend = backend
        if backend is not None and backend not in BACKENDS:
            raise InvalidUse(f"unknown back end {backend!r}; choose one of: {', '.join(BACKENDS)}")
        self._profile = get_profile(profile)
        self._settings = dict(settings or {})
        self._counts = (brokers, bookies)
        self._java_options = tuple(java_options)
        self._start_timeout = start_timeout
        self._report = report
        self._version = choose_version(version)
        # Raises for bad settings here instead of at the start.
        broker_conf("broker-1", Addresses.choose(brokers, bookies), self._profile, self._settings)
        self._state: _State | None = None

    def __repr__(self) -> str:
        running = self._running(self.parts) if self._state is not None else []
        return f"<PulsarCluster {self._profile.name!r}, running: {', '.join(running) or 'nothing'}>"

    # -- addresses ---------------------------------------------------------------------------------------------------

    @property
    def _address_(self) -> Address:
        ports, runtime, identity, *_ = self._started
        access = identity.access(runtime.home)
        return Address(ports.service_url, ports.admin_urls[0], "cluster", self._version, access, ports.detours)

    @property
    def proxied_url(self) -> str:
        """URL for clients that connect only through the `proxies`."""
        return self._started.addresses.proxied_url

    @property
    def network_url(self) -> str | None:
        """URL for clients in other containers of `network`; None without such a network."""
        return self._started.addresses.network_url if self.network is not None else None

    @property
    def network(self) -> str | None:
        """Name of the Docker network of the cluster's containers; None for processes."""
        return self._started.runtime.network

    @property
    def admin_urls(self) -> list[str]:
        """URL of each broker's admin REST API."""
        return self._started.addresses.admin_urls

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of all parts: ZooKeeper, the bookies, the brokers."""
        return self._started.addresses.parts

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the brokers."""
        return tuple(self._started.addresses.brokers)

    @property
    def bookies(self) -> tuple[str, ...]:
        """Names of the bookies."""
        return tuple(self._started.addresses.bookies)

    @property
    def proxies(self) -> Mapping[str, FaultProxy]:
        """Proxy in front of each broker, by the broker's name; clients of `proxied_url` connect through them."""
        return self._started.proxies

    @property
    def stores(self) -> Mapping[str, FaultProxy]:
        """Proxy between each broker and ZooKeeper, by the broker's name."""
        return self._started.stores

    def is_running(self, name: str | None = None) -> bool:
        """Return True if the part is alive; without a name, if all parts are."""
        if self._state is None:
            return False
        names = self.parts if name is None else (name,)
        return self._running(names) == list(names)

    def pid(self, name: str) -> int | None:
        """Return the id of the part's process on its machine; None if it is not running."""
        return self._program(name).pid

    def log_offset(self, name: str) -> int:
        """Return the current end of the part's log, as an opaque number for `log_text`."""
        return self._program(name).log_offset()

    def log_text(self, name: str, since: int = 0) -> str:
        """Return the part's log from an offset on, all of it by default."""
        return self._program(name).log_text(since)

    @property
    def version(self) -> str:
        """Version of all parts."""
        return self._version

    def describe(self) -> str:
        """Return a line about the cluster, without secrets."""
        brokers, bookies = self._counts
        return (
            f"Pulsar {self._version}, profile {self._profile.name}, a cluster of {brokers} brokers and {bookies} "
            f"bookies: {self.service_url} and {', '.join(self.admin_urls)}"
        )

    # -- start and stop ----------------------------------------------------------------------------------------------

    def _is_started(self) -> bool:
        return self._state is not None

    def _start(self) -> None:
        runtime_class: type[ProcessRuntime | ContainerRuntime] = ProcessRuntime
        if choose_backend(self._backend, self._report, self._version)[0] == "docker":
            from .container import ContainerRuntime  # noqa: PLC0415  # docker is loaded only if it is used

            runtime_class = ContainerRuntime
        identity = Identity.make(self._profile)
        addresses = Addresses.choose(*self._counts, tls=self._profile.tls, detours=runtime_class.has_detours)
        runtime = runtime_class(self._report, self._version, addresses)
        self._state = _State(addresses, runtime, identity, {}, {})
        identity.write(runtime.home)
        self._bring_up()

    def stop(self) -> None:
        """Stop all parts and remove their files; a second call does nothing."""
        state, self._state = self._state, None
        if state is not None:
            state.runtime.close()
            for proxy in (*state.proxies.values(), *state.stores.values()):
                proxy.close()
            state.identity.close()

    def kill(self, *names: str) -> None:
        """Kill parts with SIGKILL, as crashes would; their data and ports stay for `restart()`."""
        for program in [self._program(name) for name in names]:
            program.kill()

    def restart(self, *names: str) -> None:
        """Start parts again in parallel on their data and ports, after stopping the running ones cleanly."""
        for program in [self._program(name) for name in names]:
            program.halt()
        for name in names:
            self._launch(name)
        self._wait_until_ready(names)

    def roll(self, *names: str) -> None:
        """Restart parts one after another, each ready before the next; brokers are drained first.

        Without names: all bookies, then all brokers.
        """
        chosen = names or (*self.bookies, *self.brokers)
        self._running(chosen)  # raises for unknown names before any part is stopped
        for name in chosen:
            if name in self._running(self.brokers) and self._others(name):
                self.drain(name)
            self.restart(name)

    def heal(self) -> None:
        """Undo all faults: heal all proxies, and start all parts that are not running."""
        for proxy in (*self.proxies.values(), *self.stores.values()):
            proxy.heal()
        for name in self.parts:
            if not self.is_running(name):
                self._launch(name)
        self._wait_until_ready(self.parts)

    # -- ownership ---------------------------------------------------------------------------------------------------

    def owner(self, topic: str) -> str:
        """Return the name of the broker that owns a topic or partition; the look-up of an unowned one assigns it."""
        problem = f"no broker answered for {topic}"
        with ClusterAdmin(self.access) as admin:
            return call_with_retries(lambda: self._owner(admin, topic), self._start_timeout, problem)

    def move(self, topic: str, to: str) -> None:
        """Move a topic's bundle to a broker by an unload with a destination, and return when it is there."""
        target = self._started.addresses.broker_id(self._running_broker(to))
        with ClusterAdmin(self.access) as admin:

            def step() -> str | None:
                url = self._any_admin_url()
                if self._owner(admin, topic) == to:
                    return to
                admin.unload(url, admin.bundle(url, topic), target)
                return None

            call_with_retries(step, self._start_timeout, f"{topic} did not move to {to}")

    def drain(self, name: str) -> None:
        """Move all bundles of a broker to the others in turn; it keeps running, and may own new topics later."""
        addresses = self._started.addresses
        url = addresses.admin_url(self._running_broker(name))
        targets = [addresses.broker_id(other) for other in self._others(name)]
        if not targets:
            raise InvalidUse(f"{name} is the only running broker: no other can take its bundles")
        with ClusterAdmin(self.access) as admin:

            def step() -> str | None:
                bundles = zip(admin.owned(url, CLUSTER), itertools.cycle(targets), strict=False)
                moved = [admin.unload(url, bundle, target) for bundle, target in bundles]
                return None if any(moved) else name

            call_with_retries(step, self._start_timeout, f"{name} did not release all of its bundles")

    def cut_off(self, name: str) -> None:
        """Disconnect a broker from the metadata store: reset its connections to ZooKeeper, and reject new ones."""
        store = self._store_of(name)
        store.refuse()
        store.cut()

    def rejoin(self, name: str) -> None:
        """Let a broker connect to the metadata store again, and return when it is ready.

        A broker that exited because its session expired (`zookeeperSessionExpiredPolicy=shutdown`) is started again.
        """
        self._store_of(name).accept()
        try:
            self._wait_until_ready([name])
        except BrokerStartError:
            if self.is_running(name):
                raise
            self.restart(name)

    @property
    def _started(self) -> _State:
        if self._state is None:
            raise BrokerStartError("the cluster has no address before it is started")
        return self._state

    def _owner(self, admin: ClusterAdmin, topic: str) -> str:
        return self._started.addresses.broker_at(admin.owner(self._any_admin_url(), topic))

    def _others(self, name: str) -> list[str]:
        return [other for other in self._running(self.brokers) if other != name]

    def _running_broker(self, name: str) -> str:
        """Return the name if it is a running broker's, else raise."""
        if name not in self.brokers or not self.is_running(name):
            running = ", ".join(self._running(self.brokers))
            raise InvalidUse(f"{name!r} is not a running broker; running: {running or 'none'}")
        return name

    def _store_of(self, name: str) -> FaultProxy:
        if name not in self.stores:
            raise InvalidUse(f"unknown broker {name!r}; choose one of: {', '.join(self.brokers)}")
        return self.stores[name]

    # -- parts -------------------------------------------------------------------------------------------------------

    def _program(self, name: str) -> JavaProgram | ContainerProgram:
        if name not in self.parts:
            raise InvalidUse(f"the cluster has no part {name!r}; it has {', '.join(self.parts)}")
        return self._started.runtime.parts[name]

    def _running(self, names: Iterable[str]) -> list[str]:
        """Return those of the named parts that are alive."""
        return [name for name in names if self._program(name).is_running()]

    def _launch(self, name: str) -> None:
        """Start a part on its existing data and port, if any, and return without waiting for it."""
        self._run(name, settings=standalone_conf(self._make_settings()[name]))

    def _bring_up(self) -> None:
        """Start all parts for the first time, with the proxies between them, and return when they are ready."""
        addresses, runtime = self._started.addresses, self._started.runtime
        runtime.open()
        stores = runtime.layout.stores
        for name, ports in addresses.brokers.items():
            self._started.proxies[name] = self._proxy(name, ports.proxied, HOST, ports.proxy, addresses.scheme)
            self._started.stores[name] = self._proxy(name, addresses.zookeeper, stores, ports.store)
        self._launch(ZOOKEEPER)
        # The set-up's Java machine starts while ZooKeeper does, and then waits for it.
        self._launch_set_up()
        self._wait_until_ready([ZOOKEEPER])
        if runtime.parts[SETUP].finish(self._start_timeout) != 0:
            self._launch_set_up()  # ZooKeeper may have accepted its connection too early to answer
            if runtime.parts[SETUP].finish(self._start_timeout) != 0:
                raise self._error(SETUP, "its metadata could not be written")
        rest = [name for name in addresses.parts if name != ZOOKEEPER]
        for name in rest:
            self._launch(name)
        self._wait_until_ready(rest)

    def _wait_until_ready(self, names: Iterable[str]) -> None:
        """Wait until each part is ready and, if no other part is down, until a message passes."""
        deadline = time.monotonic() + self._start_timeout
        chosen = list(names)
        with ClusterAdmin(self.access) as admin:
            for name in chosen:
                while not self._is_ready(admin, name):
                    if self._program(name).has_lost_a_port():
                        # Without its admin port a broker runs on, and would never become ready.
                        self._program(name).kill()
                        reason = "another program took one of its ports during its start"
                        raise self._error(name, reason, lost_port=True)
                    if not self._program(name).is_running():
                        raise self._error(name, "it exited during its start")
                    if time.monotonic() > deadline:
                        raise self._error(name, f"it was not ready in {self._start_timeout:.0f} s")
                    time.sleep(_POLL_SECONDS)
        if not self.is_running():
            return
        # A broker that does not know a bookie yet rejects a first topic, and the client may wait forever.
        while failure := round_trip(self.service_url, self.access, timeout=_ROUND_TRIP_SECONDS):
            if time.monotonic() > deadline:
                raise self._error(chosen[-1], f"a message was not received: {failure}")

    def _any_admin_url(self) -> str:
        for name in self._running(self.brokers):
            return self._started.addresses.admin_url(name)
        raise BrokerStartError("no broker of the cluster is running; restart one")

    def _proxy(self, name: str, target: int, host: str, port: int, scheme: str = "pulsar") -> FaultProxy:
        try:
            return FaultProxy(HOST, target, port=port, host=host, scheme=scheme)
        except OSError as error:
            reason = f"its proxy cannot listen on {host}:{port} ({error})"
            raise self._error(name, reason, lost_port=True) from error

    def _make_settings(self) -> dict[str, dict[str, str]]:
        addresses, runtime = self._started.addresses, self._started.runtime
        own = self._started.identity.settings(runtime.secrets)
        settings = {
            name: broker_conf(name, addresses, self._profile, self._settings, runtime.layout) | own
            for name in addresses.brokers
        }
        frame = max(int(one["nettyMaxFrameSizeBytes"]) for one in settings.values()) + _BOOKIE_HEADROOM_BYTES
        for name in addresses.bookies:
            settings[name] = bookie_conf(name, addresses, runtime.data(name), frame, runtime.layout)
        settings[ZOOKEEPER] = zookeeper_conf(addresses.zookeeper, runtime.data(ZOOKEEPER), runtime.layout)
        return settings

    def _launch_set_up(self) -> None:
        """Start the program that writes the cluster's first metadata: cluster, public namespace, and bookies' root."""
        addresses = self._started.addresses
        store = f"zk:{self._started.runtime.layout.host(ZOOKEEPER)}:{addresses.zookeeper}"
        admin_url, service_url = self.admin_url, self.service_url
        arguments = {
            "--cluster": CLUSTER,
            "--metadata-store": store,
            "--configuration-metadata-store": store,
            # Both are required even if nothing listens without TLS.
            "--web-service-url": admin_url.replace("https:", "http:"),
            "--broker-service-url": service_url.replace("pulsar+ssl:", "pulsar:"),
            # For BookKeeper's table service, which brokers do not use.
            "--initial-num-stream-storage-containers": "0",
        }
        if addresses.tls:
            arguments |= {"--web-service-url-tls": admin_url, "--broker-service-url-tls": service_url}
        self._run(SETUP, [text for pair in arguments.items() for text in pair])

    def _run(self, name: str, arguments: Sequence[str] = (), settings: str | None = None) -> None:
        kind, runtime = name.partition("-")[0], self._started.runtime
        main, *flags = _MAINS[kind]
        conf = [] if settings is None else [str(runtime.conf(name))]
        options = [*_OPTIONS.get(kind, ()), *self._java_options]
        command = JavaCommand(main, [*flags, *arguments, *conf], _HEAPS[kind], options)
        runtime.launch(name, command, settings)

    def _is_ready(self, admin: ClusterAdmin, name: str) -> bool:
        addresses = self._started.addresses
        if name == ZOOKEEPER:
            with contextlib.suppress(OSError):
                socket.create_connection((HOST, addresses.zookeeper), _CONNECT_SECONDS).close()
                return self._program(name).has_logged(_ZOOKEEPER_READY)
            return False
        if name in addresses.bookies:
            # A bookie accepts connections before brokers can know it.
            return any(map(self._program(name).has_logged, _BOOKIE_READY))
        url = addresses.admin_url(name)
        return default_namespace_exists(url, self.access) and addresses.broker_id(name) in admin.active_brokers(url)

    def _error(self, name: str, reason: str, **details: object) -> BrokerStartError:
        what = f"no Pulsar {self._version} cluster (profile {self._profile.name}), {name}"
        return start_error(what, reason, self._started.runtime.parts[name].log_text(), **details)


class ClusterBroker(Broker):
    """Cluster with the interface of one broker: `kill()` kills all of its brokers, but no bookie."""

    back_end: ClassVar[str] = "cluster"

    def __init__(
        self,
        profile: Profile,
        *,
        settings: Mapping[str, object] | None = None,
        report: Callable[[str], None] = lambda _: None,
        version: str | None = None,
    ) -> None:
        super().__init__(profile, settings=settings, version=version)
        self.cluster = PulsarCluster(
            profile, brokers=profile.brokers, settings=settings, report=report, version=version
        )
        self._is_up = False
        self._marks: list[dict[str, int]] = [{}]

    @property
    def _address_(self) -> Address:
        return self.cluster._address_

    @property
    def access(self) -> Access:
        """Credentials and trusted certificates of a client; empty before the start."""
        return self.cluster.access if self._is_up else Access()

    def is_running(self) -> bool:
        """Return True if all parts are alive."""
        return self.cluster.is_running()

    def log_offset(self) -> int:
        """Return an opaque number for the current ends of the brokers' logs."""
        self._marks.append({name: self.cluster.log_offset(name) for name in self._brokers()})
        return len(self._marks) - 1

    def log_text(self, since: int = 0) -> str:
        """Return the brokers' logs from an offset to their ends, one after another."""
        starts = self._marks[since]
        return "".join(self.cluster.log_text(name, starts.get(name, 0)) for name in self._brokers())

    def _brokers(self) -> tuple[str, ...]:
        return self.cluster.brokers if self._is_up else ()

    def _launch(self) -> None:
        if self._is_up:
            self.cluster.restart(*self.cluster.brokers)
        else:
            self.cluster.start()
            self._is_up = True

    def _halt(self) -> None:
        """Leave the brokers running: the cluster stops them cleanly when it restarts them."""

    def _kill(self) -> None:
        self.cluster.kill(*self._brokers())

    def _discard(self) -> None:
        self._is_up = False
        self.cluster.stop()
