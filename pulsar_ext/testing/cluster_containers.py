"""The parts of a test cluster as containers, in a network that is made for it.

ZooKeeper, the bookies and whoever else joins the network go by names. The brokers share the loopback and the ports of
one container more, the gate, as the containers of a pod do: `127.0.0.1:port` is the same broker for the machine that
runs the tests and for the other brokers, which a redirect of the admin REST API or an unload by name needs. Between a
broker and ZooKeeper is a proxy in the tests' own process, on the address that this machine has in the network.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import tarfile
import time
import uuid
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from docker.errors import DockerException, NotFound  # type: ignore[import-not-found]  # mypy sees docker/
from requests.exceptions import RequestException

from pulsar_ext.errors import BrokerStartError

from .cluster_conf import HOST, SETUP, ZOOKEEPER, Addresses, Layout
from .cluster_ground import Command, Ground, Part
from .container import log_of, runs, start_guard
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
_HALT_SECONDS: Final = 20
_POLL_SECONDS: Final = 0.1
_OWNER_LABEL: Final = "pulsar-ext.owner-pid"
_PORT_MARKS: Final = ("port is already allocated", "address already in use")


class ContainerGround(Ground):
    """Each part as a container of its own; a guard removes all of them when the process that started them is gone.

    Args:
        report: called with short lines of progress when an image has to be pulled or built.
        version: of all parts.

    Raises:
        BrokerStartError: no Docker engine answers, or no image can be had.
    """

    has_detours = False

    def __init__(self, report: Callable[[str], None], version: str) -> None:
        self._image = choose_image(version=version, report=report)
        start_command(self._image, report=report)  # pulls one that was asked for by name
        self._engine = connect_engine().client
        super().__init__(version)
        self._name = self.network = f"pulsar-ext-{uuid.uuid4().hex[:12]}"
        self._guard: subprocess.Popen[bytes] | None = None
        self._parts: dict[str, _ContainerPart] = {}
        self._files: dict[str, bytes] = {}
        self._addresses: Addresses | None = None
        self._lost_a_port = False
        self.secrets = _SECRETS

    def open(self, addresses: Addresses, files: Mapping[str, bytes]) -> None:
        """Make the network, and the gate that publishes the ports of all brokers on this machine's loopback.

        Raises:
            BrokerStartError: the engine refuses, or this machine has no address in its networks.
        """
        containers = [self._container(name) for name in (*addresses.parts, SETUP, _GATE)]
        self._guard = start_guard(containers, self.home, self._name)
        self._addresses, self._files = addresses, {f"{_SECRETS}/{name}": content for name, content in files.items()}
        self._parts = {name: _ContainerPart() for name in (*addresses.parts, SETUP)}
        with self._told("make a network"):
            network = self._engine.networks.create(self._name, driver="bridge", labels=_labels())
            network.reload()
            gateway = network.attrs["IPAM"]["Config"][0]["Gateway"]
            ports = [port for one in addresses.brokers.values() for port in (one.service, one.admin, one.behind)]
            gate = self._create(_GATE, ["sleep", "infinity"], ports, aliases=addresses.brokers)
            gate.start()
        self.layout = Layout(network=True, stores=gateway)

    def data(self, name: str) -> PurePosixPath:
        """Return where that part's data goes: into a volume, which goes with the container."""
        return _HOME / "data" / name

    def part(self, name: str) -> Part:
        """Return the part of that name."""
        return self._parts[name]

    def launch(self, name: str, command: Command) -> None:
        """Start a part's container, made now if it is the first time, and return without waiting for it.

        Raises:
            BrokerStartError: the engine refuses.
        """
        part = self._parts[name]
        with self._told(f"start {name}"):
            if part.container is None:
                ports = [self._addresses.zookeeper] if name == ZOOKEEPER and self._addresses is not None else []
                part.container = self._create(name, _shell(command), ports, aliases=[name])
                files = dict(self._files)
                if command.settings is not None:
                    files[str(_CONF)] = command.settings.encode()
                part.container.put_archive("/", _archive(files))
            part.start()

    def lost_a_port(self) -> bool:
        """Return whether a port was taken meanwhile."""
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

    def _create(self, name: str, command: list[str], ports: Iterable[int], aliases: Iterable[str]) -> Any:
        """Make a container: a broker's in the gate's place in the network, any other one in a place of its own."""
        if self._addresses is not None and name in self._addresses.brokers:
            place: dict[str, Any] = {"network_mode": f"container:{self._container(_GATE)}"}
        else:
            endpoint = self._engine.api.create_endpoint_config(aliases=list(aliases))
            place = {"network": self._name, "networking_config": {self._name: endpoint}}
            # The same port inside, so that an address is the same for brokers among themselves and for this machine.
            place["ports"] = {f"{port}/tcp": (HOST, port) for port in ports}
        # The image's own health check is about a standalone broker.
        place["healthcheck"] = {"test": ["NONE"]}
        return self._engine.containers.create(
            self._image, command, name=self._container(name), labels=_labels(), working_dir=str(_HOME), **place
        )

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DockerException, RequestException) as error:
            self._lost_a_port = any(mark in str(error) for mark in _PORT_MARKS)
            raise BrokerStartError(f"the Docker engine could not {what} of a cluster: {error}") from error


