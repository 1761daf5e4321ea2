"""Choose what a broker runs in: a Docker container or a child process.

The choice is made from what the machine has, and is always reported with its reason and with how to get the other.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .profiles import choose_version

if TYPE_CHECKING:
    from collections.abc import Callable

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


def choose_backend(
    backend: str | None = None, report: Callable[[str], None] = lambda _: None, version: str | None = None
) -> Choice:
    """Choose a back end: the one that is named, else Docker where it can be used, else a process.

    Args:
        backend: `auto`, `docker` or `process`; by default what `PULSAR_EXT_BACKEND` says, else `auto`.
        report: called with short lines of progress when an image has to be pulled or built.
        version: of the broker; by default that of `PULSAR_EXT_PULSAR_VERSION`, else the one that this is tested with.

    Raises:
        InvalidUse: the back end is unknown, or what cannot be a version was asked for.
        BrokerStartError: the one that is named, or both, cannot be used here; the message says what to install.
    """
    asked = backend or os.environ.get(_VARIABLE) or "auto"
    if asked not in BACKENDS:
        raise InvalidUse(f"there is no back end {asked!r}; choose one of: {', '.join(BACKENDS)}")
    chosen = choose_version(version)
    no_docker = docker_problem(report, chosen) if asked != "process" else None
    no_process = process_problem(chosen) if asked == "process" or no_docker is not None else None
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


def is_asked_for(backend: str | None) -> bool:
    """Whether the back end is said, here or by `PULSAR_EXT_BACKEND`, and not left to choose."""
    return (backend or os.environ.get(_VARIABLE) or "auto") != "auto"


def docker_problem(report: Callable[[str], None] = lambda _: None, version: str | None = None) -> str | None:
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
        choose_image(report=report, version=version)
    except BrokerStartError as error:
        return str(error)
    return None


def process_problem(version: str | None = None) -> str | None:
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
    damage = find_damage(version)
    if damage is not None and shutil.which("mvn") is None:
        where = cached_jars(version)
        return f"the jars in {where} are needed ({damage}), and there is no mvn to fetch them: install Maven"
    return None
