"""Runtimes of a cluster's parts: each part is launched and stopped by its name.

This module has the runtime of processes; containers are in `cluster_containers.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .cluster_conf import LOCAL, SETUP, Addresses
from .java_program import Java, JavaProgram, ScratchDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import PurePath


class Command(NamedTuple):
    """Command of a part: its Java class, and the options of the Java machine."""

    main: str
    arguments: Sequence[str]  # the path of the settings is appended, if there are any
    settings: str | None
    heap: str
    options: Sequence[str]


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
        self._programs = {name: JavaProgram(self.home / name, name) for name in (SETUP, *addresses.parts)}

    def open(self) -> None:
        """Create a directory for each part."""
        for name in self._programs:
            (self.home / name).mkdir()

    def data(self, name: str) -> PurePath:
        """Return the data directory of a part."""
        return self.home / name / "data"

    def part(self, name: str) -> JavaProgram:
        """Return a part by its name."""
        return self._programs[name]

    def launch(self, name: str, command: Command) -> None:
        """Start a part on its existing data, if any, and return without waiting for it."""
        conf = []
        if command.settings is not None:
            conf = [str(path := self.home / name / "part.conf")]
            path.write_text(command.settings, encoding="utf-8")
        self._programs[name].launch(
            self._java,
            command.main,
            [*command.arguments, *conf],
            heap=command.heap,
            options=command.options,
        )

    def lost_a_port(self) -> bool:
        """Return True if a part could not start because its port was taken."""
        return any(program.has_lost_a_port() for program in self._programs.values())

    def close(self) -> None:
        """Stop all parts and remove their files; a second call does nothing."""
        for program in reversed(self._programs.values()):
            program.kill()
        self._scratch.remove()