class _ContainerPart:
    """One part's container, and what is done to it; all its launches log to one place."""

    def __init__(self) -> None:
        self.container: Any = None
        self._launched_at = 0

    @property
    def pid(self) -> int | None:
        """The id of its process on the engine's machine, None when it does not run."""
        return int(self.container.attrs["State"]["Pid"]) if self.is_running() else None

    def start(self) -> None:
        """Start the container, which was made before."""
        self._launched_at = time.time_ns()
        self.container.start()

    def is_running(self) -> bool:
        """Return whether it is alive now."""
        return runs(self.container)

    def log_offset(self) -> int:
        """Return the time in nanoseconds, by which the engine finds lines."""
        return time.time_ns()

    def log_text(self, since: int = 0) -> str:
        """Return its log from that time on, all of it by default."""
        return log_of(self.container, since)

    def has_said(self, text: str) -> bool:
        """Return whether it has logged that text since it was launched the last time."""
        return text in self.log_text(self._launched_at)

    def has_lost_a_port(self) -> bool:
        """Return False: nobody else has ports in a container, and those that are published the engine refuses."""
        return False

    def finish(self, seconds: float) -> int | None:
        """Wait for its end; return its exit status, or None if it still runs after so many seconds."""
        deadline = time.monotonic() + seconds
        while self.is_running():
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_SECONDS)
        return int(self.container.attrs["State"]["ExitCode"]) if self.container is not None else None

    def halt(self) -> None:
        """End it in good order; do nothing when it does not run."""
        if self.is_running():
            self.container.stop(timeout=_HALT_SECONDS)

    def kill(self) -> None:
        """End it by SIGKILL; do nothing when it does not run."""
        if self.is_running():
            self.container.kill()
            self.container.wait()


def _labels() -> dict[str, str]:
    return {_OWNER_LABEL: str(os.getpid())}


def _shell(command: Command) -> list[str]:
    """Give the shell's command line, by which the Java machine takes the shell's place and gets its signals."""
    java = ["java", f"-Xmx{command.heap}", f"-XX:MaxDirectMemorySize={command.heap}", *JAVA_OPTIONS, *command.options]
    conf = [str(_CONF)] if command.settings is not None else []
    return [
        "bash",
        "-c",
        "exec " + shlex.join([*java, "-cp", f"{_HOME}/lib/*", command.main, *command.arguments, *conf]),
    ]


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Pack files, by their absolute paths, for the image's user alone."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.uid = len(content), 0o600, _USER
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
