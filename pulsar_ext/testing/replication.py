"""Two Pulsar clusters that replicate to each other, `west` and `east`: a standalone broker each, to keep them small."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from pulsar_ext.errors import InvalidUse

from .broker import Startable
from .process import PulsarProcess
from .profiles import Profile, get_profile
from .tenancy import Tenancy, insist

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_WEST: Final = "west"
_EAST: Final = "east"
# What was sent just before a topic's replicator began goes over, too.
_SETTINGS: Final = {"replicationStartAt": "earliest"}


class ReplicatedClusters(Startable):
    """Two clusters that know each other; whatever namespace `replicate()` is told goes both ways.

    Each is a standalone broker in a process of its own with metadata of its own, so that one goes on when the other is
    killed. Use it as a context manager, or call `start()` and `stop()`.

    Args:
        profile: a profile or its name, for both; each has secrets and certificates of its own.
        settings: more broker settings for both, by their names in `broker.conf`; they win over the profile's.
        heap: the Java heap of each, and the same again for direct memory, as in `320m`.
        java_options: more options for both Java machines, after and so above the harness's own.
        start_timeout: seconds from launch to ready before a start counts as failed.
        report: called with short lines of progress when the jars have to be fetched.

    Raises:
        InvalidUse: no such profile, or a setting that cannot be had.
    """

    def __init__(
        self,
        profile: str | Profile = "plain",
        *,
        settings: Mapping[str, object] | None = None,
        heap: str = "320m",
        java_options: Sequence[str] = (),
        start_timeout: float = 180.0,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        if "clusterName" in (settings or {}):
            raise InvalidUse(f"the two clusters are called {_WEST} and {_EAST}: leave clusterName out of the settings")
        self._profile = get_profile(profile)
        self._seconds = start_timeout
        make = partial(
            PulsarProcess,
            self._profile,
            heap=heap,
            java_options=java_options,
            start_timeout=start_timeout,
            report=report,
        )
        self._brokers = {
            name: make(settings={"clusterName": name, **_SETTINGS, **(settings or {})}) for name in (_WEST, _EAST)
        }

    def __repr__(self) -> str:
        running = [name for name, broker in self._brokers.items() if broker.is_running()]
        return f"<ReplicatedClusters {self._profile.name!r}, running: {', '.join(running) or 'nothing'}>"

    @property
    def west(self) -> PulsarProcess:
        """The one cluster: `service_url`, `admin_url`, `client_options(pulsar)`, `kill()`, `restart()` and so on."""
        return self._brokers[_WEST]

    @property
    def east(self) -> PulsarProcess:
        """The other cluster."""
        return self._brokers[_EAST]

    def start(self) -> Self:
        """Start both side by side, and return when each knows the other; a second call does nothing.

        Raises:
            BrokerStartError: one did not become ready; nothing is left running, and the message ends with its log.
        """
        if all(broker.is_running() for broker in self._brokers.values()):
            return self
        try:
            with ThreadPoolExecutor(len(self._brokers)) as starts:
                list(starts.map(PulsarProcess.start, self._brokers.values()))
            for name, broker in self._brokers.items():
                for other in self._brokers.values():
                    with _tenancy(other) as tenancy:
                        tenancy.put_cluster(name, _as_peer(broker))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End both and remove what they leave behind; a second call does nothing."""
        for broker in self._brokers.values():
            broker.stop()

    def replicate(self, namespace: str) -> None:
        """Have a namespace, `tenant/name`, replicated both ways; it and its tenant are made where they are missing.

        Raises:
            BrokerStartError: a cluster does not answer, or refuses it.
        """
        for broker in self._brokers.values():
            with _tenancy(broker) as tenancy:
                tenancy.replicate(namespace, list(self._brokers))

    def carry_over(self, topic: str) -> None:
        """Return when each cluster has what the other one has confirmed of a topic up to now.

        A topic with partitions is given by each of these, `…-partition-0`.

        Raises:
            BrokerStartError: it did not go over within the time for a start, as when one of the two is down.
        """
        for name, broker in self._brokers.items():
            (other,) = self._brokers.keys() - {name}
            with _tenancy(broker) as tenancy:
                told = f"not all of {topic} went from {name} to {other}"
                insist(partial(tenancy.has_carried_over, topic, other), self._seconds, told)


def _tenancy(broker: PulsarProcess) -> Tenancy:
    return Tenancy(broker.admin_url, broker.access)


def _as_peer(broker: PulsarProcess) -> dict[str, Any]:
    """Give what a broker of another cluster needs to come here, as the broker's `ClusterData` has it."""
    suffix = "Tls" if broker.profile.tls else ""
    own = broker.client_settings
    peer = {
        f"serviceUrl{suffix}": broker.admin_url,
        f"brokerServiceUrl{suffix}": broker.service_url,
        "brokerClientTlsEnabled": broker.profile.tls,
        "brokerClientTrustCertsFilePath": own.get("brokerClientTrustCertsFilePath"),
        "authenticationPlugin": own.get("brokerClientAuthenticationPlugin"),
        "authenticationParameters": own.get("brokerClientAuthenticationParameters"),
    }
    return {name: value for name, value in peer.items() if value is not None}
