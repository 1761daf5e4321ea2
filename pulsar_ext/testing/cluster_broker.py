"""A whole cluster in the place of one broker, for tests that do not care which of them they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .access import Access
from .broker import Broker
from .cluster import PulsarCluster
from .profiles import Profile, get_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .detour import Detour

__all__ = ["ClusterBroker"]


class ClusterBroker(Broker):
    """A cluster that is used, killed and restarted as one broker: `kill()` ends all of its brokers, no bookie.

    Args:
        profile: a profile of several brokers.
        settings: more broker settings, by their names in `broker.conf`; they win over the profile's.
        start_timeout: seconds from launch to ready before a start counts as failed.
        report: called with short lines of progress when the jars have to be fetched.
        version: of all parts; by default that of `PULSAR_EXT_PULSAR_VERSION`, else the one that this is tested with.
    """

    back_end: ClassVar[str] = "cluster"

    def __init__(
        self,
        profile: Profile,
        *,
        settings: Mapping[str, object] | None = None,
        start_timeout: float = 180.0,
        report: Callable[[str], None] = lambda _: None,
        version: str | None = None,
    ) -> None:
        super().__init__(profile, settings=settings, start_timeout=start_timeout, version=version)
        self._cluster = PulsarCluster(
            profile,
            brokers=get_profile(profile).brokers,
            settings=settings,
            start_timeout=start_timeout,
            report=report,
            version=version,
        )
        self._is_up = False
        self._marks: list[dict[str, int]] = [{}]

    @property
    def cluster(self) -> PulsarCluster:
        """The cluster itself."""
        return self._cluster

    @property
    def service_url(self) -> str:
        """The URL for clients, with all brokers."""
        return self._cluster.service_url

    @property
    def admin_url(self) -> str:
        """The URL of the first broker's admin REST API."""
        return self._cluster.admin_url

    @property
    def access(self) -> Access:
        """What a client needs besides the URLs; nothing before the start."""
        return self._cluster.access if self._is_up else Access()

    @property
    def detours(self) -> tuple[Detour, ...]:
        """Ways for fault proxies before all of its brokers."""
        return self._cluster.detours

    def is_running(self) -> bool:
        """Return whether all parts are alive now."""
        return self._cluster.is_running()

    def log_offset(self) -> int:
        """Return a number for where the brokers' logs end now."""
        self._marks.append({name: self._cluster.log_offset(name) for name in self._brokers()})
        return len(self._marks) - 1

    def log_text(self, since: int = 0) -> str:
        """Return the brokers' logs from there to their ends, one after the other."""
        starts = self._marks[since]
        return "".join(self._cluster.log_text(name, starts.get(name, 0)) for name in self._brokers())

    def _brokers(self) -> tuple[str, ...]:
        return self._cluster.brokers if self._is_up else ()

    def _launch(self) -> None:
        if self._is_up:
            self._cluster.restart(*self._cluster.brokers)
        else:
            self._cluster.start()
            self._is_up = True

    def _halt(self) -> None:
        """Do nothing: the cluster ends in good order what it restarts."""

    def _kill(self) -> None:
        self._cluster.kill(*self._brokers())

    def _discard(self) -> None:
        self._is_up = False
        self._cluster.stop()
