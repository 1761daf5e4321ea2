"""Image of a broker's container: a named one, or the official one, which is pulled if a registry answers."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from docker.errors import DockerException, ImageNotFound, NotFound  # type: ignore[import-not-found]  # mypy sees docker/
from requests.exceptions import RequestException
from testcontainers.core.docker_client import DockerClient, get_docker_host

from pulsar_ext.errors import BrokerStartError

from .jars import cache_root
from .profiles import choose_version

if TYPE_CHECKING:
    from collections.abc import Callable


Engine: TypeAlias = Any
"""Client of docker's package, which has no types here, or one of its containers."""

IMAGE_LABEL: Final = "pulsar-ext.image"
"""Label of images that start a standalone broker themselves, as those of the repository's `docker/`."""

_IMAGE_VARIABLE: Final = "PULSAR_EXT_IMAGE"

# From its documentation; `exec` replaces the shell, so that signals reach the broker.
_OFFICIAL_COMMAND: Final = "bin/apply-config-from-env.py conf/standalone.conf && exec bin/pulsar standalone -nfw -nss"

_DEFAULT_SOCKET: Final = "unix:///var/run/docker.sock"

# Timeout for a registry's answer, and time for which a missing answer is cached.
_REGISTRY_SECONDS: Final = 8
_NO_REGISTRY_SECONDS: Final = 3600.0
# The engine sends nothing while it unpacks a large layer.
_ENGINE_SECONDS: Final = 600


def connect_engine(timeout: int = _ENGINE_SECONDS) -> Engine:
    """Return a client of docker's package for the engine that testcontainers would use; it has to be closed."""
    address = get_docker_host() or _DEFAULT_SOCKET
    try:
        if address.startswith("unix://"):
            with socket.socket(socket.AF_UNIX) as probe:  # unlike the client's, a failed attempt leaves no socket open
                probe.connect(address.removeprefix("unix://"))
        return DockerClient(timeout=timeout).client
    except (DockerException, RequestException, OSError) as error:
        if isinstance(error, PermissionError) or "Permission denied" in str(error):
            advice = "permission denied: join the group of its socket (often docker), or run as root"
        else:
            advice = "start one, or set DOCKER_HOST"
        raise BrokerStartError(
            f"no Docker engine answers at {address} ({error}): {advice}; or use a broker process"
        ) from error


def choose_image(
    image: str | None = None, *, report: Callable[[str], None] = lambda _: None, version: str | None = None
) -> str:
    """Return the name of the image to run: the named one, which may have to be pulled, or the official one."""
    if chosen := image or os.environ.get(_IMAGE_VARIABLE):
        return chosen
    official = f"apachepulsar/pulsar:{choose_version(version)}"
    with contextlib.closing(connect_engine()) as engine:
        if is_present(engine, official) or _is_pulled(engine, official, report):
            return official
    raise BrokerStartError(
        f"the Docker engine has no image {official} and cannot pull it: set {_IMAGE_VARIABLE} to an image that it has, "
        "such as one that docker/small_image.py of the repository built; or use a broker process"
    )


def start_command(image: str, *, report: Callable[[str], None] = lambda _: None) -> str | None:
    """Return the shell command that starts a standalone broker in an image, None for the image's own."""
    with contextlib.closing(connect_engine()) as engine:
        try:
            if not is_present(engine, image):
                report(f"pulling {image}")
                engine.images.pull(image)
            labels = engine.images.get(image).labels
        except (DockerException, RequestException) as error:
            raise BrokerStartError(f"the Docker engine has no image {image} and cannot pull it: {error}") from error
    return None if labels.get(IMAGE_LABEL) else _OFFICIAL_COMMAND


def is_present(engine: Engine, image: str) -> bool:
    """Return True if the engine has an image."""
    try:
        engine.images.get(image)
    except ImageNotFound:
        return False
    return True


def _is_pulled(engine: Engine, image: str, report: Callable[[str], None]) -> bool:
    """Pull an image if a registry has it; one that does not answer costs seconds, so it is asked once an hour."""
    no_registry = cache_root() / "no-registry"
    with contextlib.suppress(FileNotFoundError):
        if time.time() - no_registry.stat().st_mtime < _NO_REGISTRY_SECONDS:
            return False
    try:
        with contextlib.closing(connect_engine(_REGISTRY_SECONDS)) as impatient:
            impatient.api.inspect_distribution(image)
        report(f"pulling {image}")
        engine.images.pull(image)
    except (DockerException, RequestException) as error:
        report(f"{image} cannot be pulled: {error}")
        if not isinstance(error, NotFound):  # else the registry answers, but lacks this version
            # Without a writable cache each run asks again, which costs seconds only.
            with contextlib.suppress(OSError):
                no_registry.parent.mkdir(parents=True, exist_ok=True)
                no_registry.touch()
        return False
    return True
