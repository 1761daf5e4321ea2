"""The pytest plugin: a real broker for tests, started only when a test uses it.

Every pytest run of a project that has pulsar_ext installed loads it, so it imports nothing of the harness until a
fixture is used. The docstring of each fixture describes its value; `pytest --fixtures` shows them.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from .rpc import PoolServer, Source, Ticket
    from .shared import SharedBroker

pytest_plugins = ["pulsar_ext.testing.fixtures"]
_LOG_LINES = 400
BROKER_LOGS = ("warn", "all", "none")

TICKET = "pulsar_ext_ticket"
_LEVEL = re.compile(r"\d{4}-\d\d-\d\dT\S+ (?:- |\[.*?\] )?([A-Z]+)\b")


class Run:
    """State of one pytest process about the run's brokers; loads nothing of the harness until a test uses one."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._source: Source | None = None
        self._lock = threading.Lock()
        self._server: PoolServer | None = None
        self.lines: list[str] = []
        self.brokers: dict[str, SharedBroker] = {}
        self.log_starts: dict[str, int] = {}

    def option(self, name: str) -> str | None:
        """Return an option of the command line, else of the environment, else None."""
        value: str | None = self._config.getoption(f"pulsar_{name}")
        return value or _variable(name.upper()) or None

    @property
    def source(self) -> Source:
        """Source of this process's brokers."""
        # Under xdist several workers ask at the same time.
        with self._lock:
            if self._source is None:
                self._source = self._make_source()
            return self._source

    def _make_source(self) -> Source:
        from .shared import Existing, Pool  # noqa: PLC0415  # loaded on use

        ticket = getattr(self._config, "workerinput", {}).get(TICKET)
        if ticket is not None:
            from .rpc import PoolClient  # noqa: PLC0415  # loaded on use

            return PoolClient(ticket)
        url, admin_url, version = self.option("url"), self.option("admin_url"), self.option("pulsar_version")
        if url is None:
            return Pool(self.option("backend"), self.lines.append, version)
        return Existing(url, admin_url or usual_admin_url(url), _variable("TOKEN"), version)

    def ticket(self) -> Ticket:
        """Serve other processes, in the controller of xdist, and return their connection data."""
        if self._server is None:
            from .rpc import PoolServer  # noqa: PLC0415  # only under xdist

            self._server = PoolServer(lambda: self.source)
        return self._server.ticket

    def close(self) -> None:
        """Stop the brokers that this process owns."""
        if self._server is not None:
            self._server.close()
        close = getattr(self._source, "close", None)
        if close is not None:
            close()


RUN = pytest.StashKey[Run]()

_SHARED = ("URL", "ADMIN_URL", "TOKEN")
"""Variables for the broker's address and token, which clients and commands read, too."""


def variable_of(option: str) -> str:
    """Return the name of an option's environment variable."""
    return f"PULSAR_{option.upper()}" if option.upper() in _SHARED else f"PULSAR_EXT_{option.upper()}"


def _variable(name: str) -> str | None:
    return os.environ.get(variable_of(name)) or os.environ.get(f"PULSAR_EXT_{name}")


def usual_admin_url(service_url: str) -> str:
    """Return the usual URL of the admin REST API on a broker's host."""
    from urllib.parse import urlsplit  # noqa: PLC0415  # loaded on use

    from pulsar_ext.errors import InvalidUse  # noqa: PLC0415  # loaded on use

    parts = urlsplit(service_url)
    if not parts.hostname or parts.scheme != "pulsar":
        raise InvalidUse(
            f"--pulsar-url={service_url} is not pulsar://host:port; pass that, or --pulsar-admin-url as well"
        )
    return f"http://{parts.hostname}:8080"


def log_lines(lines: list[str], level: str) -> list[str]:
    """Return all lines of a broker's log, or each warning and error with the lines that belong to it."""
    if level == "all":
        return lines
    shown, is_shown = [], False
    for line in lines:
        found = _LEVEL.match(line)  # None for a line of a stack trace
        is_shown = is_shown if found is None else found[1] in {"WARN", "ERROR", "FATAL"}
        if is_shown:
            shown.append(line)
    return shown


