"""A Java program from the broker's jars as a guarded child process that is quick to start, logged to a file.

A guard ends it when the process that started it is gone, however that ended. The directory that it runs in has a guard
too: there is none of a program that was killed and waits to be started again. Java maps a class archive (AppCDS)
instead of loading thousands of classes one by one: measured with Java 17 on two cores, ready in 3.0 s instead of 4.8 s.
An archive is bound to the Java and the jars it was made with; Java itself ignores one that does not fit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from . import guard
from .jars import ensure_jars, find_java
from .profiles import choose_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class ScratchDirectory:
    """A new temporary directory under a guard.

    Args:
        prefix: what its name begins with.
    """

    def __init__(self, prefix: str = "pulsar-ext-") -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), "directory", str(self.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Remove it with all that is in it; nothing that runs may use it any more. A second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._guard.kill()
        self._guard.wait()


def archive_path(java: Path, jars: Path) -> Path:
    """Return where the archive for that Java and that directory of jars is kept, whether it was made or not."""
    status = java.resolve().stat()
    identity = f"{java.resolve()} {status.st_size} {status.st_mtime_ns}"
    return jars / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def find_archive(java: Path, jars: Path) -> Path | None:
    """Return the archive for that Java and these jars, or None if it was not made."""
    path = archive_path(java, jars)
    return path if path.is_file() else None


_HALT_SECONDS: Final = 20.0
_KILL_SECONDS: Final = 10.0


class GuardedProgram:
    """One program, started and ended any number of times; all its runs log to one file.

    Args:
        directory: where it runs; must exist.
        name: names its log there, `name.log`.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_at = 0

    @property
    def pid(self) -> int | None:
        """The id of the process group that it runs in, None when it does not run."""
        return self._process.pid if self._process is not None and self.is_running() else None

    def is_running(self) -> bool:
        """Return whether the process is alive now."""
        return self._process is not None and self._process.poll() is None

    def log_offset(self) -> int:
        """Return the size of the log in bytes."""
        return self._log.stat().st_size if self._log.is_file() else 0

    def log_text(self, since: int = 0) -> str:
        """Return the log from that byte on, all of it by default."""
        if not self._log.is_file():
            return ""
        with self._log.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def has_said(self, text: str) -> bool:
        """Return whether it has logged that text since it was started the last time."""
        return text in self.log_text(self._begun_at)

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it, and return without waiting for what it does.

        Args:
            command: the program and its arguments.
            environment: its whole environment; by default this process's.
        """
        guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), "program", *command]
        self._begun_at = self.log_offset()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                guarded,
                cwd=self._directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def finish(self, seconds: float) -> int | None:
        """Wait for its end; return its exit status, or None if it still runs after so many seconds."""
        if self._process is None:
            return None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def halt(self) -> None:
        """End it in good order, and by SIGKILL if that takes too long; do nothing when it does not run."""
        if self._process is not None and self.is_running():
            self._process.terminate()
            self.finish(_HALT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it by SIGKILL; do nothing when it does not run."""
        if self._process is None:
            return
        if self.is_running():
            self._process.send_signal(signal.SIGUSR1)
            if self.finish(_KILL_SECONDS) is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._process = None


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
