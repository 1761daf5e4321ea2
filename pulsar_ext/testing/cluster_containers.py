"""Parts of a test cluster as containers in their own network.

ZooKeeper, the bookies and other containers of the network have names. The brokers share the loopback and the ports of
an additional container, the gate, as the containers of a pod do. So `127.0.0.1:port` is the same broker for this
machine and for the other brokers, as redirects of the admin REST API and unloads with a destination require. The
proxies between brokers and ZooKeeper run in this process, on this machine's address in the network.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import tarfile
import uuid
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from docker.errors import DockerException, NotFound  # type: ignore[import-not-found]  # mypy sees docker/
from requests.exceptions import RequestException

from pulsar_ext.errors import BrokerStartError

from .cluster_conf import HOST, SETUP, ZOOKEEPER, Addresses, Layout
from .cluster_runtime import Command, Runtime
from .container import OWNER_LABEL, ContainerProgram, EngineContainer, guard_containers, is_port_lost
from .image import choose_image, connect_engine, start_command
from .java_program import JAVA_OPTIONS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator, Mapping

_GATE: Final = "gate"
_HOME: Final = PurePosixPath("/pulsar")
_CONF: Final = _HOME / "conf" / "part.conf"
_SECRETS: Final = _HOME / "secrets"
_USER: Final = 10_000


class ContainerRuntime(Runtime):
    """Runtime with a container for each part; a guard removes them when the process that started them has ended."""

    has_detours = False
    secrets = _SECRETS

    def __init__(self, report: Callable[[str], None], version: str) -> None:
        self._image = choose_image(version=version, report=report)
        start_command(self._image, report=report)  # pulls an image that was named
        self._engine = connect_engine().client
        super().__init__(version)
        self._name = self.network = f"pulsar-ext-{uuid.uuid4().hex[:12]}"
        self._guard: subprocess.Popen[bytes] | None = None
        self._parts: dict[str, ContainerProgram] = {}
        self._files: dict[str, bytes] = {}
        self._addresses: Addresses | None = None
        self._lost_a_port = False

    def open(self, addresses: Addresses, files: Mapping[str, bytes]) -> None:
        """Create the network, and the gate that publishes the ports of all brokers on this machine's loopback."""
        containers = [self._container(name) for name in (*addresses.parts, SETUP, _GATE)]
        self._guard = guard_containers(containers, self.home, self._name)
        self._addresses, self._files = addresses, {f"{_SECRETS}/{name}": content for name, content in files.items()}
        self._parts = {name: ContainerProgram() for name in (*addresses.parts, SETUP)}
        with self._engine_errors("create a network"):
            network = self._engine.networks.create(self._name, driver="bridge", labels=_labels())
            network.reload()
            gateway = network.attrs["IPAM"]["Config"][0]["Gateway"]
            ports = [port for one in addresses.brokers.values() for port in (one.service, one.admin, one.proxied)]
            gate = self._create(_GATE, ["sleep", "infinity"], ports, aliases=addresses.brokers)
            gate.start()
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
                ports = [self._addresses.zookeeper] if name == ZOOKEEPER and self._addresses is not None else []
                part.container = self._create(name, _shell(command), ports, aliases=[name])
                files = dict(self._files)
                if command.settings is not None:
                    files[str(_CONF)] = command.settings.encode()
                part.container.put_archive("/", _archive(files))
            part.start()

    def lost_a_port(self) -> bool:
        """Return True if a port was taken by another program."""
        return self._lost_a_port

    def close(self) -> None:
        """Remove all containers with their data, and the network; a second call does nothing."""
        if self._guard is not None:
            for name in (*self._parts, _GATE):
                with contextlib.suppress(NotFound):
                    self._engine.containers.get(self._container(name)).remove(force=True, v=True)
            with contextlib.suppress(NotFound):
                self._engine.networks.get(self._name).remove()
            self._guard.terminate()
            self._guard.wait()
            self._guard = None
        self._engine.close()
        super().close()

    def _container(self, name: str) -> str:
        return f"{self._name}-{name}"

    def _create(self, name: str, command: list[str], ports: Iterable[int], aliases: Iterable[str]) -> EngineContainer:
        """Create a container: a broker's in the network of the gate, any other one with its own address."""
        if self._addresses is not None and name in self._addresses.brokers:
            options: dict[str, object] = {"network_mode": f"container:{self._container(_GATE)}"}
        else:
            endpoint = self._engine.api.create_endpoint_config(aliases=list(aliases))
            options = {"network": self._name, "networking_config": {self._name: endpoint}}
            # The port is the same inside, so that brokers and this machine use the same address.
            options["ports"] = {f"{port}/tcp": (HOST, port) for port in ports}
        # The image's health check is for a standalone broker.
        options |= {"healthcheck": {"test": ["NONE"]}, "labels": _labels(), "working_dir": str(_HOME)}
        made: EngineContainer = self._engine.containers.create(
            self._image, command, name=self._container(name), **options
        )
        return made

    @contextlib.contextmanager
    def _engine_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DockerException, RequestException) as error:
            self._lost_a_port = is_port_lost(error)
            raise BrokerStartError(f"the Docker engine could not {what} of a cluster: {error}") from error


def _labels() -> dict[str, str]:
    return {OWNER_LABEL: str(os.getpid())}


def _shell(command: Command) -> list[str]:
    """Return the command line of the shell, which `exec`s the Java machine so that it gets the signals."""
    java = ["java", f"-Xmx{command.heap}", f"-XX:MaxDirectMemorySize={command.heap}", *JAVA_OPTIONS, *command.options]
    conf = [str(_CONF)] if command.settings is not None else []
    return [
        "bash",
        "-c",
        "exec " + shlex.join([*java, "-cp", f"{_HOME}/lib/*", command.main, *command.arguments, *conf]),
    ]


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of files by their absolute paths, readable by the image's user only."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.uid = len(content), 0o600, _USER
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
