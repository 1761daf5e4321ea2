"""What one pytest process knows about the brokers of the run; imports nothing until a test asks for a broker."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .rpc import PoolServer
    from .shared import SharedBroker, Source

BROKER_LOGS = ("warn", "all", "none")

TICKET = "pulsar_ext_ticket"
_LEVEL = re.compile(r"\d{4}-\d\d-\d\dT\S+ (?:- |\[.*?\] )?([A-Z]+)\b")


class Run:
    """What one pytest process knows about the brokers of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._source: Source | None = None
        self._lock = threading.Lock()
        self._server: PoolServer | None = None
        self.lines: list[str] = []
        self.brokers: dict[str, SharedBroker] = {}
        self.log_starts: dict[str, int] = {}

    def option(self, name: str) -> str | None:
        """Return an option of the command line, else the environment's, else None."""
        given: str | None = self._config.getoption(f"pulsar_{name}")
        return given or _variable(name.upper()) or None

    @property
    def source(self) -> Source:
        """Where this process gets its brokers from."""
        # Under xdist several workers ask at once.
        with self._lock:
            if self._source is None:
                self._source = self._make_source()
            return self._source

    def _make_source(self) -> Source:
        from .shared import (  # noqa: PLC0415  # only for those who use it
            Existing,
            Pool,
        )

        ticket = getattr(self._config, "workerinput", {}).get(TICKET)
        if ticket is not None:
            from .rpc import PoolClient  # noqa: PLC0415  # likewise

            return PoolClient(ticket)
        url, admin_url, version = self.option("url"), self.option("admin_url"), self.option("pulsar_version")
        if url is None:
            return Pool(self.option("backend"), self.lines.append, version)
        return Existing(url, admin_url or usual_admin_url(url), _variable("TOKEN"), version)

    def ticket(self) -> dict[str, Any]:
        """Let other processes ask for brokers here; called in the controller of xdist."""
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
"""Where a broker is and how to get in: variables that clients and commands read too."""


def _variable(name: str) -> str | None:
    """Read a variable of the environment."""
    shared = os.environ.get(f"PULSAR_{name}") if name in _SHARED else None
    return shared or os.environ.get(f"PULSAR_EXT_{name}")


def usual_admin_url(service_url: str) -> str:
    """Return the usual URL of the admin REST API on a broker's host.

    Raises:
        InvalidUse: the service URL is not that of a broker without TLS.
    """
    from urllib.parse import urlsplit  # noqa: PLC0415  # only for those who use it

    from pulsar_ext.errors import InvalidUse  # noqa: PLC0415  # likewise

    parts = urlsplit(service_url)
    if not parts.hostname or parts.scheme != "pulsar":
        raise InvalidUse(f"--pulsar-url={service_url}: give pulsar://host:port, or --pulsar-admin-url as well")
    return f"http://{parts.hostname}:8080"


def shown_of(lines: list[str], wanted: str) -> list[str]:
    """Return the lines of a broker's log that are wanted: all, or each warning and error with what follows it."""
    if wanted == "all":
        return lines
    shown, is_wanted = [], False
    for line in lines:
        level = _LEVEL.match(line)  # a line of a stack trace has none
        is_wanted = is_wanted if level is None else level[1] in {"WARN", "ERROR", "FATAL"}
        if is_wanted:
            shown.append(line)
    return shown


@contextlib.contextmanager
def told_plainly() -> Iterator[None]:
    """Let a broker that cannot be had fail the test with its reason alone: the harness's own lines would bury it."""
    from pulsar_ext.errors import (  # noqa: PLC0415  # only for those who use it
        BrokerStartError,
        InvalidUse,
        MissingExtra,
    )

    try:
        with MissingExtra.named("testing", "The pytest plugin"):
            yield
    except (BrokerStartError, InvalidUse) as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
