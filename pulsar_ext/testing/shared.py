"""The brokers of one test run: each profile started once, when first asked for, and shared by all of its processes.

A `Pool` owns them. Under xdist it lives in the controller, which outlives every worker, and the workers ask it over a
local connection; without xdist it is asked directly. Tests get a `SharedBroker`, which can be looked at, not ended.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, NoReturn, Protocol

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .access import Access, Detour
from .broker import Broker
from .profiles import Profile, get_profile
from .readiness import default_namespace_exists, reported_version
from .start import start_broker

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Address:
    """Where a shared broker is, and what gets in."""

    service_url: str
    admin_url: str
    back_end: str
    version: str
    access: Access = field(default_factory=Access)
    detours: tuple[Detour, ...] = ()


class Source(Protocol):
    """Where shared brokers come from: a pool, or the connection to one."""

    def address(self, profile: Profile) -> Address:
        """Return where the broker of that profile is, starting it first where needed."""
        ...

    def is_running(self, profile: Profile) -> bool:
        """Return whether it is alive."""
        ...

    def log_offset(self, profile: Profile) -> int:
        """Return where its log ends."""
        ...

    def log_text(self, profile: Profile, since: int) -> str:
        """Return its log from there on."""
        ...


class Pool:
    """Owns the brokers of a run, one for each profile; a start that failed is not tried again.

    Args:
        backend: `auto`, `docker` or `process`, or None for the environment's choice.
        report: called with short lines: what is started where, and why there.
        version: of the brokers, or None for the environment's choice.
    """

    def __init__(
        self,
        backend: str | None = None,
        report: Callable[[str], None] = lambda _: None,
        version: str | None = None,
    ) -> None:
        self._backend = backend
        self._report = report
        self._version = version
        self._lock = threading.Lock()
        self._starts: dict[str, _Start] = {}
        self._closed = False

    def address(self, profile: Profile) -> Address:
        """Return where the broker of that profile is, starting it first where needed.

        Raises:
            BrokerStartError: it could not be started.
        """
        broker = self._broker(profile)
        return Address(
            broker.service_url,
            broker.admin_url,
            broker.back_end,
            broker.version,
            broker.access,
            tuple(broker.detours),
        )

    def is_running(self, profile: Profile) -> bool:
        """Return whether it is alive."""
        return self._broker(profile).is_running()

    def log_offset(self, profile: Profile) -> int:
        """Return where its log ends."""
        return self._broker(profile).log_offset()

    def log_text(self, profile: Profile, since: int) -> str:
        """Return its log from there on."""
        return self._broker(profile).log_text(since)

    def close(self) -> None:
        """Stop every broker that was started."""
        with self._lock:
            self._closed = True
            starts = list(self._starts.values())
        for start in starts:
            with start.lock:
                if start.broker is not None:
                    start.broker.stop()

    def _broker(self, profile: Profile) -> Broker:
        with self._lock:
            if self._closed:
                raise BrokerStartError("the test run is over")
            start = self._starts.setdefault(_key(profile), _Start())
        with start.lock:
            if start.broker is None and start.error is None:
                try:
                    start.broker = start_broker(self._backend, profile, report=self._report, version=self._version)
                    self._report(start.broker.describe())
                except (BrokerStartError, InvalidUse) as error:
                    start.error = error
            if start.error is not None:
                raise start.error
            if start.broker is None:
                raise BrokerStartError("the start of the broker was interrupted")
            return start.broker


class _Start:
    """A broker that is started once, or the reason why it is not there."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.broker: Broker | None = None
        self.error: Exception | None = None


