"""The one interface of a test broker, whatever it runs in, and what "ready" means.

What a test can connect to, own and end may be a whole cluster as well. A back end says how to launch, end and check its
broker; starting, restarting and the wait for readiness are the same for all of them and live here. Ready is meant
literally: the default namespace exists, one message went in and came out through the official client, and the broker is
still running.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pulsar_ext.errors import BrokerStartError

from .profiles import Profile, asked_version, choose_version, get_profile
from .readiness import default_namespace_exists, reported_version, round_trip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from .access import Access, Detour


class Startable(ABC):
    """What runs from the beginning of a `with` block or `start()` on, and is gone after the block or `stop()`."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> Self:
        """Start all of it and return when it is ready; a second call does nothing.

        Raises:
            BrokerStartError: it did not become ready; nothing is left running, and the message ends with a log.
        """

    @abstractmethod
    def stop(self) -> None:
        """End all of it and remove what it leaves behind; a second call does nothing."""


class Reachable(Startable):
    """What clients connect to: a broker or a cluster."""

    @property
    @abstractmethod
    def service_url(self) -> str:
        """The URL for clients, `pulsar://host:port`, or `pulsar+ssl://…` where the profile has TLS."""

    @property
    @abstractmethod
    def admin_url(self) -> str:
        """The URL of the admin REST API, `http://host:port`, or `https://…`."""

    @property
    @abstractmethod
    def access(self) -> Access:
        """What a client needs besides the URLs: the superuser's credentials, and whom to trust."""

    @property
    def detours(self) -> Sequence[Detour]:
        """What a fault proxy needs besides the URL: `FaultProxy.to(broker.service_url, broker.detours)`."""
        return ()

    @abstractmethod
    def is_running(self) -> bool:
        """Return whether all of it is alive now."""

    @property
    def token(self) -> str | None:
        """The superuser's token, or None where none is taken."""
        return self.access.token

    def client_options(self, module: ModuleType) -> dict[str, Any]:
        """Give what a client needs: `pulsar_ext.Client(broker.service_url, **broker.client_options(pulsar_ext))`.

        Args:
            module: `pulsar` or `pulsar_ext`, whose authentication is used.
        """
        return self.access.client_options(module)


_POLL_SECONDS = 0.2
_LOG_TAIL_LINES = 40


