"""Choose what a broker runs in: a Docker container or a child process.

The choice is made from what the machine has, and is always reported with its reason and with how to get the other.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .profiles import get_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .broker import Broker
    from .profiles import Profile

__all__ = ["BACKENDS", "Choice", "choose_backend", "start_broker"]

BACKENDS: Final = ("auto", "docker", "process")
_ENGINE_SECONDS: Final = 5
_VARIABLE: Final = "PULSAR_EXT_BACKEND"


@dataclass(frozen=True)
class Choice:
    """What a broker will run in, and why.

    Args:
        backend: `docker` or `process`.
        reason: why this one.
        other: how to get the other one.
    """

    backend: Literal["docker", "process"]
    reason: str
    other: str

    def __str__(self) -> str:
        return f"back end {self.backend}: {self.reason}; {self.other}"


def choose_backend(backend: str | None = None, report: Callable[[str], None] = lambda _: None) -> Choice:
    """Choose a back end: the one that is named, else Docker where it can be used, else a process.

    Args:
        backend: `auto`, `docker` or `process`; by default what `PULSAR_EXT_BACKEND` says, else `auto`.
        report: called with short lines of progress when an image has to be pulled or built.

    Raises:
        InvalidUse: the back end is unknown.
        BrokerStartError: the one that is named, or both, cannot be used here; the message says what to install.
    """
    asked = backend or os.environ.get(_VARIABLE) or "auto"
    if asked not in BACKENDS:
        raise InvalidUse(f"there is no back end {asked!r}; choose one of: {', '.join(BACKENDS)}")
    no_docker = docker_problem(report) if asked != "process" else None
    no_process = process_problem() if asked == "process" or no_docker is not None else None
    if asked == "docker" and no_docker is not None:
        raise BrokerStartError(f"the back end docker cannot be used here: {no_docker}")
    if asked == "process" and no_process is not None:
        raise BrokerStartError(f"the back end process cannot be used here: {no_process}")
    if asked != "process" and no_docker is None:
        reason = "asked for" if asked == "docker" else "a Docker engine answers and has an image"
        return Choice("docker", reason, f"{_VARIABLE}=process runs the broker without Docker")
    if no_process is None:
        reason = "asked for" if asked == "process" else str(no_docker)
        return Choice("process", reason, f"{_VARIABLE}=docker runs the broker in a container")
    raise BrokerStartError(
        f"no way to run a broker here; one of these two is needed.\nDocker: {no_docker}\nProcess: {no_process}"
    )


def start_broker(
    backend: str | None = None,
    profile: str | Profile = "plain",
    *,
    settings: Mapping[str, object] | None = None,
    broker_port: int | None = None,
    admin_port: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = lambda _: None,
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

    Raises:
        InvalidUse: no such back end or profile.
        BrokerStartError: it did not become ready; nothing is left running.
    """
    fixed = broker_port is not None or admin_port is not None or data_dir is not None
    if get_profile(profile).brokers > 1:
        if fixed:
            raise InvalidUse("a cluster has ports and data of its own: leave them out, or use a profile of one broker")
        from .cluster_broker import ClusterBroker  # noqa: PLC0415  # a third of the same choice

        report("back end cluster: a profile of several brokers runs as processes, whatever else can be used")
        return ClusterBroker(get_profile(profile), settings=settings, report=report).start()
    if fixed and (backend or os.environ.get(_VARIABLE) or "auto") == "auto":
        choice = Choice("process", "ports or a data directory were given", "leave them out for a container")
    else:
        choice = choose_backend(backend, report)
    report(str(choice))
    if choice.backend == "docker":
        if fixed:
            raise InvalidUse("a container has ports and data of its own: leave them out, or use the back end process")
        from .container import PulsarContainer  # noqa: PLC0415  # testcontainers is loaded only where it is used

        return PulsarContainer(profile, settings=settings, report=report).start()
    from .process import PulsarProcess  # noqa: PLC0415  # the other half of the same choice

    return PulsarProcess(
        profile,
        settings=settings,
        broker_port=broker_port,
        admin_port=admin_port,
        data_dir=data_dir,
        report=report,
    ).start()


def docker_problem(report: Callable[[str], None] = lambda _: None) -> str | None:
    """Say why no container can be run here and what to do about it, or return None if one can.

    The image is pulled or built by this if it is not there yet.
    """
    try:
        # Comes with the extra, and is loaded only where it is used.
        from .image import (  # noqa: PLC0415
            choose_image,
            connect_engine,
        )
    except ImportError as error:
        return f"a Python package is missing ({error}): pip install 'pulsar-ext[testing]'"
    try:
        connect_engine(timeout=_ENGINE_SECONDS).client.close()
        choose_image(report=report)
    except BrokerStartError as error:
        return str(error)
    return None


def process_problem() -> str | None:
    """Say why no broker process can be run here and what to install, or return None if one can."""
    try:
        from .jars import (  # noqa: PLC0415  # needs filelock, from the extra
            cached_jars,
            find_damage,
            find_java,
        )

        find_java()
    except ImportError as error:
        return f"a Python package is missing ({error}): pip install 'pulsar-ext[testing]'"
    except BrokerStartError as error:
        return str(error)
    damage = find_damage(cached_jars())
    if damage is not None and shutil.which("mvn") is None:
        return f"the jars in {cached_jars()} are needed ({damage}), and there is no mvn to fetch them: install Maven"
    return None
