"""State of one pytest process about the run's brokers; imports nothing until a test uses a broker."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .rpc import PoolServer, Ticket
    from .shared import SharedBroker, Source

BROKER_LOGS = ("warn", "all", "none")

TICKET = "pulsar_ext_ticket"
_LEVEL = re.compile(r"\d{4}-\d\d-\d\dT\S+ (?:- |\[.*?\] )?([A-Z]+)\b")


class Run:
    """State of one pytest process about the run's brokers."""

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
    """Return an environment variable's value."""
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