@contextlib.contextmanager
def reason_only() -> Iterator[None]:
    """Fail a test without a broker with the reason only, instead of a stack trace of the harness."""
    from pulsar_ext.errors import BrokerStartError, InvalidUse, MissingExtra  # noqa: PLC0415  # loaded on use

    try:
        with MissingExtra.named("testing", "The pytest plugin"):
            yield
    except (BrokerStartError, InvalidUse) as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


class _WorkerController(Protocol):
    """xdist's, which has no types."""

    config: pytest.Config
    workerinput: dict[str, object]


_OPTIONS = {
    "backend": "back end of a broker: a container or a process; auto chooses a container if a Docker engine answers",
    "profile": "configuration of the broker, such as dedup or auth; plain by default",
    "version": "version of Pulsar to start, by default the one that the plugin is tested with",
    "through": "start each profile's broker as a standalone one, with mutual TLS, or as a cluster",
    "broker-log": "lines of the brokers' logs that a failed test shows: warnings and errors, all (default), or none",
    "url": "use the broker at this URL instead of starting one; with a token in PULSAR_TOKEN",
    "admin-url": "the admin REST API of that broker, by default port 8080 of the same host",
}
_CHOICES = {
    "backend": ("auto", "docker", "process"),
    "through": ("standalone", "mtls", "cluster"),
    "broker-log": BROKER_LOGS,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; each can also be set by an environment variable."""
    group = parser.getgroup("pulsar", "a real Pulsar broker for tests (pulsar_ext)")
    for name, about in _OPTIONS.items():
        option = "pulsar_version" if name == "version" else name.replace("-", "_")
        group.addoption(
            f"--pulsar-{name}",
            dest=f"pulsar_{option}",
            help=f"{about} (variable {variable_of(option)})",
            **({"choices": _CHOICES[name]} if name in _CHOICES else {}),
        )


def pytest_configure(config: pytest.Config) -> None:
    """Check the options before any test runs."""
    run = config.stash[RUN] = Run(config)
    if run.option("broker_log") not in (None, *BROKER_LOGS):
        raise pytest.UsageError(
            f"PULSAR_EXT_BROKER_LOG must be one of {', '.join(BROKER_LOGS)}, got {run.option('broker_log')!r}"
        )
    profile, version = run.option("profile"), run.option("pulsar_version")
    if profile is not None or version is not None:
        from pulsar_ext.errors import InvalidUse  # noqa: PLC0415  # loaded on use

        from .profiles import choose_version, get_profile  # noqa: PLC0415  # loaded on use

        try:
            get_profile(profile or "plain")
            choose_version(version)
        except InvalidUse as error:
            raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: _WorkerController) -> None:
    """Pass an xdist worker the address of the controller's brokers, which outlive the workers."""
    node.workerinput[TICKET] = node.config.stash[RUN].ticket()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the brokers of the run."""
    run = config.stash.get(RUN, None)
    if run is not None:
        run.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the chosen back end, the reason, and the brokers of the run."""
    run = config.stash[RUN]
    if run.lines:
        terminalreporter.section("pulsar")
        for line in run.lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Store the ends of the brokers' logs at the start of a test."""
    run = item.config.stash[RUN]
    if run.brokers and "pulsar_broker_factory" in getattr(item, "fixturenames", ()):
        run.log_starts = {key: broker.log_offset() for key, broker in run.brokers.items()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the brokers' logs during a failed test to its report."""
    report = yield
    run = item.config.stash[RUN]
    if report.failed and "pulsar_broker_factory" in getattr(item, "fixturenames", ()):
        level = run.option("broker_log") or "all"
        for key, broker in run.brokers.items() if level != "none" else ():
            lines = log_lines(broker.log_text(run.log_starts.get(key, 0)).splitlines(), level)
            if lines:
                omitted = [f"({len(lines) - _LOG_LINES} lines before these)"] if len(lines) > _LOG_LINES else []
                text = "\n".join([*omitted, *lines[-_LOG_LINES:]])
                report.sections.append((f"Pulsar broker log, profile {broker.profile.name}", text))
    return report
