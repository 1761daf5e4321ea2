"""Broker as a child process, for machines with Java and without a Docker engine.

It has its own free ports, data directory, process group and log file, and a guard that ends it when the process that
started it has ended. The first run creates the broker's class archive.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from filelock import FileLock, Timeout

from pulsar_ext.errors import BrokerStartError

from .broker import START_SECONDS, Ports, Standalone
from .identity import Identity
from .jars import cached_jars, find_java
from .java_program import LOOPBACK, UNPACKED, Java, JavaCommand, JavaProgram, ScratchDirectory, archive_path
from .ports import free_port, is_free
from .profiles import Profile, broker_settings, choose_version, standalone_conf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def make_archive(version: str | None = None) -> Path | None:
    """Return the class archive for the Java in use, created if it is missing; None if this Java does not support it."""
    path = archive_path(find_java(choose_version(version)), cached_jars(version))
    if path.is_file():
        return path
    with tempfile.TemporaryDirectory(prefix="pulsar-ext-") as scratch:
        fresh = Path(scratch, "classes.jsa")
        # With a data directory the broker is stopped cleanly, and Java writes the archive at its exit.
        broker = _Archiving(
            data_dir=Path(scratch, "data"), version=version, java_options=[f"-XX:ArchiveClassesAtExit={fresh}"]
        )
        broker.start().stop()
        if not fresh.is_file():
            return None
        # Copied next to its final path and renamed, because the scratch directory may be on another file system.
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(fresh.read_bytes())
        part.replace(path)
    return path


_STATE_FILE: Final = "pulsar-ext.json"
_NAME: Final = "broker"
_LOCK: Final = "lock"
_NOT_IN_A_PATH: Final = re.compile(r"[\s\"#<>?\[\\\]^`{|}]")
"""Characters in a path with which Pulsar does not start, because it puts the path into a URI."""


class PulsarProcess(Standalone):
    """Standalone broker in its own process; needs Java 17 or newer, from Pulsar 5 on 21, and Maven the first time.

    Args:
        profile: a profile or its name.
        settings: see `Broker`.
        broker_port: port for clients; a free one by default.
        admin_port: port of the admin REST API; a free one by default.
        data_dir: directory that keeps data, ports and log across runs; empty or missing the first time. By default a
            temporary one, removed by `stop()`.
        heap: size of the Java heap, and of the direct memory, such as `512m`.
        java_options: more options for the Java machine; they take precedence over the harness's.
        start_timeout: see `Broker`.
        report: called with short lines of progress if the jars are fetched.
        version: see `Broker`.
    """

    back_end: ClassVar[str] = "process"
    _halt_seconds: ClassVar[float] = 20.0

    def __init__(
        self,
        profile: str | Profile = "plain",
        *,
        settings: Mapping[str, object] | None = None,
        broker_port: int | None = None,
        admin_port: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        heap: str = "512m",
        java_options: Sequence[str] = (),
        start_timeout: float = START_SECONDS,
        report: Callable[[str], None] = lambda _: None,
        version: str | None = None,
    ) -> None:
        ports = broker_port, admin_port
        super().__init__(profile, settings, start_timeout, version, ports, heap, report)
        self._data_dir = Path(data_dir).expanduser().absolute() if data_dir is not None else None
        self._java_options = tuple(java_options)
        self._scratch: ScratchDirectory | None = None
        self._lock: FileLock | None = None
        self._conf: dict[str, str] = {}
        self._program: JavaProgram | None = None
        self._is_fresh = True

    @property
    def data_dir(self) -> Path | None:
        """Directory of data, settings and log; None before the start and after the end of a temporary one."""
        return self._home

    @property
    def pid(self) -> int | None:
        """Id of the broker's process group; None if it is not running."""
        return self._program.pid if self._program is not None else None

    @property
    def client_settings(self) -> dict[str, str]:
        """Settings with which this broker connects to brokers, `brokerClient…`: paths of files, no secrets."""
        return {name: value for name, value in self._conf.items() if name.startswith("brokerClient")}

    def _launch(self) -> None:
        java = Java.find(self._report, self.version)
        home = self._take_home()
        self._is_fresh = not (home / _STATE_FILE).exists()
        ports = self._take_ports(home)
        settings = broker_settings(
            self._profile,
            broker_port=ports.broker,
            admin_port=ports.admin,
            settings={"listeningInterface": LOOPBACK, **self._settings},
        )
        self._identity = self._identity or Identity.load(self._profile, home)
        self._identity.write(home)
        settings |= self._identity.settings(home)
        self._conf = settings
        conf = home / "standalone.conf"
        conf.write_text(standalone_conf(settings), encoding="utf-8")
        if self._program is None:
            self._program = JavaProgram(home, _NAME)
        arguments = ["--config", str(conf), "-nss", "-nfw"]
        main = "org.apache.pulsar.PulsarStandaloneStarter"
        self._program.launch(java, JavaCommand(main, arguments, self._heap, self._java_options))

    def _check_alive(self) -> None:
        # Pulsar runs on without an admin port that is taken, and would never become ready.
        if self._program is not None and self._home is not None and self._program.has_lost_a_port():
            ports = self._known_ports()
            # Ports that the caller passed, or that belong to existing data, cannot be changed.
            replaceable = self._is_fresh and not any(self._requested_ports)
            if replaceable:
                self._kill()
                shutil.rmtree(self._home / "data", ignore_errors=True)
                (self._home / _STATE_FILE).unlink(missing_ok=True)
                self._ports = None
            reason = f"another program took port {ports.broker} or {ports.admin} during the start"
            raise self._start_error(reason, lost_port=replaceable)
        super()._check_alive()

    def _halt(self) -> None:
        # Temporary data needs no clean stop.
        if self._data_dir is not None and self._program is not None:
            self._program.halt(self._halt_seconds)
        self._kill()

    def _discard(self) -> None:
        if self._lock is not None and self._data_dir is not None:  # this broker holds the data directory
            shutil.rmtree(self._data_dir / UNPACKED, ignore_errors=True)
            self._lock.release()
            self._lock = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = self._home = self._ports = self._program = None
        super()._discard()

    def _take_home(self) -> Path:
        if self._data_dir is None:
            self._scratch = self._scratch or ScratchDirectory()
            self._home = self._scratch.path
            _check_path(self._home, "set TMPDIR to another directory")
            return self._home
        _check_path(self._data_dir, "use another directory")
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            _check_content(self._data_dir)
            if self._lock is None:
                lock = FileLock(self._data_dir / _LOCK)
                lock.acquire(timeout=0)
                self._lock = lock
        except Timeout:
            raise BrokerStartError(f"the data directory {self._data_dir} is in use by another broker") from None
        except OSError as error:
            raise BrokerStartError(f"the data directory {self._data_dir} cannot be used: {error}") from error
        self._home = self._data_dir
        return self._home

    def _take_ports(self, home: Path) -> Ports:
        state = self._read_state(home)
        taken: set[int] = set()
        ports = []
        for name, requested in zip(Ports._fields, self._requested_ports, strict=True):
            fixed = requested or state.get(name)
            if fixed is not None and (not is_free(fixed) or fixed in taken):
                raise BrokerStartError(
                    f"port {fixed} for the {name} is in use; stop the other program, or choose another port"
                )
            ports.append(fixed or free_port(taken))
            taken.add(ports[-1])
        self._ports = Ports(*ports)
        # Clients of a broker that is killed and restarted reconnect to the same URL.
        stored = {"version": self.version, **self._ports._asdict()}
        (home / _STATE_FILE).write_text(json.dumps(stored), encoding="utf-8")
        return self._ports

    def _read_state(self, home: Path) -> dict[str, int]:
        """Return the ports of an earlier run in the directory, if there was one."""
        path = home / _STATE_FILE
        if not path.exists():
            return {}
        try:
            state = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise BrokerStartError(f"{path} is damaged ({error}): use an empty data directory") from error
        if (version := state.pop("version", None)) != self.version:
            raise BrokerStartError(
                f"{home} has the data of Pulsar {version}, not of {self.version}: use an empty directory, or request "
                "that version"
            )
        return state


def _check_path(directory: Path, advice: str) -> None:
    """Raise if Pulsar would not start in a directory because of its path."""
    if found := _NOT_IN_A_PATH.search(str(directory)):
        raise BrokerStartError(
            f"Pulsar does not start with its data in {directory}, because of the character {found[0]!r}: {advice}"
        )


def _check_content(directory: Path) -> None:
    """Raise if a directory has files but no broker's state, as files of the same names would be overwritten."""
    if (directory / _STATE_FILE).exists():
        return
    found = sorted(path.name for path in directory.iterdir() if path.name != _LOCK and not path.name.startswith("."))
    if found:
        raise BrokerStartError(
            f"the data directory {directory} has files that are not a broker's, such as {found[0]!r}: use an empty "
            "directory, or one of an earlier broker"
        )


class _Archiving(PulsarProcess):
    """Broker that archives its classes when it is stopped, which takes a busy machine more than 20 s."""

    _halt_seconds = 180.0
