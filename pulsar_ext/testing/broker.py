"""Interface of test brokers of all back ends, and their readiness.

A test can also start and connect to a whole cluster. A back end implements launch, stop and checks of its broker;
start, restart and the wait for readiness are shared. A broker is ready when the default namespace exists, a message was
sent and received through the official client, and the broker is still running.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol, Self

from pulsar_ext.errors import BrokerStartError

from .access import Access, Address
from .ports import check_ports
from .profiles import Profile, broker_settings, choose_version, get_profile, requested_version
from .readiness import default_namespace_exists, reported_version, round_trip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from .access import Detour, Options
    from .identity import Identity


START_SECONDS: Final = 600.0
"""Default timeout of a start, long enough for a busy machine: a process that ends fails at once."""
_LAUNCHES = 4
"""Number of starts until a lost port is an error."""


class Startable(ABC):
    """Resource that runs within a `with` block, or from `start()` to `stop()`."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start all of it and return when it is ready; a second call does nothing.

        Raises:
            BrokerStartError: it did not become ready; nothing is left running, and the message ends with a log.
        """
        for starts_left in reversed(range(0 if self._is_started() else _LAUNCHES)):
            try:
                self._start()
            except BaseException as error:
                self._abandon()
                # A free port was chosen, and another program took it: the next start chooses another one.
                if not (starts_left and isinstance(error, BrokerStartError) and error.details.get("lost_port")):
                    raise
            else:
                break
        return self

    @abstractmethod
    def stop(self) -> None:
        """Stop all of it and remove its files; a second call does nothing."""

    @abstractmethod
    def _is_started(self) -> bool:
        """Return True if there is nothing to start."""

    @abstractmethod
    def _start(self) -> None:
        """Start all of it, and return when it is ready."""

    def _abandon(self) -> None:
        """Clean up after a start that failed."""
        self.stop()


class Reachable(Startable):
    """Broker or cluster that clients connect to."""

    @property
    @abstractmethod
    def _address_(self) -> Address:
        """URLs, access and detours; raises before the start."""

    @property
    def service_url(self) -> str:
        """URL for clients, with all brokers: `pulsar://host:port`, or `pulsar+ssl://…` if the profile has TLS."""
        return self._address_.service_url

    @property
    def admin_url(self) -> str:
        """URL of the first broker's admin REST API, `http://host:port`, or `https://…`."""
        return self._address_.admin_url

    @property
    def access(self) -> Access:
        """The superuser's credentials, and the trusted certificates."""
        return self._address_.access

    @property
    def detours(self) -> Sequence[Detour]:
        """Detours for fault proxies, in any process: `FaultProxy.to(broker.service_url, broker.detours)`."""
        return self._address_.detours

    @abstractmethod
    def is_running(self) -> bool:
        """Return True if all of it is alive."""

    @property
    def token(self) -> str | None:
        """The superuser's token, or None if the broker accepts none."""
        return self.access.token

    def client_options(self, module: ModuleType) -> Options:
        """Return the options of a client: `pulsar_ext.Client(broker.service_url, **broker.client_options(pulsar_ext))`.

        Args:
            module: `pulsar` or `pulsar_ext`, whose authentication is used.
        """
        return self.access.client_options(module)


_POLL_SECONDS = 0.2
_LOG_TAIL_LINES, _LOG_ERRORS = 40, 10
_ERROR = re.compile(r" - ERROR - |^Caused by: |^Exception in ")


