"""Two replicating Pulsar clusters, `west` and `east`: each is a standalone broker, to keep them small."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from pulsar_ext.errors import InvalidUse

from .broker import START_SECONDS, Startable
from .process import PulsarProcess
from .profiles import Profile, get_profile
from .tenancy import Tenancy, call_with_retries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_WEST: Final = "west"
_EAST: Final = "east"
# Messages sent just before a topic's replicator starts are replicated, too.
_SETTINGS: Final = {"replicationStartAt": "earliest"}


class ReplicatedClusters(Startable):
    """Two clusters that know each other; `replicate()` replicates a namespace in both directions.

    Each is a standalone broker in its own process with its own metadata, so that it keeps running when the other is
    killed. Use it as a context manager, or call `start()` and `stop()`.

    Args:
        profile: a profile or its name, for both; each has its own secrets and certificates.
        settings: see `Broker`; for both.
        heap: size of each Java heap, and of the direct memory, such as `320m`.
        java_options: more options for both Java machines; they take precedence over the harness's.
        start_timeout: see `Broker`.
        report: called with short lines of progress if the jars are fetched.
        version: see `Broker`; of both.

    Raises:
        InvalidUse: the profile, the version or a setting is invalid.
    """

    def __init__(
        self,
        profile: str | Profile = "plain",
        *,
        settings: Mapping[str, object] | None = None,
        heap: str = "320m",
        java_options: Sequence[str] = (),
        start_timeout: float = START_SECONDS,
        report: Callable[[str], None] = lambda _: None,
        version: str | None = None,
    ) -> None:
        if "clusterName" in (settings or {}):
            raise InvalidUse(f"the two clusters are named {_WEST} and {_EAST}: omit clusterName from the settings")
        self._profile = get_profile(profile)
        self._seconds = start_timeout
        self._brokers = {
            name: PulsarProcess(
                self._profile,
                settings={"clusterName": name, **_SETTINGS, **(settings or {})},
                heap=heap,
                java_options=java_options,
                start_timeout=start_timeout,
                report=report,
                version=version,
            )
            for name in (_WEST, _EAST)
        }

    def __repr__(self) -> str:
        running = [name for name, broker in self._brokers.items() if broker.is_running()]
        return f"<ReplicatedClusters {self._profile.name!r}, running: {', '.join(running) or 'nothing'}>"

    @property
    def west(self) -> PulsarProcess:
        """First cluster: `service_url`, `admin_url`, `client_options(pulsar)`, `kill()`, `restart()` and so on."""
        return self._brokers[_WEST]

    @property
    def east(self) -> PulsarProcess:
        """Second cluster."""
        return self._brokers[_EAST]

    def _is_started(self) -> bool:
        return all(broker.is_running() for broker in self._brokers.values())

    def _start(self) -> None:
        with ThreadPoolExecutor(len(self._brokers)) as starts:
            list(starts.map(PulsarProcess.start, self._brokers.values()))
        for name, broker in self._brokers.items():
            for other in self._brokers.values():
                with Tenancy(other.admin_url, other.access) as tenancy:
                    tenancy.put_cluster(name, _as_peer(broker))

    def stop(self) -> None:
        """Stop both and remove their files; a second call does nothing."""
        for broker in self._brokers.values():
            broker.stop()

    def replicate(self, namespace: str) -> None:
        """Replicate a namespace, `tenant/name`, in both directions; create it and its tenant if they are missing.

        Raises:
            BrokerStartError: a cluster does not answer, or rejects the request.
        """
        for broker in self._brokers.values():
            with Tenancy(broker.admin_url, broker.access) as tenancy:
                tenancy.replicate(namespace, list(self._brokers))

    def carry_over(self, topic: str) -> None:
        """Wait until each cluster has all messages of a topic that the other one has confirmed so far.

        Of a partitioned topic pass each partition, `…-partition-0`.

        Raises:
            BrokerStartError: they were not replicated within the start timeout, for example because a cluster is down.
        """
        for name, broker in self._brokers.items():
            (other,) = self._brokers.keys() - {name}
            with Tenancy(broker.admin_url, broker.access) as tenancy:
                problem = f"{topic} was not fully replicated from {name} to {other}"
                call_with_retries(partial(tenancy.has_carried_over, topic, other), self._seconds, problem)


def _as_peer(broker: PulsarProcess) -> dict[str, object]:
    """Return what another cluster's broker needs to connect to this one, as the broker's `ClusterData`."""
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
