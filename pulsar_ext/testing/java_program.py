"""A Java program from the broker's jars as a guarded child process that is quick to start."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from .class_archive import find_archive
from .guarded_program import GuardedProgram
from .jars import ensure_jars, find_java
from .versions import choose_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["JAVA_OPTIONS", "LOOPBACK", "Java", "JavaProgram"]

# A bookie listens on every interface unless it is given one.
LOOPBACK: Final = "lo0" if sys.platform == "darwin" else "lo"

JAVA_OPTIONS: Final = (
    # A test broker lives for seconds or minutes: quick compilation and the simplest collector start it fastest.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    *(
        argument
        for package in (
            "java.base/sun.net",
            "java.management/sun.management",
            "java.base/java.nio",
            "java.base/jdk.internal.misc",
            "java.base/java.util.zip",
        )
        for argument in ("--add-opens", f"{package}=ALL-UNNAMED")
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
)


class Java(NamedTuple):
    """What programs are run with: the `java`, the broker's jars, the class archive if one was made, and the version."""

    program: Path
    jars: Path
    archive: Path | None
    version: str

    @classmethod
    def find(cls, report: Callable[[str], None] = lambda _: None, version: str | None = None) -> Java:
        """Find Java and the jars, fetching these where needed.

        Args:
            report: called with short lines of progress when the jars have to be fetched.
            version: of the broker; by default that of `choose_version()`.

        Raises:
            InvalidUse: the version does not look like one.
            BrokerStartError: one of them cannot be had; the message says what to install.
        """
        program = find_java()
        chosen = choose_version(version)
        jars = ensure_jars(report, chosen)
        return cls(program, jars, find_archive(program, jars), chosen)

    def command(self, main: str, heap: str, options: Sequence[str]) -> list[str]:
        """Return the command that runs a class, with that much heap and as much direct memory."""
        archive = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive is not None else []
        return [
            *(str(self.program), f"-Xmx{heap}", f"-XX:MaxDirectMemorySize={heap}", *JAVA_OPTIONS, *archive, *options),
            *("-cp", f"{self.jars}/*", main),
        ]


class JavaProgram(GuardedProgram):
    """A guarded program of Java classes; its libraries unpack what they need into a directory `unpacked`."""

    def has_lost_a_port(self) -> bool:
        """Return whether it could not start because a port of its was taken meanwhile."""
        return self.has_said("Address already in use")

    def launch(
        self, java: Java, main: str, arguments: Sequence[str], *, unpacked: Path, heap: str, options: Sequence[str] = ()
    ) -> None:
        """Start it, and return without waiting for what it does.

        Args:
            java: what to run it with.
            main: its class.
            arguments: what the class is given.
            unpacked: emptied first, and where it unpacks its libraries.
            heap: the Java heap, and the same again for direct memory, as in `512m`.
            options: more options for the Java machine, after and so above the usual ones.
        """
        # What is killed leaves the libraries that it unpacked, 12 MB: where they go with its other files.
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        self.start([*java.command(main, heap, [f"-Djava.io.tmpdir={unpacked}", *options]), *arguments])