class Broker(Reachable):
    """Real Pulsar broker that a test owns: it can be started, killed and restarted, and is removed afterwards.

    Use it as a context manager, or call `start()` and `stop()`. Log offsets are opaque increasing numbers.

    Args:
        profile: a profile or its name.
        settings: more broker settings, by their names in `broker.conf`; they take precedence over the profile's.
        start_timeout: seconds from launch to ready before the start counts as failed; one that ends fails at once.
        version: of the broker; by default that of `PULSAR_EXT_PULSAR_VERSION`, else the tested one.

    Raises:
        InvalidUse: the profile or the version is invalid.
    """

    back_end: ClassVar[str]
    """Back end of the broker, as `--pulsar-backend` names it."""

    def __init__(
        self,
        profile: str | Profile = "plain",
        *,
        settings: Mapping[str, object] | None = None,
        start_timeout: float = START_SECONDS,
        version: str | None = None,
    ) -> None:
        self._profile = get_profile(profile)
        self._settings = dict(settings or {})
        self._start_timeout = start_timeout
        self._requested_version = requested_version(version)
        self._version = choose_version(version)

    def __repr__(self) -> str:
        state = "running" if self.is_running() else "not running"
        return f"<{type(self).__name__} {self._profile.name!r}, {state}>"

    # -- the back end's part -----------------------------------------------------------------------------------------

    @abstractmethod
    def log_offset(self) -> int:
        """Return the current end of the log, as an opaque number for `log_text(since=…)`."""

    @abstractmethod
    def log_text(self, since: int = 0) -> str:
        """Return the log from an offset to its end; all of it by default."""

    @abstractmethod
    def _launch(self) -> None:
        """Start the broker on its existing data and ports, if any, and return without waiting for it."""

    @abstractmethod
    def _halt(self) -> None:
        """Stop it cleanly and keep its data; do nothing if it is not running."""

    @abstractmethod
    def _kill(self) -> None:
        """Kill it with SIGKILL and keep its data; do nothing if it is not running."""

    @abstractmethod
    def _discard(self) -> None:
        """Remove the files of a stopped broker, except those of the caller."""

    # -- the shared part ---------------------------------------------------------------------------------------------

    @property
    def profile(self) -> Profile:
        """Profile of the broker."""
        return self._profile

    @property
    def version(self) -> str:
        """Version that the broker reports; before the start, the version to start."""
        return self._version

    def stop(self) -> None:
        """Stop the broker and remove its files; a second call does nothing."""
        try:
            self._halt()
        finally:
            self._discard()

    def kill(self) -> None:
        """Kill the broker with SIGKILL, as a crash would; its data and ports stay for `restart()`."""
        self._kill()

    def restart(self) -> None:
        """Start the broker again on its data and URLs, after stopping it cleanly if it runs.

        Raises:
            BrokerStartError: it did not become ready; its data is kept.
        """
        self._halt()
        try:
            self._start()
        except BaseException:
            self._kill()
            raise

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log_text().splitlines()[-lines:])

    def describe(self) -> str:
        """Return a line about the broker, without secrets."""
        return (
            f"Pulsar {self.version}, profile {self._profile.name}, back end {self._address_.back_end}: "
            f"{self.service_url} and {self.admin_url}"
        )

    def _is_started(self) -> bool:
        return self.is_running()

    def _abandon(self) -> None:
        self._kill()
        self._discard()

    def _start(self) -> None:
        self._launch()
        deadline = time.monotonic() + self._start_timeout
        while not default_namespace_exists(self.admin_url, self.access):
            self._check_alive()
            if time.monotonic() > deadline:
                raise self._start_error(
                    f"the default namespace did not appear at {self.admin_url} in {self._start_timeout:.0f} s"
                )
            time.sleep(_POLL_SECONDS)
        reported = reported_version(self.admin_url, self.access)
        if self._requested_version is not None and reported not in {None, self._requested_version}:
            raise self._start_error(
                f"version {self._requested_version} was requested, but the broker reports {reported}: omit the "
                "version, or the image"
            )
        self._version = reported or self._version
        failure = round_trip(self.service_url, self.access, timeout=max(deadline - time.monotonic(), 1.0))
        self._check_alive()
        if failure is not None:
            raise self._start_error(f"a first message was not received from {self.service_url}: {failure}")

    def _check_alive(self) -> None:
        if not self.is_running():
            raise self._start_error("the broker exited during its start")

    def _start_error(self, reason: str, **details: object) -> BrokerStartError:
        what = f"no Pulsar {self.version} (profile {self._profile.name}, back end {self.back_end})"
        return start_error(what, reason, self.log_text(), **details)


class Ports(NamedTuple):
    """Ports of a standalone broker on the loopback."""

    broker: int
    admin: int


class _Program(Protocol):
    def is_running(self) -> bool: ...
    def log_offset(self) -> int: ...
    def log_text(self, since: int) -> str: ...
    def kill(self) -> None: ...


class Standalone(Broker):
    """Broker that is one program, whose ports are on the loopback: `PulsarProcess` or `PulsarContainer`."""

    def __init__(
        self,
        profile: str | Profile,
        settings: Mapping[str, object] | None,
        start_timeout: float,
        version: str | None,
        ports: tuple[int | None, int | None],
        heap: str,
        report: Callable[[str], None],
    ) -> None:
        super().__init__(profile, settings=settings, start_timeout=start_timeout, version=version)
        # Raises for bad settings here instead of at the start.
        broker_settings(self._profile, settings=self._settings)
        check_ports(*ports)
        self._requested_ports, self._heap, self._report = ports, heap, report
        self._ports: Ports | None = None
        self._home: Path | None = None
        self._identity: Identity | None = None
        self._program: _Program | None = None

    @property
    def _address_(self) -> Address:
        ports = self._known_ports()
        urls = self._url("pulsar", "localhost", ports.broker), self._url("http", "localhost", ports.admin)
        return Address(*urls, self.back_end, self.version, self.access)

    @property
    def access(self) -> Access:
        """Credentials and trusted certificates of a client; empty before the start."""
        if self._identity is None or self._home is None:
            return Access()
        return self._identity.access(self._home)

    def is_running(self) -> bool:
        """Return True if the program is alive."""
        return self._program is not None and self._program.is_running()

    def log_offset(self) -> int:
        """Return the current end of the log: bytes of a process, nanoseconds of a container."""
        return self._program.log_offset() if self._program is not None else 0

    def log_text(self, since: int = 0) -> str:
        """Return the log from an offset on, all of it by default."""
        return self._program.log_text(since) if self._program is not None else ""

    def _kill(self) -> None:
        if self._program is not None:
            self._program.kill()

    def _discard(self) -> None:
        if self._identity is not None:
            self._identity.close()
            self._identity = None

    def _url(self, scheme: str, host: str, port: int) -> str:
        secured = {"pulsar": "pulsar+ssl", "http": "https"}
        return f"{secured[scheme] if self._profile.tls else scheme}://{host}:{port}"

    def _known_ports(self) -> Ports:
        if self._ports is None:
            raise BrokerStartError("the broker has no address before it is started")
        return self._ports


def start_error(what: str, reason: str, log: str, **details: object) -> BrokerStartError:
    """Return the error with what failed, the reason, and the last errors and the end of the log.

    `lost_port=True` says that another program took a port that was chosen here.
    """
    lines = log.splitlines()
    errors = [line for line in lines[:-_LOG_TAIL_LINES] if _ERROR.search(line)]  # a program may end long after them
    log_tail = "\n".join([*errors[-_LOG_ERRORS:], *lines[-_LOG_TAIL_LINES:]])
    return BrokerStartError(
        f"{what}: {reason}\nthe end of its log:\n{log_tail or '(empty)'}", reason=reason, log_tail=log_tail, **details
    )
