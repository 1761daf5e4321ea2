"""A real Pulsar cluster for tests, on one machine: ZooKeeper, bookies and brokers, each to be ended by its name.

Every part is a Java process of its own, or a container. Before each broker, and between each broker and ZooKeeper, is a
fault proxy: what a client learns from a look-up through a proxy leads to a proxy again.

ZooKeeper is ready when it says so and accepts connections, a bookie when it says so, a broker when it is among the
active ones and has the default namespace, and all together when one message was sent and received through the official
client. For tests that do not care which they have, a `ClusterBroker` is a whole cluster in the place of one broker.
"""

from __future__ import annotations

import itertools
import socket
import time
from typing import TYPE_CHECKING, ClassVar, Final, Self

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .access import Access, Detour
from .backend import BACKENDS, choose_backend
from .broker import Broker, Reachable, start_error, tail_of
from .cluster_conf import CLUSTER, HOST, SETUP, ZOOKEEPER, Addresses, bookie_conf, broker_conf, zookeeper_conf
from .cluster_ground import Command, Ground, Part, ProcessGround
from .identity import Identity
from .profiles import Profile, choose_version, get_profile, standalone_conf
from .proxy import FaultProxy
from .readiness import default_namespace_exists, round_trip
from .tenancy import ClusterAdmin, insist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


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


_LAUNCHES: Final = 3


