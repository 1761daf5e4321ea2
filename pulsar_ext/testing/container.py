"""Broker, or the parts of a cluster, as Docker containers, with testcontainers.

The ports are chosen here and bound to the loopback only, so that URLs survive a restart and nothing is open to the
network. The container has a unique name, and a guard removes it when the process that started it has ended.

On a Docker network a look-up must return different addresses: a name of the network for its containers, `localhost` and
a port for this machine. So the broker has two listeners, and the listener of a connection determines the address.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import tarfile
import tempfile
import time
import uuid
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, Self

from docker.errors import DockerException, NotFound  # type: ignore[import-not-found]  # mypy sees docker/
from requests.exceptions import RequestException

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .broker import START_SECONDS, Ports, Standalone
from .cluster_conf import HOST, LOCAL, SETUP, ZOOKEEPER, Addresses, Layout
from .identity import Identity
from .image import Engine, choose_image, connect_engine, start_command
from .java_program import JavaCommand, start_guard
from .ports import free_port
from .profiles import Profile, broker_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .access import Options


_HALT_SECONDS: Final = 20
_POLL_SECONDS: Final = 0.1
_OWNER_LABEL: Final = "pulsar-ext.owner-pid"
_USER: Final = 10_000
_PORT_MARKS: Final = ("port is already allocated", "address already in use")


class ContainerProgram:
    """Java program in a container, created by its owner; all its launches share one log. `JavaProgram` is its twin."""

    def __init__(self) -> None:
        self.container: Engine | None = None
        self._launched_at = 0

    @property
    def pid(self) -> int | None:
        """Id of its process on the engine's machine; None if it is not running."""
        return self.container.attrs["State"]["Pid"] if self.container is not None and self.is_running() else None

    def start(self) -> None:
        """Start the existing container."""
        self._launched_at = time.time_ns()
        if self.container is not None:
            self.container.start()

    def is_running(self) -> bool:
        """Return True if it is alive; False without a container, and for a removed one."""
        with contextlib.suppress(NotFound):
            if self.container is not None:
                self.container.reload()
                return bool(self.container.status == "running")
        return False

    def log_offset(self) -> int:
        """Return the time in nanoseconds, by which the engine selects lines without reading the whole log."""
        return time.time_ns()

    def log_text(self, since: int = 0) -> str:
        """Return its log from that time on, all of it by default; empty if it was removed."""
        with contextlib.suppress(NotFound):
            if self.container is not None:
                return str(self.container.logs(since=since / 1e9 if since else None), errors="replace")
        return ""

    def has_logged(self, text: str) -> bool:
        """Return True if it has logged a text since its last launch."""
        return text in self.log_text(self._launched_at)

    def has_lost_a_port(self) -> bool:
        """Return False: a container has its own ports, and the engine rejects published ports that are in use."""
        return False

    def finish(self, seconds: float) -> int | None:
        """Wait for its end; return its exit status, or None if it still runs after `seconds`."""
        deadline = time.monotonic() + seconds
        while self.is_running():
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_SECONDS)
        return self.container.attrs["State"]["ExitCode"] if self.container is not None else None

    def halt(self) -> None:
        """Stop it cleanly; do nothing if it is not running."""
        if self.container is not None and self.is_running():
            self.container.stop(timeout=_HALT_SECONDS)

    def kill(self) -> None:
        """Kill it with SIGKILL; do nothing if it is not running."""
        if self.container is not None and self.is_running():
            self.container.kill()
            self.container.wait()


def is_port_lost(error: Exception) -> bool:
    """Return True if the engine could not publish a port because another program has it."""
    return any(mark in str(error) for mark in _PORT_MARKS)


HOST_PORT: Final = 6651
"""Port in the container for clients that connect through the host's port; clients of the network use the usual one."""

# Host names that Java accepts; it finds none in a URL with an underscore.
_ALIAS: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_NAMES: Final = ("advertisedListeners", "internalListenerName", "bindAddresses")


class DockerNetwork(Protocol):
    """Existing Docker network: testcontainers' `Network`, or the engine's."""

    @property
    def name(self) -> str | None:
        """Name of the network in the engine."""
        ...


def check_alias(alias: str) -> str:
    """Return a name that is valid as a host name in a URL, or raise."""
    if _ALIAS.fullmatch(alias) is None:
        raise InvalidUse(
            f"network alias {alias!r} is not a host name: use letters, digits, hyphens and dots, no underscore"
        )
    return alias