class Existing:
    """A broker that already runs and is not ours: every profile is the one that it has.

    Args:
        service_url: where clients connect.
        admin_url: where its admin REST API is.
        token: a superuser's token, where it wants one.
        version: the one that it must have, if any.
    """

    def __init__(self, service_url: str, admin_url: str, token: str | None = None, version: str | None = None) -> None:
        access = Access("token" if token is not None else None, token)
        self._address = Address(service_url, admin_url.rstrip("/"), "existing", "of unknown version", access)
        self._wanted = version

    def address(self, profile: Profile) -> Address:
        """Return where it is, after a look whether it answers.

        Raises:
            BrokerStartError: it does not answer, or another profile than `plain`, or another version, is asked for.
        """
        if profile.name != "plain":
            raise BrokerStartError(
                f"the test asks for a broker of profile {profile.name!r}; an existing broker has settings of its own: "
                "run without --pulsar-url"
            )
        if not self.is_running(profile):
            raise BrokerStartError(
                f"no broker answers for the namespace public/default at {self._address.admin_url}; check --pulsar-url "
                "and --pulsar-admin-url, and PULSAR_TOKEN where it wants a token"
            )
        version = reported_version(self._address.admin_url, self._address.access) or self._address.version
        if self._wanted not in {None, version}:
            raise BrokerStartError(
                f"version {self._wanted} was asked for, and the broker at {self._address.admin_url} is Pulsar "
                f"{version}: run without --pulsar-version, or without --pulsar-url"
            )
        return replace(self._address, version=version)

    def is_running(self, profile: Profile) -> bool:  # noqa: ARG002  # there is one only
        """Return whether it answers."""
        return default_namespace_exists(self._address.admin_url, self._address.access)

    def log_offset(self, profile: Profile) -> int:  # noqa: ARG002  # its log is out of reach
        """Return 0."""
        return 0

    def log_text(self, profile: Profile, since: int) -> str:  # noqa: ARG002  # its log is out of reach
        """Return nothing."""
        return ""


class SharedBroker(Broker):
    """A broker that other tests use at the same time: everything but ending it.

    Args:
        source: where it comes from.
        profile: a profile or its name.

    Raises:
        BrokerStartError: it could not be started.
    """

    back_end: ClassVar[str] = "shared"

    def __init__(self, source: Source, profile: str | Profile = "plain") -> None:
        super().__init__(profile)
        self._source = source
        self._address = source.address(self._profile)

    @property
    def service_url(self) -> str:
        """The URL for clients."""
        return self._address.service_url

    @property
    def admin_url(self) -> str:
        """The URL of the admin REST API."""
        return self._address.admin_url

    @property
    def access(self) -> Access:
        """What a client needs besides the URLs."""
        return self._address.access

    @property
    def detours(self) -> tuple[Detour, ...]:
        """What a fault proxy needs besides the URL."""
        return self._address.detours

    @property
    def version(self) -> str:
        """The broker's version."""
        return self._address.version

    def is_running(self) -> bool:
        """Return whether it is alive."""
        return self._source.is_running(self._profile)

    def log_offset(self) -> int:
        """Return where its log ends now."""
        return self._source.log_offset(self._profile)

    def log_text(self, since: int = 0) -> str:
        """Return its log from that offset on; nothing for a broker that is not ours."""
        return self._source.log_text(self._profile, since)

    def describe(self) -> str:
        """Say in one line what runs where, without secrets."""
        return super().describe().replace(f"back end {self.back_end}", f"back end {self._address.back_end}")

    def start(self) -> NoReturn:
        """Refuse: it runs already."""
        self._refuse()

    def stop(self) -> NoReturn:
        """Refuse: other tests use it."""
        self._refuse()

    def kill(self) -> NoReturn:
        """Refuse: other tests use it."""
        self._refuse()

    def restart(self) -> NoReturn:
        """Refuse: other tests use it."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InvalidUse("this broker is shared by the whole run; the fixture pulsar_own_broker starts one to break")

    def _launch(self) -> None:
        self._refuse()

    def _halt(self) -> None:
        self._refuse()

    def _kill(self) -> None:
        self._refuse()

    def _discard(self) -> None:
        self._refuse()


def _key(profile: Profile) -> str:
    own = get_profile(profile)
    return repr((own.name, sorted(own.settings.items()), own.authentication, own.tls, own.brokers))