class PulsarCluster(Reachable):
    """One ZooKeeper, some bookies and some brokers on the loopback; needs Java 17 or newer, and Maven the first time.

    Its parts are named `zookeeper`, `bookie-1`, …, `broker-1`, …. Each entry is on two bookies, so with two of them
    nothing can be written while one is down, and clients wait. Use it as a context manager, or call `start()` and
    `stop()`.

    Args:
        profile: a profile or its name, for all brokers.
        backend: what its parts run in, `process` or `docker`; `auto` or None as `start_broker` understands them.
        brokers: how many, 1 or more.
        bookies: how many, 1 or more.
        settings: more broker settings, by their names in `broker.conf`; they win over the profile's.
        java_options: more options for every Java machine, after and so above the harness's own.
        start_timeout: seconds from launch to ready before a start counts as failed.
        report: called with short lines of progress when the jars have to be fetched.
        version: of all parts; by default that of `PULSAR_EXT_PULSAR_VERSION`, else the one that this is tested with.

    Raises:
        InvalidUse: a number below 1, no such profile, what cannot be a version, or a setting that cannot be had.
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
        start_timeout: float = 180.0,
        report: Callable[[str], None] = lambda _: None,
        version: str | None = None,
    ) -> None:
        if brokers < 1 or bookies < 1:
            raise InvalidUse(f"a cluster has at least one broker and one bookie, not {brokers} and {bookies}")
        self._backend = backend
        if backend is not None and backend not in BACKENDS:
            raise InvalidUse(f"there is no back end {backend!r}; choose one of: {', '.join(BACKENDS)}")
        self._profile = get_profile(profile)
        self._settings = dict(settings or {})
        self._counts = (brokers, bookies)
        self._java_options = tuple(java_options)
        self._start_timeout = start_timeout
        self._report = report
        self._version = choose_version(version)
        # Refuses bad settings here rather than at the start.
        broker_conf("broker-1", Addresses.choose(brokers, bookies), self._profile, self._settings)
        self._parts: ClusterParts | None = None

    def __repr__(self) -> str:
        running = self._parts.running(self.parts) if self._parts is not None else []
        return f"<PulsarCluster {self._profile.name!r}, running: {', '.join(running) or 'nothing'}>"

    # -- where it is -------------------------------------------------------------------------------------------------

    @property
    def service_url(self) -> str:
        """The URL for clients, with all brokers: `pulsar://127.0.0.1:port,127.0.0.1:port`, or `pulsar+ssl://…`."""
        return self._known().addresses.service_url

    @property
    def proxied_url(self) -> str:
        """The URL for clients that never get past the `proxies`."""
        return self._known().addresses.proxied_url

    @property
    def network_url(self) -> str | None:
        """The URL for clients in other containers of `network`; None where there is no such network."""
        return self._known().network_url

    @property
    def network(self) -> str | None:
        """The name of the Docker network that the cluster's containers have, None where it is processes."""
        return self._known().network

    @property
    def admin_urls(self) -> list[str]:
        """The URL of each broker's admin REST API."""
        return self._known().addresses.admin_urls

    @property
    def admin_url(self) -> str:
        """The URL of the first broker's admin REST API."""
        return self.admin_urls[0]

    @property
    def access(self) -> Access:
        """What a client needs besides the URLs: the superuser's credentials, and whom to trust."""
        return self._known().access

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of all parts: ZooKeeper, the bookies, the brokers."""
        return self._known().addresses.parts

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of the brokers."""
        return tuple(self._known().addresses.brokers)

    @property
    def bookies(self) -> tuple[str, ...]:
        """The names of the bookies."""
        return tuple(self._known().addresses.bookies)

    @property
    def proxies(self) -> Mapping[str, FaultProxy]:
        """The proxy before each broker, by the broker's name; clients of `proxied_url` come through them."""
        return self._known().proxies

    @property
    def detours(self) -> tuple[Detour, ...]:
        """Ways for further fault proxies, in any process: `FaultProxy.to(cluster.service_url, cluster.detours)`."""
        return self._known().addresses.detours

    @property
    def stores(self) -> Mapping[str, FaultProxy]:
        """The proxy between each broker and ZooKeeper, by the broker's name."""
        return self._known().stores

    def is_running(self, name: str | None = None) -> bool:
        """Return whether the part is alive now; without a name, whether all are."""
        if self._parts is None:
            return False
        names = self.parts if name is None else (name,)
        return self._parts.running(names) == list(names)

    def pid(self, name: str) -> int | None:
        """Return the id of the part's process on the machine that runs it, None when it does not run."""
        return self._known().program(name).pid

    def log_offset(self, name: str) -> int:
        """Return where the part's log ends now, as a number that means something to `log_text` alone."""
        return self._known().program(name).log_offset()

    def log_text(self, name: str, since: int = 0) -> str:
        """Return the part's log from that offset on, all of it by default."""
        return self._known().program(name).log_text(since)

    @property
    def version(self) -> str:
        """The version of all parts."""
        return self._version

    def describe(self) -> str:
        """Say in one line what runs where, without secrets."""
        brokers, bookies = self._counts
        return (
            f"Pulsar {self._version}, profile {self._profile.name}, a cluster of {brokers} brokers and {bookies} "
            f"bookies: {self.service_url} and {', '.join(self.admin_urls)}"
        )

    # -- starting and ending -----------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start all parts, side by side as far as they allow, and return when all are ready; or do nothing if it runs.

        Raises:
            BrokerStartError: it did not become ready; nothing is left running, and the message ends with a log.
        """
        if self._parts is not None:
            return self
        for attempts_left in reversed(range(_LAUNCHES)):
            ground = self._make_ground()
            addresses = Addresses.choose(*self._counts, tls=self._profile.tls, detours=ground.has_detours)
            options = (self._profile, self._settings, self._java_options, self._start_timeout)
            parts = ClusterParts(ground, addresses, *options)
            try:
                parts.bring_up()
            except BaseException as error:
                may_repeat = isinstance(error, BrokerStartError) and parts.lost_a_port()
                parts.discard()
                if not (attempts_left and may_repeat):
                    raise
            else:
                self._parts = parts
                break
        return self

    def stop(self) -> None:
        """End all parts and remove what they leave behind; a second call does nothing."""
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.discard()

    def kill(self, *names: str) -> None:
        """End parts by SIGKILL, as crashes would; their data and ports stay for `restart()`.

        Raises:
            InvalidUse: there is no such part.
        """
        for program in [self._known().program(name) for name in names]:
            program.kill()

    def restart(self, *names: str) -> None:
        """Bring parts back, side by side, on the same data and ports, ending in good order first those that run.

        Raises:
            InvalidUse: there is no such part.
            BrokerStartError: one did not become ready again; its data is still there.
        """
        parts = self._known()
        for program in [parts.program(name) for name in names]:
            program.halt()
        for name in names:
            parts.launch(name)
        parts.wait_until_ready(names)

    def roll(self, *names: str) -> None:
        """Restart parts in good order, one after the other, each ready before the next; brokers are drained first.

        Without names: all bookies, then all brokers.

        Raises:
            InvalidUse: there is no such part.
            BrokerStartError: one did not become ready again, or what a broker owned could not be moved.
        """
        chosen = names or (*self.bookies, *self.brokers)
        self._known().running(chosen)  # refuses what there is not, before anything ends
        for name in chosen:
            if name in self._known().running(self.brokers) and self._others(name):
                self.drain(name)
            self.restart(name)

    def heal(self) -> None:
        """Take back what was done to it: all proxies are healed, what does not run is started again.

        Raises:
            BrokerStartError: a part did not become ready again.
        """
        for proxy in (*self.proxies.values(), *self.stores.values()):
            proxy.heal()
        for name in self.parts:
            if not self.is_running(name):
                self._known().launch(name)
        self._known().wait_until_ready(self.parts)

    # -- who owns what -----------------------------------------------------------------------------------------------

    def owner(self, topic: str) -> str:
        """Return the name of the broker that owns a topic or a partition, which gets an owner by this if it has none.

        Raises:
            BrokerStartError: no broker answers for it.
        """
        with ClusterAdmin(self.access) as admin:
            return insist(lambda: self._owner(admin, topic), self._start_timeout, f"no broker answered for {topic}")

    def move(self, topic: str, to: str) -> None:
        """Move the bundle that a topic is in to a broker, by an unload with a destination, and return when it is there.

        Raises:
            InvalidUse: there is no such broker, or it does not run.
            BrokerStartError: it was not moved within the time for a start.
        """
        target = self._known().addresses.broker_id(self._running_broker(to))
        with ClusterAdmin(self.access) as admin:

            def step() -> str | None:
                url = self._known().any_admin_url()
                if self._owner(admin, topic) == to:
                    return to
                admin.unload(url, admin.bundle(url, topic), target)
                return None

            insist(step, self._start_timeout, f"{topic} did not move to {to}")

    def drain(self, name: str) -> None:
        """Move all that a broker owns to the others, by turns; it goes on running, and may get new topics later.

        Raises:
            InvalidUse: there is no such broker, it does not run, or there is no other one.
            BrokerStartError: what it owned could not be moved.
        """
        addresses = self._known().addresses
        url = addresses.admin_url(self._running_broker(name))
        targets = [addresses.broker_id(other) for other in self._others(name)]
        if not targets:
            raise InvalidUse(f"{name} is the only broker that runs: nothing can take what it owns")
        with ClusterAdmin(self.access) as admin:

            def step() -> str | None:
                bundles = zip(admin.owned(url, CLUSTER), itertools.cycle(targets), strict=False)
                moved = [admin.unload(url, bundle, target) for bundle, target in bundles]
                return None if any(moved) else name

            insist(step, self._start_timeout, f"{name} did not give up all that it owned")

    def cut_off(self, name: str) -> None:
        """Cut a broker from the metadata store: its connections to ZooKeeper are reset, and new ones refused.

        Raises:
            InvalidUse: there is no such broker.
        """
        store = self._store_of(name)
        store.refuse()
        store.cut()

    def rejoin(self, name: str) -> None:
        """Let a broker connect to the metadata store again, and return when it is ready.

        One that has ended because its session expired (`zookeeperSessionExpiredPolicy=shutdown`) is started again.

        Raises:
            InvalidUse: there is no such broker.
            BrokerStartError: it did not become ready again.
        """
        self._store_of(name).accept()
        try:
            self._known().wait_until_ready([name])
        except BrokerStartError:
            if self.is_running(name):
                raise
            self.restart(name)

    def _make_ground(self) -> Ground:
        if choose_backend(self._backend, self._report).backend == "docker":
            from .cluster_containers import ContainerGround  # noqa: PLC0415  # docker is loaded only where it is used

            return ContainerGround(self._report, self._version)
        return ProcessGround(self._report, self._version)

    def _known(self) -> ClusterParts:
        if self._parts is None:
            raise BrokerStartError("the cluster has no address before it is started")
        return self._parts

    def _owner(self, admin: ClusterAdmin, topic: str) -> str:
        return self._known().addresses.broker_at(admin.owner(self._known().any_admin_url(), topic))

    def _others(self, name: str) -> list[str]:
        """Return the brokers that run besides that one."""
        return [other for other in self._known().running(self.brokers) if other != name]

    def _running_broker(self, name: str) -> str:
        """Return the broker's name if it is one and runs."""
        if name not in self.brokers or not self.is_running(name):
            running = ", ".join(self._known().running(self.brokers))
            raise InvalidUse(f"{name!r} is not a broker that runs; those that do: {running or 'none'}")
        return name

    def _store_of(self, name: str) -> FaultProxy:
        if name not in self.stores:
            raise InvalidUse(f"there is no broker {name!r} to cut off; there are {', '.join(self.brokers)}")
        return self.stores[name]


