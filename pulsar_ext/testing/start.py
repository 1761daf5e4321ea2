"""Start a broker in whatever it can run in: a container, a process, or as a cluster of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext.errors import InvalidUse

from .backend import Choice, choose_backend, is_asked_for
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
    """Start a broker in the back end that `choose_backend` gives, and return it when it is ready.

    A profile of several brokers is a cluster, which runs as processes.

    Args:
        backend: `auto`, `docker` or `process`; by default what `PULSAR_EXT_BACKEND` says, else `auto`.
        profile: a profile or its name.
        settings: more broker settings, by their names in `broker.conf`.
        broker_port: where clients connect; a free port by default.
        admin_port: where the admin REST API listens; a free port by default.
        data_dir: keeps data across runs; by default data goes with the broker. Only a process can keep it.
        report: called with short lines: which back end was chosen, why, and what takes long.
        version: of the broker; by default that of `PULSAR_EXT_PULSAR_VERSION`, else the one that this is tested with.

    Raises:
        InvalidUse: no such back end or profile, or what cannot be a version.
        BrokerStartError: it did not become ready; nothing is left running.
    """
    fixed = broker_port is not None or admin_port is not None or data_dir is not None
    if get_profile(profile).brokers > 1:
        if fixed:
            raise InvalidUse("a cluster has ports and data of its own: leave them out, or use a profile of one broker")
        report("back end cluster: a profile of several brokers runs as processes, whatever else can be used")
        return ClusterBroker(get_profile(profile), settings=settings, report=report, version=version).start()
    if data_dir is not None and not is_asked_for(backend):
        choice = Choice("process", "a data directory was given", "leave it out for a container")
    else:
        choice = choose_backend(backend, report, version)
    report(str(choice))
    if choice.backend == "docker":
        if data_dir is not None:
            raise InvalidUse("a container has data of its own: leave data_dir out, or use the back end process")
        from .container import PulsarContainer  # noqa: PLC0415  # testcontainers is loaded only where it is used

        return PulsarContainer(
            profile,
            settings=settings,
            report=report,
            version=version,
            broker_port=broker_port,
            admin_port=admin_port,
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
