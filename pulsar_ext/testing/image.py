"""Which image a broker's container runs from, and the Docker engine that it runs on.

An image that was asked for by name is taken as it is. Else it is the official one where that is present or a registry
answers, and where none does, the small one that `docker/` describes, built on this machine the first time. The same is
there for people: `python -m pulsar_ext.testing.image {show,build,context DIRECTORY}`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docker.errors import DockerException, ImageNotFound  # type: ignore[import-not-found]  # mypy sees docker/
from requests.exceptions import RequestException
from testcontainers.core.docker_client import DockerClient

from pulsar_ext.errors import BrokerStartError

from .image_build import build_image, write_context
from .jars import cache_root
from .profiles import PULSAR_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = ["OFFICIAL_IMAGE", "choose_image", "connect_engine", "engine_problem", "main"]

OFFICIAL_IMAGE: Final = f"apachepulsar/pulsar:{PULSAR_VERSION}"

# How long the engine may take to say whether a registry answers, and how long a "no" is believed by later runs.
_REGISTRY_SECONDS: Final = 8
_NO_REGISTRY_SECONDS: Final = 3600.0
# The engine keeps silent while it unpacks a large layer.
_ENGINE_SECONDS: Final = 600


def connect_engine(timeout: int = _ENGINE_SECONDS) -> DockerClient:
    """Return a client of the Docker engine that testcontainers would use.

    Args:
        timeout: seconds that the engine may be silent before a call to it fails.

    Raises:
        BrokerStartError: no engine answers, or this user may not use it.
    """
    try:
        return DockerClient(timeout=timeout)
    except (DockerException, RequestException) as error:
        cause = str(error)
        if "Permission" in cause:
            advice = "this user may not use it: join the group docker, or run as root"
        else:
            advice = "start one, or point DOCKER_HOST at one"
        raise BrokerStartError(f"no Docker engine answers ({cause}): {advice}; or use a broker process") from error


def engine_problem() -> str | None:
    """Return why no Docker engine can be used here, in one line, or None if one can."""
    try:
        connect_engine(timeout=_REGISTRY_SECONDS).client.close()
    except BrokerStartError as error:
        return error.message
    return None


def choose_image(image: str | None = None, *, report: Callable[[str], None] = lambda _: None) -> str:
    """Return the name of the image to run, which the engine has, or can pull if it was asked for by name.

    Args:
        image: this one; by default that of `PULSAR_EXT_IMAGE`, else the official one, else one that is built here.
        report: is told in short lines what goes on when it takes longer.

    Raises:
        BrokerStartError: no engine answers, or no image can be had; the message says what to do.
    """
    if chosen := image or os.environ.get("PULSAR_EXT_IMAGE"):
        return chosen
    engine = connect_engine()
    try:
        if _is_present(engine, OFFICIAL_IMAGE) or _is_pulled(engine, report):
            return OFFICIAL_IMAGE
        return build_image(engine, report=report)
    finally:
        engine.client.close()


def _is_present(engine: DockerClient, image: str) -> bool:
    try:
        engine.client.images.get(image)
    except ImageNotFound:
        return False
    return True


def _is_pulled(engine: DockerClient, report: Callable[[str], None]) -> bool:
    refusal = cache_root() / "no-registry"
    try:
        if time.time() - refusal.stat().st_mtime < _NO_REGISTRY_SECONDS:
            return False
    except FileNotFoundError:
        pass
    try:
        # Whether the registry answers is asked separately, because a pull gives up only after minutes.
        _ask_registry()
        report(f"pulling {OFFICIAL_IMAGE}")
        engine.client.images.pull(OFFICIAL_IMAGE)
    except (DockerException, RequestException) as error:
        report(f"{OFFICIAL_IMAGE} cannot be pulled: {error}")
        refusal.parent.mkdir(parents=True, exist_ok=True)
        refusal.touch()
        return False
    return True


def _ask_registry() -> None:
    engine = connect_engine(timeout=_REGISTRY_SECONDS)
    try:
        engine.client.api.inspect_distribution(OFFICIAL_IMAGE)
    finally:
        engine.client.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: show or build the image, or lay out the context for `docker build`."""
    parser = argparse.ArgumentParser(
        prog="python -m pulsar_ext.testing.image", description=(__doc__ or "").split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show", help="make sure that there is an image to run, and print its name")
    build = commands.add_parser("build", help="build the image of docker/, whatever else there is, and print its name")
    build.add_argument("--base-image", help="bash and Java 17 or newer; by default one is made with debootstrap")
    context = commands.add_parser("context", help="lay out the context for a `docker build` of your own")
    context.add_argument("directory", type=Path, help="new or empty")
    context.add_argument("--machine", default=os.uname().machine, help="x86_64 or aarch64 (default: this one)")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "context":
            write_context(chosen.directory, chosen.machine, report=_print_progress)
        elif chosen.command == "build":
            engine = connect_engine()
            sys.stdout.write(f"{build_image(engine, base_image=chosen.base_image, report=_print_progress)}\n")
        else:
            sys.stdout.write(f"{choose_image(report=_print_progress)}\n")
    except BrokerStartError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _print_progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