class ClusterBroker(Broker):
    """A cluster that is used, killed and restarted as one broker: `kill()` ends all of its brokers, no bookie.

    Args:
        profile: a profile of several brokers.
        settings: more broker settings, by their names in `broker.conf`; they win over the profile's.
        start_timeout: seconds from launch to ready before a start counts as failed.
        report: called with short lines of progress when the jars have to be fetched.
        version: of all parts; by default that of `PULSAR_EXT_PULSAR_VERSION`, else the one that this is tested with.
    """

    back_end: ClassVar[str] = "cluster"

    def __init__(
        self,
        profile: Profile,
        *,
        settings: Mapping[str, object] | None = None,
        start_timeout: float = 180.0,
        report: Callable[[str], None] = lambda _: None,
        version: str | None = None,
    ) -> None:
        super().__init__(profile, settings=settings, start_timeout=start_timeout, version=version)
        self._cluster = PulsarCluster(
            profile,
            brokers=get_profile(profile).brokers,
            settings=settings,
            start_timeout=start_timeout,
            report=report,
            version=version,
        )
        self._is_up = False
        self._marks: list[dict[str, int]] = [{}]

    @property
    def cluster(self) -> PulsarCluster:
        """The cluster itself."""
        return self._cluster

    @property
    def service_url(self) -> str:
        """The URL for clients, with all brokers."""
        return self._cluster.service_url

    @property
    def admin_url(self) -> str:
        """The URL of the first broker's admin REST API."""
        return self._cluster.admin_url

    @property
    def access(self) -> Access:
        """What a client needs besides the URLs; nothing before the start."""
        return self._cluster.access if self._is_up else Access()

    @property
    def detours(self) -> tuple[Detour, ...]:
        """Ways for fault proxies before all of its brokers."""
        return self._cluster.detours

    def is_running(self) -> bool:
        """Return whether all parts are alive now."""
        return self._cluster.is_running()

    def log_offset(self) -> int:
        """Return a number for where the brokers' logs end now."""
        self._marks.append({name: self._cluster.log_offset(name) for name in self._brokers()})
        return len(self._marks) - 1

    def log_text(self, since: int = 0) -> str:
        """Return the brokers' logs from there to their ends, one after the other."""
        starts = self._marks[since]
        return "".join(self._cluster.log_text(name, starts.get(name, 0)) for name in self._brokers())

    def _brokers(self) -> tuple[str, ...]:
        return self._cluster.brokers if self._is_up else ()

    def _launch(self) -> None:
        if self._is_up:
            self._cluster.restart(*self._cluster.brokers)
        else:
            self._cluster.start()
            self._is_up = True

    def _halt(self) -> None:
        """Do nothing: the cluster ends in good order what it restarts."""

    def _kill(self) -> None:
        self._cluster.kill(*self._brokers())

    def _discard(self) -> None:
        self._is_up = False
        self._cluster.stop()
