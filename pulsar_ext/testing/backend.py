"""Choice of the back end of a broker: a Docker container or a child process.

The choice is reported with its reason, and with how to choose the other back end.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final, Literal

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .profiles import choose_version

if TYPE_CHECKING:
    from collections.abc import Callable

BACKENDS: Final = ("auto", "docker", "process")
_ENGINE_SECONDS: Final = 5
_VARIABLE: Final = "PULSAR_EXT_BACKEND"
_MISSING: Final = "a Python package is missing ({}): run pip install 'pulsar-ext[testing]'"


def choose_backend(
    backend: str | None = None,
    report: Callable[[str], None] = lambda _: None,
    version: str | None = None,
    *,
    keeps_data: bool = False,
) -> tuple[Literal["docker", "process"], str]:
    """Choose a back end: the named one, else Docker if it is available, else a process; return it and the reason."""
    requested = backend or os.environ.get(_VARIABLE) or "auto"
    if requested not in BACKENDS:
        raise InvalidUse(f"unknown back end {requested!r}; choose one of: {', '.join(BACKENDS)}")
    if keeps_data and requested == "auto":
        return "process", "back end process: a data directory was passed; omit it for a container"
    chosen = choose_version(version)
    problems: dict[str, str] = {}
    if requested != "process":
        if (problem := docker_problem(report, chosen)) is None:
            reason = "requested" if requested == "docker" else "a Docker engine answers and has an image"
            return "docker", f"back end docker: {reason}; {_VARIABLE}=process runs the broker without Docker"
        problems["Docker"] = problem
    if requested != "docker":
        if (problem := process_problem(chosen)) is None:
            reason = problems.get("Docker", "requested")
            return "process", f"back end process: {reason}; {_VARIABLE}=docker runs the broker in a container"
        problems["Process"] = problem
    if requested != "auto":
        raise BrokerStartError(f"the back end {requested} is unavailable: {problem}")
    listed = "\n".join(f"{name}: {problem}" for name, problem in problems.items())
    raise BrokerStartError(f"no back end for a broker is available; one of these two is needed.\n{listed}")


def docker_problem(report: Callable[[str], None] = lambda _: None, version: str | None = None) -> str | None:
    """Return why no container can run and what to do about it; None if one can, after an image is pulled."""
    try:
        from .image import choose_image, connect_engine  # noqa: PLC0415  # needs the extra

        connect_engine(timeout=_ENGINE_SECONDS).close()
        choose_image(report=report, version=version)
    except ImportError as error:
        return _MISSING.format(error)
    except BrokerStartError as error:
        return str(error)
    return None


def process_problem(version: str | None = None) -> str | None:
    """Return why no broker process can run and what to install, or None if one can."""
    try:
        from .jars import cached_jars, find_damage, find_java  # noqa: PLC0415  # needs the extra

        find_java(choose_version(version))
    except ImportError as error:
        return _MISSING.format(error)
    except BrokerStartError as error:
        return str(error)
    damage = find_damage(version)
    if damage is not None and shutil.which("mvn") is None:
        return f"the jars in {cached_jars(version)} are missing ({damage}) and mvn is not found: install Maven"
    return None