def check_settings(settings: Mapping[str, object]) -> None:
    """Raise if the caller's settings describe the broker's listeners."""
    if clash := [name for name in _NAMES if name in settings]:
        raise InvalidUse(f"a broker on a network sets {', '.join(clash)}: omit the setting, or the network")


def listener_settings(alias: str, broker_port: int, outside_port: int, *, tls: bool) -> dict[str, str]:
    """Return the settings of both listeners."""
    scheme = "pulsar+ssl" if tls else "pulsar"
    listeners = {"network": f"{scheme}://{alias}:{broker_port}", "host": f"{scheme}://localhost:{outside_port}"}
    return {
        "advertisedListeners": ",".join(f"{name}:{url}" for name, url in listeners.items()),
        # The broker's own clients are in its container, where the host's port is not reachable.
        "internalListenerName": "network",
        "bindAddresses": f"host:{scheme}://0.0.0.0:{HOST_PORT}",
    }


class OwnContainers:
    """Containers of this process by their names, and the directory of their secrets, until they are closed.

    Their guard is started before they exist, so that none outlives this process.
    """

    def __init__(self, image: str, names: Sequence[str], network: str | None = None) -> None:
        self._image, self._names, self._network = image, names, network
        self._engine = connect_engine()
        self.home = Path(tempfile.mkdtemp(prefix="pulsar-ext-"))
        networks = [] if network is None else [f"network:{network}"]
        self._guard = start_guard("containers", *names, *networks, f"directory:{self.home}", python=["-P"])

    def create_network(self) -> str:
        """Create their network, and return this machine's address in it."""
        network = self._engine.networks.create(self._network, driver="bridge", labels=_labels())
        network.reload()
        return str(network.attrs["IPAM"]["Config"][0]["Gateway"])

    def create(
        self,
        name: str,
        command: list[str] | None,
        files: Mapping[str, bytes],
        network: str | None = None,
        aliases: Sequence[str] = (),
        **options: object,
    ) -> Engine:
        """Create a container with files by their absolute paths, in a network with the aliases, if any."""
        if network is not None:
            endpoint = self._engine.api.create_endpoint_config(aliases=list(aliases))
            options |= {"network": network, "networking_config": {network: endpoint}}
        made = self._engine.containers.create(self._image, command, name=name, labels=_labels(), **options)
        made.put_archive("/", _archive(files))
        return made

    def close(self) -> None:
        """Remove them with their data, their network and their secrets."""
        for name in self._names:
            # By name, which also finds a container whose creation was interrupted before its id was known.
            with contextlib.suppress(NotFound):
                self._engine.containers.get(name).remove(force=True, v=True)
        if self._network is not None:
            with contextlib.suppress(NotFound):
                self._engine.networks.get(self._network).remove()
        self._engine.close()
        self._guard.terminate()
        self._guard.wait()
        shutil.rmtree(self.home, ignore_errors=True)


def _labels() -> dict[str, str]:
    return {_OWNER_LABEL: str(os.getpid())}


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of files by their absolute paths, readable by the image's user only."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.uid = len(content), 0o600, _USER
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


_BROKER_PORT: Final = 6650
_ADMIN_PORT: Final = 8080
SECRETS: Final = PurePosixPath("/pulsar/secrets")


