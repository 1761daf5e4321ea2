"""Which image a broker's container runs from, and the Docker engine that it runs on.

An image that was asked for by name is taken as it is. Else it is the official one where that is present or a registry
answers, and where none does, the small one that `docker/` describes, built on this machine the first time. The same is
there for people: `python -m pulsar_ext.testing.image {show,build,context DIRECTORY}`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docker.errors import DockerException, ImageNotFound, NotFound  # type: ignore[import-not-found]  # mypy sees docker/
from requests.exceptions import RequestException
from testcontainers.core.docker_client import DockerClient, get_docker_host

from pulsar_ext.errors import BrokerStartError, InvalidUse

from .image_build import IMAGE_LABEL, build_image, build_problem, local_tag, machine_of, write_context
from .jars import cache_root
from .profiles import PULSAR_VERSION
from .versions import VARIABLE, choose_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = ["choose_image", "connect_engine", "image_problem", "main", "official_image", "start_command"]

_IMAGE_VARIABLE: Final = "PULSAR_EXT_IMAGE"

# As its documentation says; the last step replaces the shell, so that signals reach the broker.
_OFFICIAL_COMMAND: Final = "bin/apply-config-from-env.py conf/standalone.conf && exec bin/pulsar standalone -nfw -nss"

_DEFAULT_SOCKET: Final = "unix:///var/run/docker.sock"

# How long the engine may take to say whether a registry answers, and how long a "no" is believed by later runs.
_REGISTRY_SECONDS: Final = 8
_NO_REGISTRY_SECONDS: Final = 3600.0
# The engine keeps silent while it unpacks a large layer.
_ENGINE_SECONDS: Final = 600


def official_image(version: str) -> str:
    """Return the name of the official image of that version."""
    return f"apachepulsar/pulsar:{version}"


def connect_engine(timeout: int = _ENGINE_SECONDS) -> DockerClient:
    """Return a client of the Docker engine that testcontainers would use.

    Args:
        timeout: seconds that the engine may be silent before a call to it fails.

    Raises:
        BrokerStartError: no engine answers, or this user may not use it.
    """
    address = get_docker_host() or _DEFAULT_SOCKET
    try:
        _check_socket(address)
        return DockerClient(timeout=timeout)
    except (DockerException, RequestException, OSError) as error:
        if isinstance(error, PermissionError) or "Permission denied" in str(error):
            advice = "this user may not use it: join the group of its socket (often: docker), or run as root"
        else:
            advice = "start one, or point DOCKER_HOST at one"
        raise BrokerStartError(
            f"no Docker engine answers at {address} ({error}): {advice}; or use a broker process"
        ) from error


def _check_socket(address: str) -> None:
    """Fail as the client would, which however leaves the socket of a failed attempt open."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(address.removeprefix("unix://"))


def choose_image(
    image: str | None = None, *, report: Callable[[str], None] = lambda _: None, version: str | None = None
) -> str:
    """Return the name of the image to run: one that the engine has, or can pull if it was asked for by name.

    Args:
        image: this one; by default that of `PULSAR_EXT_IMAGE`, else the official one, else one that is built here.
        report: called with short lines of progress when it takes longer.
        version: of the broker in an image that is not named; by default that of `choose_version()`.

    Raises:
        InvalidUse: the version does not look like one.
        BrokerStartError: no engine answers, or no image can be had; the message says what to do.
    """
    if chosen := image or os.environ.get(_IMAGE_VARIABLE):
        return chosen
    wanted = choose_version(version)
    official = official_image(wanted)
    engine = connect_engine()
    try:
        if _is_present(engine, official) or _is_pulled(engine, official, report):
            return official
        return build_image(engine, wanted, report=report)
    finally:
        engine.client.close()


def image_problem() -> str | None:
    """Say why no image can be run and what to do about it; None if one is present or can be pulled or built.

    Raises:
        BrokerStartError: no engine answers.
    """
    if os.environ.get(_IMAGE_VARIABLE):
        return None
    version = choose_version()
    official = official_image(version)
    engine = connect_engine()
    try:
        if _is_present(engine, official) or _is_present(engine, local_tag(machine_of(engine), version)):
            return None
    finally:
        engine.client.close()
    return None if _registry_answers(official, lambda _: None) else build_problem()


