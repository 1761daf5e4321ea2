"""What the parts of a cluster run on: a part is launched and ended by its name, whatever it is.

Here is what both back ends have in common, and processes; containers have a file of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .cluster_conf import SETUP, Addresses, Layout
from .java_program import Java, JavaProgram, ScratchDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path, PurePath


class Command(NamedTuple):
    """What a part is run with.

    Args:
        main: its Java class.
        arguments: what the class is given; the path of its settings comes behind, if it has any.
        settings: the text of its settings.
        heap: the Java heap, and the same again for direct memory, as in `96m`.
        options: more options for the Java machine.
    """

    main: str
    arguments: Sequence[str]
    settings: str | None
    heap: str
    options: Sequence[str]


class Part(Protocol):
    """A part that was launched, or may be; a `JavaProgram` is one."""

    @property
    def pid(self) -> int | None:
        """The id of its process, None when it does not run."""
        ...

    def is_running(self) -> bool:
        """Return whether it is alive now."""
        ...

    def log_offset(self) -> int:
        """Return where its log ends now, as a number for `log_text`."""
        ...

    def log_text(self, since: int = 0) -> str:
        """Return its log from there on, all of it by default."""
        ...

    def has_said(self, text: str) -> bool:
        """Return whether it has logged that text since it was launched the last time."""
        ...

    def has_lost_a_port(self) -> bool:
        """Return whether it could not start because a port of its was taken meanwhile."""
        ...

    def finish(self, seconds: float) -> int | None:
        """Wait for its end; return its exit status, or None if it still runs after so many seconds."""
        ...

    def halt(self) -> None:
        """End it in good order; do nothing when it does not run."""
        ...

    def kill(self) -> None:
        """End it by SIGKILL; do nothing when it does not run."""
        ...


class Ground(ABC):
    """What a cluster's parts run on, and what they see of each other and of their files; `close()` leaves nothing."""

    layout: Layout
    """How the parts reach each other; known when it is open."""

    network: str | None = None
    """The name of the Docker network that the parts have for themselves, if any."""

    secrets: PurePath
    """Where parts find the cluster's secrets."""

    has_detours = True
    """Whether this machine reaches every port of a broker, and not only those that are published."""

    def __init__(self, version: str) -> None:
        self.version = version
        """Of all parts."""
        self._scratch = ScratchDirectory()
        self.home: Path = self._scratch.path
        """Where clients find them, on this machine."""

    @abstractmethod
    def open(self, addresses: Addresses, files: Mapping[str, bytes]) -> None:
        """Make room for the parts of these addresses, and give them these files as their secrets.

        Raises:
            BrokerStartError: there is none.
        """

    @abstractmethod
    def data(self, name: str) -> PurePath:
        """Return where that part's data goes, as it sees it."""

    @abstractmethod
    def part(self, name: str) -> Part:
        """Return the part of that name."""

    @abstractmethod
    def launch(self, name: str, command: Command) -> None:
        """Start a part on the data that it had, if any, and return without waiting for it."""

    @abstractmethod
    def lost_a_port(self) -> bool:
        """Return whether a part could not start because its port was taken meanwhile."""

    @abstractmethod
    def close(self) -> None:
        """End all of them, and remove what they leave behind; a second call does nothing."""
        self._scratch.remove()


class ProcessGround(Ground):
    """Each part as a process of its own, all on the loopback.

    Args:
        report: called with short lines of progress when the jars have to be fetched.
        version: of all parts.

    Raises:
        BrokerStartError: Java or the jars cannot be had.
    """

    def __init__(self, report: Callable[[str], None], version: str) -> None:
        self._java = Java.find(report, version)
        super().__init__(version)
        self._programs: dict[str, JavaProgram] = {}
        self.layout = Layout()
        self.secrets = self.home

    def open(self, addresses: Addresses, files: Mapping[str, bytes]) -> None:  # noqa: ARG002  # they are at home
        """Make a directory for each part."""
        for name in (SETUP, *addresses.parts):
            (self.home / name).mkdir()
            self._programs[name] = JavaProgram(self.home / name, name)

    def data(self, name: str) -> PurePath:
        """Return where that part's data goes."""
        return self.home / name / "data"

    def part(self, name: str) -> Part:
        """Return the part of that name."""
        return self._programs[name]

    def launch(self, name: str, command: Command) -> None:
        """Start a part on the data that it had, if any, and return without waiting for it."""
        conf = []
        if command.settings is not None:
            conf = [str(path := self.home / name / "part.conf")]
            path.write_text(command.settings, encoding="utf-8")
        self._programs[name].launch(
            self._java,
            command.main,
            [*command.arguments, *conf],
            unpacked=self.home / name / "tmp",
            heap=command.heap,
            options=command.options,
        )

    def lost_a_port(self) -> bool:
        """Return whether a part could not start because its port was taken meanwhile."""
        return any(program.has_lost_a_port() for program in self._programs.values())

    def close(self) -> None:
        """End all of them, and remove what they leave behind; a second call does nothing."""
        for program in reversed(self._programs.values()):
            program.kill()
        super().close()