class PulsarContainer(Standalone):
    """Standalone broker in its own container; needs a Docker engine that this user may use.

    Args:
        profile: a profile or its name.
        image: the image to run; by default that of `PULSAR_EXT_IMAGE`, else the official one.
        settings: see `Broker`.
        heap: size of the Java heap, and of the direct memory, such as `512m`.
        start_timeout: see `Broker`.
        report: called with short lines of progress if an image is pulled.
        version: see `Broker`; with a named image, the version that the image must have.
        broker_port: port for clients; a free one by default.
        admin_port: port of the admin REST API; a free one by default.
        network: existing Docker network, such as testcontainers' `Network`, whose containers may use the broker.
        network_aliases: names of the broker on the network; its URLs there have the first one. By default the
            container's name.

    Raises:
        InvalidUse: the profile, a setting or an alias is invalid.
    """

    back_end: ClassVar[str] = "docker"

    def __init__(
        self,
        profile: str | Profile = "plain",
        *,
        image: str | None = None,
        settings: Mapping[str, object] | None = None,
        heap: str = "512m",
        start_timeout: float = START_SECONDS,
        report: Callable[[str], None] = lambda _: None,
        version: str | None = None,
        broker_port: int | None = None,
        admin_port: int | None = None,
        network: DockerNetwork | None = None,
        network_aliases: Sequence[str] = (),
    ) -> None:
        ports = broker_port, admin_port
        super().__init__(profile, settings, start_timeout, version, ports, heap, report)
        self._requested_image = self._image = image
        self._program: ContainerProgram = ContainerProgram()
        self._name = ""
        self._own: OwnContainers | None = None
        self._network: DockerNetwork | None = None
        self._aliases: tuple[str, ...] = ()
        self.with_network_aliases(*network_aliases)
        if network is not None:
            self.with_network(network)

    def with_network(self, network: DockerNetwork) -> Self:
        """Let the containers of a Docker network use the broker, too; call it before the start.

        Args:
            network: an existing one, such as testcontainers' `Network`; it must outlive the broker.

        Raises:
            InvalidUse: the broker was started, or its settings describe listeners.
        """
        self._check_not_started()
        check_settings(self._settings)
        self._network = network
        return self

    def with_network_aliases(self, *aliases: str) -> Self:
        """Set the names of the broker on its network; its URLs there have the first one. Call it before the start.

        Raises:
            InvalidUse: the broker was started, or an alias is not a host name.
        """
        self._check_not_started()
        self._aliases = tuple(check_alias(alias) for alias in aliases)
        return self

    @property
    def network_service_url(self) -> str:
        """URL for clients in containers of the network, `pulsar://alias:6650`, or `pulsar+ssl://…`.

        Raises:
            InvalidUse: the broker has no network.
            BrokerStartError: it was not started yet.
        """
        return self._url("pulsar", self._network_host(), _BROKER_PORT)

    @property
    def network_admin_url(self) -> str:
        """URL of the admin REST API for containers of the network, `http://alias:8080`, or `https://…`.

        Raises:
            InvalidUse: the broker has no network.
            BrokerStartError: it was not started yet.
        """
        return self._url("http", self._network_host(), _ADMIN_PORT)

    @property
    def image(self) -> str | None:
        """Image of the container; before the start the requested one, if any."""
        return self._image

    @property
    def container_id(self) -> str | None:
        """The engine's id of the container; None before the start and after the stop."""
        return self._program.container.id if self._program.container is not None else None

    def _launch(self) -> None:
        try:
            if self._program.container is None:
                self._program.container = self._create()
            self._program.start()
        except (DockerException, RequestException) as error:
            lost_port = is_port_lost(error)
            if lost_port and any(self._requested_ports):
                taken = " or ".join(str(port) for port in self._requested_ports if port)
                raise BrokerStartError(f"port {taken} is in use: choose another, or omit it") from error
            text = f"the Docker engine could not start {self.image}: {error}"
            raise BrokerStartError(text, lost_port=lost_port) from error

    def _create(self) -> Engine:
        if self._aliases and self._network is None:
            raise InvalidUse(f"the aliases {', '.join(self._aliases)} need a network; pass one with with_network(…)")
        self._image = image = choose_image(self._requested_image, report=self._report, version=self.version)
        command = start_command(image, report=self._report)
        broker_port, admin_port = self._requested_ports
        self._ports = ports = Ports(broker_port or free_port(), admin_port or free_port())
        self._name = f"pulsar-ext-{uuid.uuid4().hex[:12]}"
        self._own = own = OwnContainers(image, [self._name])
        self._home = own.home
        # A broker on a network listens on another port for this machine.
        inside = _BROKER_PORT if self._network is None else HOST_PORT
        settings = broker_settings(self._profile, bind_address="0.0.0.0", settings=self._settings)  # noqa: S104  # inside the container
        network = None if self._network is None else self._network.name
        aliases = () if network is None else self._aliases or (self._name,)
        if aliases:
            settings |= listener_settings(aliases[0], _BROKER_PORT, ports.broker, tls=self._profile.tls)
        self._identity = Identity.make(self._profile, aliases)
        self._identity.write(self._home)
        # Files instead of variables, because every user of the engine can read a container's environment.
        settings |= self._identity.settings(SECRETS)
        environment = {f"PULSAR_PREFIX_{name}": value for name, value in settings.items()}
        return own.create(
            self._name,
            None if command is None else ["bash", "-c", command],
            {str(SECRETS / name): content for name, content in self._identity.files().items()},
            network,
            aliases,
            environment=environment | {"PULSAR_MEM": f"-Xmx{self._heap} -XX:MaxDirectMemorySize={self._heap}"},
            ports={f"{inside}/tcp": (HOST, ports.broker), f"{_ADMIN_PORT}/tcp": (HOST, ports.admin)},
        )

    def _halt(self) -> None:
        self._program.halt()

    def _discard(self) -> None:
        self._program = ContainerProgram()
        own, self._own = self._own, None
        if own is not None:
            own.close()
        super()._discard()
        self._ports, self._image = None, self._requested_image

    def _network_host(self) -> str:
        if self._network is None:
            raise InvalidUse("the broker has no Docker network: call with_network(…) before the start")
        self._known_ports()
        return (self._aliases or (self._name,))[0]

    def _check_not_started(self) -> None:
        if self._program.container is not None:
            raise InvalidUse("the broker was already started: set networks and aliases before the start")


