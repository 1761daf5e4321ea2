"""Brokers of one test run: each profile is started once, on first use, and shared by all processes.

A `Pool` owns them. Under xdist it is in the controller, which outlives every worker, and the workers use a local
connection; without xdist it is used directly. Tests get a `SharedBroker`, which cannot be stopped.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, NoReturn, cast

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .access import Access, Address
from .broker import Broker
from .readiness import default_namespace_exists, reported_version
from .start import start_broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from .profiles import Profile
    from .rpc import Source


class Pool:
    """Owner of a run's brokers, one per profile; a failed start is not repeated."""

    def __init__(
        self, backend: str | None = None, report: Callable[[str], None] = lambda _: None, version: str | None = None
    ) -> None:
        self._backend, self._report, self._version = backend, report, version
        self._lock = threading.Lock()
        self._starts: dict[str, Future[Broker]] = {}
        self._closed = False

    def ask(self, name: str, profile: Profile, *arguments: object) -> object:
        """Return an attribute of a profile's broker, or what a method returns, after starting the broker if needed."""
        found = getattr(self._broker(profile), name)
        return found(*arguments) if callable(found) else found

    def close(self) -> None:
        """Stop every broker that was started."""
        with self._lock:
            self._closed = True
        for start in self._starts.values():
            if start.exception() is None:
                start.result().stop()

    def _broker(self, profile: Profile) -> Broker:
        key = repr(
            (profile.name, sorted(profile.settings.items()), profile.authentication, profile.tls, profile.brokers)
        )
        with self._lock:
            if self._closed:
                raise BrokerStartError("the test run is over")
            is_first = key not in self._starts
            start = self._starts.setdefault(key, Future())
        if is_first:
            try:
                broker = start_broker(self._backend, profile, report=self._report, version=self._version)
                self._report(broker.describe())
                start.set_result(broker)
            except (BrokerStartError, InvalidUse) as error:
                start.set_exception(error)
            except BaseException:
                start.set_exception(BrokerStartError("the start of the broker was interrupted"))
                raise
        return start.result()


class Existing:
    """Running broker that does not belong to the run and has a fixed profile."""

    def __init__(self, service_url: str, admin_url: str, token: str | None = None, version: str | None = None) -> None:
        access = Access("token" if token is not None else None, token)
        self._address = Address(service_url, admin_url.rstrip("/"), "existing", "of unknown version", access)
        self._required_version = version

    def ask(self, name: str, profile: Profile, *_: object) -> object:
        """Return its address, after checking that it answers, or if it answers, or an empty log."""
        if name == "_address_":
            return self._checked_address(profile)
        return self._answers() if name == "is_running" else {"log_offset": 0, "log_text": ""}[name]

    def _answers(self) -> bool:
        return default_namespace_exists(self._address.admin_url, self._address.access)

    def _checked_address(self, profile: Profile) -> Address:
        if profile.name != "plain":
            raise BrokerStartError(
                f"the test needs a broker of profile {profile.name!r}, but an existing broker has fixed settings: "
                "run without --pulsar-url"
            )
        if not self._answers():
            raise BrokerStartError(
                f"no broker answers for the namespace public/default at {self._address.admin_url}; check --pulsar-url "
                "and --pulsar-admin-url, and PULSAR_TOKEN if it needs a token"
            )
        version = reported_version(self._address.admin_url, self._address.access) or self._address.version
        if self._required_version not in {None, version}:
            raise BrokerStartError(
                f"version {self._required_version} was requested, but the broker at {self._address.admin_url} is "
                f"Pulsar {version}: run without --pulsar-version, or without --pulsar-url"
            )
        return replace(self._address, version=version)


class SharedBroker(Broker):
    """Broker that other tests use at the same time, and that cannot be stopped.

    Args:
        source: source of the broker.
        profile: a profile or its name.

    Raises:
        BrokerStartError: it could not be started.
    """

    back_end: ClassVar[str] = "shared"

    def __init__(self, source: Source, profile: str | Profile = "plain") -> None:
        super().__init__(profile)
        self._source = source
        self._address = cast("Address", source.ask("_address_", self._profile))
        self._version = self._address.version

    @property
    def _address_(self) -> Address:
        return self._address

    def is_running(self) -> bool:
        """Return True if it is alive."""
        return self._source.ask("is_running", self._profile) is True

    def log_offset(self) -> int:
        """Return the current end of its log."""
        return cast("int", self._source.ask("log_offset", self._profile))

    def log_text(self, since: int = 0) -> str:
        """Return its log from an offset on; empty for an existing broker."""
        return cast("str", self._source.ask("log_text", self._profile, since))

    def start(self) -> NoReturn:
        """Raise: it is running, and other tests use it."""
        raise InvalidUse("this broker is shared by the whole run; use the fixture pulsar_own_broker")

    stop = kill = restart = _launch = _halt = _kill = _discard = start