def start_command(image: str, *, report: Callable[[str], None] = lambda _: None) -> str | None:
    """Return the shell command that starts a standalone broker in that image, None for the image's own.

    Args:
        image: pulled first where the engine does not have it.
        report: called with one line when it is pulled.

    Raises:
        BrokerStartError: no engine answers, or it has no such image and cannot pull it.
    """
    engine = connect_engine()
    try:
        if not _is_present(engine, image):
            report(f"pulling {image}")
            engine.client.images.pull(image)
        labels = engine.client.images.get(image).labels
    except (DockerException, RequestException) as error:
        raise BrokerStartError(f"the Docker engine has no image {image} and cannot pull it: {error}") from error
    finally:
        engine.client.close()
    return None if labels.get(IMAGE_LABEL) else _OFFICIAL_COMMAND


def _is_present(engine: DockerClient, image: str) -> bool:
    try:
        engine.client.images.get(image)
    except ImageNotFound:
        return False
    return True


def _is_pulled(engine: DockerClient, image: str, report: Callable[[str], None]) -> bool:
    if not _registry_answers(image, report):
        return False
    report(f"pulling {image}")
    try:
        engine.client.images.pull(image)
    except (DockerException, RequestException) as error:
        _remember_refusal(image, error, report)
        return False
    return True


def _registry_answers(image: str, report: Callable[[str], None]) -> bool:
    """Ask in seconds what a pull would find out only after minutes, and believe a "no" for a while."""
    with contextlib.suppress(FileNotFoundError):
        if time.time() - _refusal_file().stat().st_mtime < _NO_REGISTRY_SECONDS:
            return False
    engine = connect_engine(timeout=_REGISTRY_SECONDS)
    try:
        engine.client.api.inspect_distribution(image)
    except NotFound as error:
        # There is a registry; it is only this version that it does not have.
        report(f"{image} cannot be pulled: {error}")
        return False
    except (DockerException, RequestException) as error:
        _remember_refusal(image, error, report)
        return False
    finally:
        engine.client.close()
    return True


def _remember_refusal(image: str, error: Exception, report: Callable[[str], None]) -> None:
    report(f"{image} cannot be pulled: {error}")
    # Without a cache to write to it is asked again each time, which costs seconds and no more.
    with contextlib.suppress(OSError):
        _refusal_file().parent.mkdir(parents=True, exist_ok=True)
        _refusal_file().touch()


def _refusal_file() -> Path:
    return cache_root() / "no-registry"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: show or build the image, or lay out the context for `docker build`."""
    parser = argparse.ArgumentParser(
        prog="python -m pulsar_ext.testing.image", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--pulsar-version", help=f"of the broker (default: {VARIABLE}, else {PULSAR_VERSION})")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show", help="make sure that there is an image to run, and print its name")
    build = commands.add_parser("build", help="build the image of docker/, whatever else there is, and print its name")
    build.add_argument("--base-image", help="bash and Java 17 or newer; by default one is made with debootstrap")
    context = commands.add_parser("context", help="lay out the context for a `docker build` of your own")
    context.add_argument("directory", type=Path, help="new or empty")
    context.add_argument("--machine", default=os.uname().machine, help="x86_64 or aarch64 (default: this one)")
    chosen = parser.parse_args(arguments)
    try:
        version = choose_version(chosen.pulsar_version)
        if chosen.command == "context":
            write_context(chosen.directory, chosen.machine, version, report=_print_progress)
        elif chosen.command == "build":
            engine = connect_engine()
            image = build_image(engine, version, base_image=chosen.base_image, report=_print_progress)
            sys.stdout.write(f"{image}\n")
        else:
            sys.stdout.write(f"{choose_image(report=_print_progress, version=version)}\n")
    except (BrokerStartError, InvalidUse) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _print_progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