_GATE: Final = "gate"
_HOME: Final = SECRETS.parent
_CONF: Final = _HOME / "conf" / "part.conf"


class ContainerRuntime:
    """Runtime of a cluster with a container for each part, in their own network; `ProcessRuntime` is its twin.

    ZooKeeper, the bookies and other containers of the network have names. The brokers share the loopback and the ports
    of an additional container, the gate, as the containers of a pod do. So `127.0.0.1:port` is the same broker for this
    machine and for the other brokers, as redirects of the admin REST API and unloads with a destination require. The
    proxies between brokers and ZooKeeper run in this process, on this machine's address in the network.
    """

    layout = LOCAL
    has_detours = False
    secrets = SECRETS

    def __init__(self, report: Callable[[str], None], version: str, addresses: Addresses) -> None:
        image = choose_image(version=version, report=report)
        start_command(image, report=report)  # pulls an image that was named
        self.network = f"pulsar-ext-{uuid.uuid4().hex[:12]}"
        self._addresses = addresses
        self.parts = {name: ContainerProgram() for name in (*addresses.parts, SETUP)}
        self._own = OwnContainers(image, [self._container(name) for name in (*self.parts, _GATE)], self.network)
        self.home = self._own.home

    def open(self) -> None:
        """Create the network, and the gate that publishes the ports of all brokers on this machine's loopback."""
        with self._engine_errors("create a network"):
            gateway = self._own.create_network()
            brokers = self._addresses.brokers
            ports = [port for one in brokers.values() for port in (one.service, one.admin, one.proxied)]
            self._create(_GATE, ["sleep", "infinity"], {}, ports, aliases=brokers).start()
        self.layout = Layout(network=True, stores=gateway)

    def data(self, name: str) -> PurePosixPath:
        """Return the data directory of a part, in a volume that is removed with the container."""
        return _HOME / "data" / name

    @staticmethod
    def conf(_: str) -> PurePosixPath:
        """Return the path of a part's settings."""
        return _CONF

    def launch(self, name: str, command: JavaCommand, settings: str | None) -> None:
        """Start a part's container, created the first time, and return without waiting for it."""
        part = self.parts[name]
        with self._engine_errors(f"start {name}"):
            if part.container is None:
                files = {str(SECRETS / path.name): path.read_bytes() for path in self.home.iterdir()}
                if settings is not None:
                    files[str(_CONF)] = settings.encode()
                ports = [self._addresses.zookeeper] if name == ZOOKEEPER else []
                # The shell finds Java; `exec`, so that Java gets the signals.
                shell = ["bash", "-c", "exec " + shlex.join(command.line("java", _HOME / "lib"))]
                part.container = self._create(name, shell, files, ports, aliases=[name])
            part.start()

    def close(self) -> None:
        """Remove all containers with their data, and the network; a second call does nothing."""
        self._own.close()

    def _container(self, name: str) -> str:
        return f"{self.network}-{name}"

    def _create(
        self, name: str, command: list[str], files: Mapping[str, bytes], ports: Iterable[int], aliases: Iterable[str]
    ) -> Engine:
        """Create a container: a broker's in the network of the gate, any other one with its own address."""
        if name in self._addresses.brokers:
            options: Options = {"network_mode": f"container:{self._container(_GATE)}"}
        else:
            options = {"network": self.network, "aliases": list(aliases)}
            # The port is the same inside, so that brokers and this machine use the same address.
            options["ports"] = {f"{port}/tcp": (HOST, port) for port in ports}
        # The image's health check is for a standalone broker.
        options |= {"healthcheck": {"test": ["NONE"]}, "working_dir": str(_HOME)}
        return self._own.create(self._container(name), command, files, **options)

    @contextlib.contextmanager
    def _engine_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DockerException, RequestException) as error:
            text = f"the Docker engine could not {what} of a cluster: {error}"
            raise BrokerStartError(text, lost_port=is_port_lost(error)) from error