class Broker(Reachable):
    """A real Pulsar broker that tests own: started, killed and restarted at will, gone afterwards.

    Use it as a context manager, or call `start()` and `stop()`. Log offsets are opaque numbers that only grow.

    Args:
        profile: a profile or its name.
        settings: more broker settings, by their names in `broker.conf`; they win over the profile's.
        start_timeout: seconds from launch to ready before the start counts as failed.
        version: of the broker; by default that of `PULSAR_EXT_PULSAR_VERSION`, else the one that this is tested with.

    Raises:
        InvalidUse: no such profile, or what cannot be a version.
    """

    back_end: ClassVar[str]
    """What the broker runs in, as `--pulsar-backend` names it."""

    def __init__(
        self,
        profile: str | Profile = "plain",
        *,
        settings: Mapping[str, object] | None = None,
        start_timeout: float = 180.0,
        version: str | None = None,
    ) -> None:
        self._profile = get_profile(profile)
        self._settings = dict(settings or {})
        self._start_timeout = start_timeout
        self._asked_version = asked_version(version)
        self._version = choose_version(version)

    def __repr__(self) -> str:
        state = "running" if self.is_running() else "not running"
        return f"<{type(self).__name__} {self._profile.name!r}, {state}>"

    # -- what a back end provides ------------------------------------------------------------------------------------

    @abstractmethod
    def log_offset(self) -> int:
        """Return where the log ends now, as a number that means something to a later `log_text(since=…)` alone."""

    @abstractmethod
    def log_text(self, since: int = 0) -> str:
        """Return the log from that offset to its end; all of it by default."""

    @abstractmethod
    def _launch(self) -> None:
        """Start the broker on the data and the ports it had, if any, and return without waiting for it.

        Raises:
            BrokerStartError: something that it needs is missing; the message says what to install.
        """

    @abstractmethod
    def _halt(self) -> None:
        """End it in good order and keep its data; do nothing when it is not running."""

    @abstractmethod
    def _kill(self) -> None:
        """End it by SIGKILL and keep its data; do nothing when it is not running."""

    @abstractmethod
    def _discard(self) -> None:
        """Remove whatever it leaves behind that is not the caller's; it is not running any more."""

    def _may_launch_again(self) -> bool:
        """Return whether the start failed for a reason that a second launch avoids, such as a port lost in a race."""
        return False

    # -- what all share ----------------------------------------------------------------------------------------------

    @property
    def profile(self) -> Profile:
        """The profile it runs with."""
        return self._profile

    @property
    def version(self) -> str:
        """The broker's version, as it says itself; before the start the one that is to be started."""
        return self._version

    def start(self) -> Self:
        """Launch the broker and return when it is ready; a second call does nothing.

        Raises:
            BrokerStartError: it did not become ready; nothing is left running, and the message ends with its log.
        """
        if self.is_running():
            return self
        try:
            self._bring_up()
        except BaseException:
            self._kill()
            self._discard()
            raise
        return self

    def stop(self) -> None:
        """End the broker and remove what it leaves behind; a second call does nothing."""
        try:
            self._halt()
        finally:
            self._discard()

    def kill(self) -> None:
        """End the broker by SIGKILL, as a crash would; its data and its ports stay for `restart()`."""
        self._kill()

    def restart(self) -> None:
        """Bring the broker back on the same data and the same URLs, ending it in good order first if it runs.

        Raises:
            BrokerStartError: it did not become ready again; its data is still there.
        """
        self._halt()
        try:
            self._bring_up()
        except BaseException:
            self._kill()
            raise

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """Return the last lines of the log."""
        return tail_of(self.log_text(), lines)

    def describe(self) -> str:
        """Say in one line what runs where, without secrets."""
        return (
            f"Pulsar {self.version}, profile {self._profile.name}, back end {self.back_end}: "
            f"{self.service_url} and {self.admin_url}"
        )

    def _bring_up(self) -> None:
        self._launch()
        while True:
            try:
                self._wait_until_ready()
            except BrokerStartError:
                if not self._may_launch_again():
                    raise
                self._kill()
                self._launch()
            else:
                return

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not default_namespace_exists(self.admin_url, self.access):
            self._check_alive()
            if time.monotonic() > deadline:
                raise self._start_error(
                    f"the default namespace did not appear at {self.admin_url} in {self._start_timeout:.0f} s"
                )
            time.sleep(_POLL_SECONDS)
        self._check_version()
        failure = round_trip(self.service_url, self.access, timeout=max(deadline - time.monotonic(), 1.0))
        self._check_alive()
        if failure is not None:
            raise self._start_error(f"a first message did not come back from {self.service_url}: {failure}")

    def _check_version(self) -> None:
        reported = reported_version(self.admin_url, self.access)
        if self._asked_version is not None and reported not in {None, self._asked_version}:
            raise self._start_error(
                f"version {self._asked_version} was asked for, and what started says that it is {reported}: leave out "
                "the version, or the image"
            )
        self._version = reported or self._version

    def _check_alive(self) -> None:
        if not self.is_running():
            raise self._start_error("the broker ended while it was starting")

    def _start_error(self, reason: str) -> BrokerStartError:
        what = f"no Pulsar {self.version} (profile {self._profile.name}, back end {self.back_end})"
        return start_error(what, reason, self.log_tail())


def tail_of(log: str, lines: int = _LOG_TAIL_LINES) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.splitlines()[-lines:])


def start_error(what: str, reason: str, log_tail: str) -> BrokerStartError:
    """Make the error that says what is not there, why, and how its log ends."""
    return BrokerStartError(
        f"{what}: {reason}\nthe end of its log:\n{log_tail or '(empty)'}", reason=reason, log_tail=log_tail
    )
