"""The broker as a child process, for machines with Java and without a Docker engine.

It has free ports, a data directory, a process group and a log file of its own, and a guard that ends it when the
process that started it is gone, however that ended. Running one makes the class archive of the broker, once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from filelock import FileLock, Timeout

from pulsar_ext.errors import BrokerStartError

from .access import Access
from .broker import Broker
from .identity import Identity
from .jars import cached_jars, find_java
from .java_program import LOOPBACK, Java, JavaProgram, ScratchDirectory, archive_path
from .ports import check_ports, free_port, is_free
from .profiles import Profile, broker_settings, standalone_conf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def make_archive(version: str | None = None) -> Path | None:
    """Return the archive for the Java that would be used, made now if it is missing; None if this Java cannot make one.

    Args:
        version: of the broker; by default that of `choose_version()`.

    Raises:
        InvalidUse: the version does not look like one.
        BrokerStartError: no Java is found, or the broker that it is made with did not start.
    """
    path = archive_path(find_java(), cached_jars(version))
    if path.is_file():
        return path
    with tempfile.TemporaryDirectory(prefix="pulsar-ext-") as scratch:
        fresh = Path(scratch, "classes.jsa")
        # A data directory of its own, because only such a broker is ended in good order, and Java writes at its end.
        broker = PulsarProcess(
            data_dir=Path(scratch, "data"), version=version, java_options=[f"-XX:ArchiveClassesAtExit={fresh}"]
        )
        broker.start().stop()
        if not fresh.is_file():
            return None
        # Copied beside its place and renamed: the scratch may be on another file system.
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(fresh.read_bytes())
        part.replace(path)
    return path


_LAUNCHES: Final = 4
_STATE_FILE: Final = "pulsar-ext.json"
_NAME: Final = "broker"
_UNPACKED: Final = "tmp"
_LOCK: Final = "lock"
_NOT_IN_A_PATH: Final = re.compile(r"[\s\"#<>?\[\\\]^`{|}]")
"""What Pulsar, which has the path of its data in a URI, does not start with."""


class _Ports(NamedTuple):
    broker: int
    admin: int


class PulsarProcess(Broker):
    """A standalone broker in a process of its own; needs Java 17 or newer, and Maven the first time.

    Args:
        profile: a profile or its name.
        settings: more broker settings, by their names in `broker.conf`; they win over the profile's.
        broker_port: where clients connect; a free port by default.
        admin_port: where the admin REST API listens; a free port by default.
        data_dir: keeps data, ports and log across runs; empty or missing the first time. By default a temporary one,
            gone after `stop()`.
        heap: the Java heap, and the same again for direct memory, as in `512m`.
        java_options: more options for the Java machine, after and so above the harness's own.
        start_timeout: seconds from launch to ready before the start counts as failed.
        report: called with short lines of progress when the jars have to be fetched.
        version: of the broker; by default that of `PULSAR_EXT_PULSAR_VERSION`, else the one that this is tested with.
    """

    back_end: ClassVar[str] = "process"

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
        start_timeout: float = 180.0,
        report: Callable[[str], None] = lambda _: None,
        version: str | None = None,
    ) -> None:
        super().__init__(profile, settings=settings, start_timeout=start_timeout, version=version)
        # Refuses bad settings here, where the caller can see which, rather than at the start.
        broker_settings(self._profile, settings=self._settings)
        check_ports(broker_port, admin_port)
        self._wanted = (broker_port, admin_port)
        self._data_dir = Path(data_dir).expanduser().absolute() if data_dir is not None else None
        self._heap = heap
        self._java_options = tuple(java_options)
        self._report = report
        self._home: Path | None = None
        self._scratch: ScratchDirectory | None = None
        self._lock: FileLock | None = None
        self._ports: _Ports | None = None
        self._identity: Identity | None = None
        self._conf: dict[str, str] = {}
        self._program: JavaProgram | None = None
        self._launches = 0
        self._is_fresh = True

    @property
    def service_url(self) -> str:
        """The URL for clients, `pulsar://localhost:port`, or `pulsar+ssl://…` where the profile has TLS."""
        return f"pulsar{'+ssl' if self._profile.tls else ''}://localhost:{self._known_ports().broker}"

    @property
    def admin_url(self) -> str:
        """The URL of the admin REST API, `http://localhost:port`, or `https://…`."""
        return f"http{'s' if self._profile.tls else ''}://localhost:{self._known_ports().admin}"

    @property
    def access(self) -> Access:
        """What a client needs besides the URLs; nothing before the start."""
        if self._identity is None or self._home is None:
            return Access()
        return self._identity.access(self._home)

    @property
    def data_dir(self) -> Path | None:
        """Where data, settings and log are now; None before the start and after the end of a temporary one."""
        return self._home

    @property
    def pid(self) -> int | None:
        """The id of the process group that the broker runs in, None when it does not run."""
        return self._program.pid if self._program is not None else None

    @property
    def client_settings(self) -> dict[str, str]:
        """The settings by which this broker itself connects to brokers, `brokerClient…`: paths of files, no secrets."""
        return {name: value for name, value in self._conf.items() if name.startswith("brokerClient")}

    def is_running(self) -> bool:
        """Return whether the process is alive now."""
        return self._program is not None and self._program.is_running()

    def log_offset(self) -> int:
        """Return the size of the log in bytes."""
        return self._program.log_offset() if self._program is not None else 0

    def log_text(self, since: int = 0) -> str:
        """Return the log from that byte on, all of it by default."""
        return self._program.log_text(since) if self._program is not None else ""

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
        self._launches += 1
        self._program.launch(
            java,
            "org.apache.pulsar.PulsarStandaloneStarter",
            ["--config", str(conf), "-nss", "-nfw"],
            unpacked=home / _UNPACKED,
            heap=self._heap,
            options=self._java_options,
        )

    def _check_alive(self) -> None:
        super()._check_alive()
        # With its admin port taken, Pulsar goes on without one, and would be waited for in vain.
        if self._has_lost_a_port():
            ports = self._known_ports()
            raise self._start_error(f"another program took port {ports.broker} or {ports.admin} while it was starting")

    def _has_lost_a_port(self) -> bool:
        return self._program is not None and self._program.has_lost_a_port()

    def _may_launch_again(self) -> bool:
        # Ports that the caller gave, or that data is tied to, cannot be exchanged.
        fixed = any(self._wanted) or not self._is_fresh
        if not self._has_lost_a_port() or fixed or self._home is None or self._launches >= _LAUNCHES:
            return False
        self._kill()
        shutil.rmtree(self._home / "data", ignore_errors=True)
        (self._home / _STATE_FILE).unlink(missing_ok=True)
        self._ports = None
        return True

    def _halt(self) -> None:
        # Data that is thrown away needs no good order.
        if self._data_dir is not None and self._program is not None:
            self._program.halt()
        self._kill()

    def _kill(self) -> None:
        if self._program is not None:
            self._program.kill()

    def _discard(self) -> None:
        if self._lock is not None and self._data_dir is not None:  # no other broker has the data directory
            shutil.rmtree(self._data_dir / _UNPACKED, ignore_errors=True)
            self._lock.release()
            self._lock = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = self._home = self._ports = self._program = None
        if self._identity is not None:
            self._identity.close()
            self._identity = None
        self._launches = 0

    def _take_home(self) -> Path:
        if self._data_dir is None:
            self._scratch = self._scratch or ScratchDirectory()
            self._home = self._scratch.path
            _refuse_path(self._home, "set TMPDIR to another directory")
            return self._home
        _refuse_path(self._data_dir, "use another directory")
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            _refuse_what_is_not_ours(self._data_dir)
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

    def _take_ports(self, home: Path) -> _Ports:
        state = self._read_state(home)
        taken: set[int] = set()
        ports = []
        for name, wanted in zip(_Ports._fields, self._wanted, strict=True):
            fixed = wanted or (self._ports._asdict().get(name) if self._ports else None) or state.get(name)
            if fixed is not None and (not is_free(fixed) or fixed in taken):
                raise BrokerStartError(f"port {fixed} for the {name} is in use; end what uses it, or choose another")
            ports.append(fixed or free_port(taken))
            taken.add(ports[-1])
        self._ports = _Ports(*ports)
        # Clients of a broker that is killed and restarted come back to the URL they know.
        state = {"version": self.version, **self._ports._asdict()}
        (home / _STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
        return self._ports

    def _read_state(self, home: Path) -> dict[str, Any]:
        path = home / _STATE_FILE
        if not path.exists():
            return {}
        try:
            state = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise BrokerStartError(f"{path} is damaged ({error}): use an empty data directory") from error
        if state.get("version") != self.version:
            raise BrokerStartError(
                f"{home} holds the data of Pulsar {state.get('version')}, not {self.version}: use an empty directory, "
                "or ask for that version"
            )
        return state

    def _known_ports(self) -> _Ports:
        if self._ports is None:
            raise BrokerStartError("the broker has no address before it is started")
        return self._ports


def _refuse_path(directory: Path, advice: str) -> None:
    """Raise if Pulsar would not start in a directory because of its path."""
    if found := _NOT_IN_A_PATH.search(str(directory)):
        raise BrokerStartError(f"Pulsar cannot have its data in {directory}, for the character {found[0]!r}: {advice}")


def _refuse_what_is_not_ours(directory: Path) -> None:
    """Raise if a directory has files and no broker's state: what is called as a broker's files would be lost."""
    if (directory / _STATE_FILE).exists():
        return
    found = sorted(path.name for path in directory.iterdir() if path.name != _LOCK and not path.name.startswith("."))
    if found:
        raise BrokerStartError(
            f"the data directory {directory} has files that are no broker's, such as {found[0]!r}: use an empty one, "
            "or one of a broker before"
        )
