"""Java programs from the broker's jars as guarded child processes that start fast and log to a file.

A guard ends a program when the process that started it has ended. Its directory has a guard, too, because a killed
program that is to be restarted has none. Java maps a class archive (AppCDS) instead of loading thousands of classes:
measured with Java 17 on two cores, ready in 3.0 s instead of 4.8 s. An archive is bound to its Java and jars; Java
ignores an archive that does not match.
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
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from . import guard
from .jars import ensure_jars, find_java
from .profiles import choose_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def start_guard(
    *arguments: str,
    python: Sequence[str] = ("-I", "-S"),
    log: IO[bytes] | int = subprocess.DEVNULL,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a guard of this process in the background; `guard.py` describes the arguments."""
    command = [sys.executable, *python, guard.__file__, str(os.getpid()), *arguments]
    null = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=null, stdout=log, stderr=log, cwd=cwd, env=env, start_new_session=True)


class ScratchDirectory:
    """New temporary directory with a guard."""

    def __init__(self, prefix: str = "pulsar-ext-") -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            self._guard = start_guard("directory", str(self.path))
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Remove it with its content, which no running program may use; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._guard.kill()
        self._guard.wait()


def archive_path(java: Path, jars: Path) -> Path:
    """Return the path of the class archive for a Java and a directory of jars, whether it exists or not."""
    status = java.resolve().stat()
    identity = f"{java.resolve()} {status.st_size} {status.st_mtime_ns}"
    return jars / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


_KILL_SECONDS: Final = 10.0


class GuardedProgram:
    """Program that can be started and ended any number of times; all its runs log to one file."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_at = 0

    @property
    def pid(self) -> int | None:
        """Id of its process group; None if it is not running."""
        return self._process.pid if self._process is not None and self.is_running() else None

    def is_running(self) -> bool:
        """Return True if the process is alive."""
        return self._process is not None and self._process.poll() is None

    def log_offset(self) -> int:
        """Return the size of the log in bytes."""
        return self._log.stat().st_size if self._log.is_file() else 0

    def log_text(self, since: int = 0) -> str:
        """Return the log from a byte on, all of it by default."""
        if not self._log.is_file():
            return ""
        with self._log.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def has_logged(self, text: str) -> bool:
        """Return True if it has logged a text since its last start."""
        return text in self.log_text(self._begun_at)

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it without waiting for it."""
        self._begun_at = self.log_offset()
        with self._log.open("ab") as log:
            self._process = start_guard("program", *command, log=log, cwd=self._directory, env=environment)

    def finish(self, seconds: float) -> int | None:
        """Wait for its end; return its exit status, or None if it still runs after `seconds`."""
        if self._process is None:
            return None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def halt(self, seconds: float = 20.0) -> None:
        """Stop it cleanly, or with SIGKILL after `seconds`; do nothing if it is not running."""
        if self._process is not None and self.is_running():
            self._process.terminate()
            self.finish(seconds)
        self.kill()

    def kill(self) -> None:
        """Kill it with SIGKILL; do nothing if it is not running."""
        if self._process is None:
            return
        if self.is_running():
            self._process.send_signal(signal.SIGUSR1)
            if self.finish(_KILL_SECONDS) is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._process = None


# Without a setting a bookie listens on every interface.
LOOPBACK: Final = "lo0" if sys.platform == "darwin" else "lo"

_OPENED: Final = (
    "java.base/sun.net",
    "java.management/sun.management",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/java.util.zip",
)
JAVA_OPTIONS: Final = (
    # A test broker lives for seconds or minutes: quick compilation and the simplest collector start it fastest.
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"),
    *(argument for package in _OPENED for argument in ("--add-opens", f"{package}=ALL-UNNAMED")),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
)


class JavaCommand(NamedTuple):
    """Java class to run: its arguments, the heap, which is also the size of the direct memory, and options of Java."""

    main: str
    arguments: Sequence[str]
    heap: str
    options: Sequence[str] = ()

    def line(self, java: Path | str, jars: PurePath | str, *more: str) -> list[str]:
        """Return the command line that runs it from a directory of jars; its own options follow `more`."""
        memory = f"-Xmx{self.heap}", f"-XX:MaxDirectMemorySize={self.heap}"
        options = *memory, *JAVA_OPTIONS, *more, *self.options
        return [str(java), *options, "-cp", f"{jars}/*", self.main, *self.arguments]


class Java(NamedTuple):
    """The `java` program, the broker's jars, the class archive if there is one, and the version."""

    program: Path
    jars: Path
    archive: Path | None
    version: str

    @classmethod
    def find(cls, report: Callable[[str], None] = lambda _: None, version: str | None = None) -> Java:
        """Find a Java that is new enough, and the jars, which are fetched if needed."""
        chosen = choose_version(version)
        program = find_java(chosen)
        jars = ensure_jars(report, chosen)
        archive = archive_path(program, jars)
        return cls(program, jars, archive if archive.is_file() else None, chosen)


UNPACKED: Final = "tmp"
"""Directory of unpacked native libraries, in that of a program."""


class JavaProgram(GuardedProgram):
    """Guarded program of Java classes; its native libraries are unpacked into `UNPACKED`, which is emptied first."""

    def has_lost_a_port(self) -> bool:
        """Return True if it could not start because one of its ports was taken."""
        return self.has_logged("Address already in use")

    def launch(self, java: Java, command: JavaCommand) -> None:
        """Start it without waiting for it."""
        unpacked = self._directory / UNPACKED
        # A killed program leaves 12 MB of unpacked libraries, so they are kept with its other files.
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        archive = [f"-XX:SharedArchiveFile={java.archive}"] if java.archive is not None else []
        self.start(command.line(java.program, java.jars, *archive, f"-Djava.io.tmpdir={unpacked}"))
