"""Start of a broker in an available back end: a container, a process, or a cluster of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext.errors import InvalidUse

from .backend import choose_backend
from .cluster import ClusterBroker
from .process import PulsarProcess
from .profiles import Profile, get_profile

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from .broker import Broker


def start_broker(
    backend: str | None = None,
    profile: str | Profile = "plain",
    *,
    settings: Mapping[str, object] | None = None,
    broker_port: int | None = None,
    admin_port: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = lambda _: None,
    version: str | None = None,
) -> Broker:
    """Start a broker in the back end that `choose_backend` returns, and return it when it is ready.

    A profile of several brokers is a cluster, which runs as processes.

    Args:
        backend: `auto`, `docker` or `process`; by default the value of `PULSAR_EXT_BACKEND`, else `auto`.
        profile: a profile or its name.
        settings: more broker settings, by their names in `broker.conf`.
        broker_port: port for clients; a free one by default.
        admin_port: port of the admin REST API; a free one by default.
        data_dir: directory that keeps data across runs, only with a process; by default data is removed with the
            broker.
        report: called with short lines: the chosen back end, the reason, and slow steps.
        version: of the broker; by default that of `PULSAR_EXT_PULSAR_VERSION`, else the tested one.

    Raises:
        InvalidUse: the back end, the profile or the version is invalid.
        BrokerStartError: it did not become ready; nothing is left running.
    """
    fixed = broker_port is not None or admin_port is not None or data_dir is not None
    if get_profile(profile).brokers > 1:
        if fixed:
            raise InvalidUse(
                "a cluster chooses its ports and data directory: omit them, or use a profile of one broker"
            )
        report("back end cluster: a profile of several brokers always runs as processes")
        return ClusterBroker(get_profile(profile), settings=settings, report=report, version=version).start()
    backend, reason = choose_backend(backend, report, version, keeps_data=data_dir is not None)
    report(reason)
    if backend == "docker":
        if data_dir is not None:
            raise InvalidUse("a container has no data directory here: omit data_dir, or use the back end process")
        from .container import PulsarContainer  # noqa: PLC0415  # testcontainers is loaded only if it is used

        return PulsarContainer(
            profile, settings=settings, report=report, version=version, broker_port=broker_port, admin_port=admin_port
        ).start()
    return PulsarProcess(
        profile,
        settings=settings,
        broker_port=broker_port,
        admin_port=admin_port,
        data_dir=data_dir,
        report=report,
        version=version,
    ).start()
