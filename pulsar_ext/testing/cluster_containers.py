"""Parts of a test cluster as containers in their own network.

ZooKeeper, the bookies and other containers of the network have names. The brokers share the loopback and the ports of
an additional container, the gate, as the containers of a pod do. So `127.0.0.1:port` is the same broker for this
machine and for the other brokers, as redirects of the admin REST API and unloads with a destination require. The
proxies between brokers and ZooKeeper run in this process, on this machine's address in the network.
"""

from __future__ import annotations

import contextlib
import shlex
import uuid
from typing import TYPE_CHECKING, Final

from docker.errors import DockerException  # type: ignore[import-not-found]  # mypy sees docker/
from requests.exceptions import RequestException

from pulsar_ext.errors import BrokerStartError

from .cluster_conf import HOST, LOCAL, SETUP, ZOOKEEPER, Addresses, Layout
from .container import SECRETS, ContainerProgram, EngineContainer, OwnContainers, is_port_lost
from .image import choose_image, start_command
from .java_program import JAVA_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import PurePosixPath

    from .access import Options
    from .cluster_runtime import Command

_GATE: Final = "gate"
_HOME: Final = SECRETS.parent
_CONF: Final = _HOME / "conf" / "part.conf"


class ContainerRuntime:
    """Runtime with a container for each part, `ProcessRuntime`'s twin."""

    layout = LOCAL
    has_detours = False
    secrets = SECRETS

    def __init__(self, report: Callable[[str], None], version: str, addresses: Addresses) -> None:
        image = choose_image(version=version, report=report)
        start_command(image, report=report)  # pulls an image that was named
        self.network = f"pulsar-ext-{uuid.uuid4().hex[:12]}"
        self._addresses = addresses
        self._parts = {name: ContainerProgram() for name in (*addresses.parts, SETUP)}
        self._own = OwnContainers(image, [self._container(name) for name in (*self._parts, _GATE)], self.network)
        self.home = self._own.home
        self._lost_a_port = False

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

    def part(self, name: str) -> ContainerProgram:
        """Return a part by its name."""
        return self._parts[name]

    def launch(self, name: str, command: Command) -> None:
        """Start a part's container, created the first time, and return without waiting for it."""
        part = self._parts[name]
        with self._engine_errors(f"start {name}"):
            if part.container is None:
                files = {str(SECRETS / path.name): path.read_bytes() for path in self.home.iterdir()}
                if command.settings is not None:
                    files[str(_CONF)] = command.settings.encode()
                ports = [self._addresses.zookeeper] if name == ZOOKEEPER else []
                part.container = self._create(name, _shell(command), files, ports, aliases=[name])
            part.start()

    def lost_a_port(self) -> bool:
        """Return True if a port was taken by another program."""
        return self._lost_a_port

    def close(self) -> None:
        """Remove all containers with their data, and the network; a second call does nothing."""
        self._own.close()

    def _container(self, name: str) -> str:
        return f"{self.network}-{name}"

    def _create(
        self, name: str, command: list[str], files: Mapping[str, bytes], ports: Iterable[int], aliases: Iterable[str]
    ) -> EngineContainer:
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
            self._lost_a_port = is_port_lost(error)
            raise BrokerStartError(f"the Docker engine could not {what} of a cluster: {error}") from error


def _shell(command: Command) -> list[str]:
    """Return the command line of the shell, which `exec`s the Java machine so that it gets the signals."""
    java = ["java", f"-Xmx{command.heap}", f"-XX:MaxDirectMemorySize={command.heap}", *JAVA_OPTIONS, *command.options]
    conf = [str(_CONF)] if command.settings is not None else []
    return [
        "bash",
        "-c",
        "exec " + shlex.join([*java, "-cp", f"{_HOME}/lib/*", command.main, *command.arguments, *conf]),
    ]
