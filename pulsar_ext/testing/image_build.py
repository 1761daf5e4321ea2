"""Building the small image: its context, its base, and the one command that puts them together.

Everything that takes long (the jars from Maven, the root file system from debootstrap) is kept in the cache outside any
checkout, so that a second build takes seconds. The image's tag holds a hash of all that goes into it, so that a change
in `docker/` or in the lists of jars is a new image, and an unchanged one is found again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docker.errors import BuildError, DockerException, ImageNotFound  # type: ignore[import-not-found]  # mypy sees docker/
from filelock import FileLock

from pulsar_ext.errors import BrokerStartError

from . import slim
from .jars import cache_root, ensure_jars
from .profiles import PULSAR_VERSION, broker_settings, standalone_conf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testcontainers.core.docker_client import DockerClient

__all__ = ["IMAGE_LABEL", "build_image", "build_problem", "local_tag", "machine_of", "write_context"]

IMAGE_LABEL: Final = "pulsar-ext.image"
"""The label by which an image made from `docker/` is known."""

_REPOSITORY: Final = "pulsar-ext-standalone"
_BASE_REPOSITORY: Final = "pulsar-ext-base"
_DIGITS: Final = 12


def docker_directory() -> Path:
    """Return the directory with the Dockerfile: the one inside an installed package, else that of the checkout."""
    packaged = Path(__file__).parent / "_docker"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "docker"


def local_tag(machine: str, version: str = PULSAR_VERSION, base_image: str | None = None) -> str:
    """Return the name of the image that `build_image` makes of that version for that machine."""
    digest = hashlib.sha256()
    for part in _inputs(machine, base_image):
        digest.update(len(part).to_bytes(8, "big") + part)
    return f"{_REPOSITORY}:{version}-{digest.hexdigest()[:_DIGITS]}"


def machine_of(engine: DockerClient) -> str:
    """Return what kind of machine the engine runs on, `x86_64` or another name as `uname -m` gives it."""
    return str(engine.client.info()["Architecture"])


def build_image(
    engine: DockerClient,
    version: str = PULSAR_VERSION,
    *,
    base_image: str | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> str:
    """Return the name of the image that `docker/` describes, after building it if the engine does not have it.

    Several processes may call this at once: one builds, the others wait for it.

    Args:
        engine: the Docker engine.
        version: of the broker.
        base_image: any Linux with bash and Java 17 or newer on the path; by default one is made with debootstrap.
        report: called with short lines of progress.

    Raises:
        BrokerStartError: something to build with is missing, or the build failed; the message says what to do.
    """
    machine = machine_of(engine)
    tag = local_tag(machine, version, base_image)
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / "image.lock"):
            if not _has(engine, tag):
                _build(engine, tag, version, base_image or _make_base(engine, report), machine, report)
    except OSError as error:
        raise BrokerStartError(f"cannot build {tag} ({error}); PULSAR_EXT_CACHE moves the cache {root}") from error
    return tag


def build_problem() -> str | None:
    """Say why no base image can be made here and what to do about it, or return None if one can."""
    if _base_archive().is_file():
        return None
    if shutil.which("debootstrap") is None:
        problem = "debootstrap is not installed (on Debian: apt-get install debootstrap)"
    elif os.geteuid() != 0:
        problem = "debootstrap has to run as root"
    else:
        return None
    return (
        f"no registry answers for the official image, and none can be built here: {problem}; or name an image in "
        "PULSAR_EXT_IMAGE, or use a broker process"
    )


def write_context(
    directory: Path,
    machine: str,
    version: str = PULSAR_VERSION,
    *,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Lay out in a new or empty directory what `docker build` needs.

    Raises:
        BrokerStartError: the directory is not empty, the machine is unknown, or the jars cannot be had.
    """
    if machine not in slim.MACHINES:
        raise BrokerStartError(f"no image for the machine {machine!r}: it must be one of {', '.join(slim.MACHINES)}")
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise BrokerStartError(f"{directory} is not empty; name a new directory for the context")
    jars = sorted(ensure_jars(report, version).glob("*.jar"))
    report("leaving out what a standalone broker does not need of its jars")
    source, image = docker_directory(), directory / "pulsar"
    for name in ("lib", "conf", "bin"):
        (image / name).mkdir(parents=True)
    (directory / "data").mkdir()
    # Which jars a broker never loads was found out, and is tested, with the default version.
    slim.slim_jars(jars, image / "lib", machine, leave_out=version == PULSAR_VERSION)
    (image / "conf" / "standalone.conf").write_text(_image_conf(), encoding="utf-8")
    for script in sorted((source / "bin").iterdir()):
        # An installed package may have lost the mode.
        Path(shutil.copy(script, image / "bin")).chmod(0o755)
    shutil.copy(source / "Dockerfile", directory)


def _inputs(machine: str, base_image: str | None) -> Iterator[bytes]:
    source = docker_directory()
    yield from (machine.encode(), (base_image or "").encode(), _image_conf().encode(), Path(slim.__file__).read_bytes())
    for path in [source / "Dockerfile", source / "rootfs", *sorted((source / "bin").iterdir())]:
        yield path.name.encode()
        yield path.read_bytes()


def _image_conf() -> str:
    return standalone_conf(broker_settings(bind_address="0.0.0.0"))  # noqa: S104  # inside a container


def _has(engine: DockerClient, image: str) -> bool:
    try:
        engine.client.images.get(image)
    except ImageNotFound:
        return False
    return True


def _build(
    engine: DockerClient, tag: str, version: str, base: str, machine: str, report: Callable[[str], None]
) -> None:
    with tempfile.TemporaryDirectory(prefix="pulsar-ext-") as scratch:
        context = Path(scratch, "context")
        write_context(context, machine, version, report=report)
        report(f"building {tag}")
        arguments = {"BASE_IMAGE": base, "PULSAR_VERSION": version}
        try:
            engine.client.images.build(path=str(context), tag=tag, buildargs=arguments, rm=True, forcerm=True)
        except (BuildError, DockerException) as error:
            raise BrokerStartError(f"the engine could not build {tag} on {base}: {error}") from error


def _make_base(engine: DockerClient, report: Callable[[str], None]) -> str:
    archive = _base_archive()
    digest = archive.stem.removeprefix("rootfs-")
    base = f"{_BASE_REPOSITORY}:{digest}"
    if not _has(engine, base):
        if not archive.is_file():
            _run_debootstrap(docker_directory() / "rootfs", archive, report)
        report(f"importing {base}")
        engine.client.api.import_image_from_file(str(archive), repository=_BASE_REPOSITORY, tag=digest)
    return base


def _base_archive() -> Path:
    script = docker_directory() / "rootfs"
    digest = hashlib.sha256(script.read_bytes() + os.uname().machine.encode()).hexdigest()[:_DIGITS]
    return cache_root() / f"rootfs-{digest}.tar"


def _run_debootstrap(script: Path, archive: Path, report: Callable[[str], None]) -> None:
    if problem := build_problem():
        raise BrokerStartError(problem)
    report("making a base image with debootstrap, about a minute")
    log = archive.with_suffix(".log")
    with log.open("w+") as said:
        status = subprocess.run(
            ["bash", str(script), str(archive)], stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False
        )
        said.seek(0)
        last = said.read().splitlines()[-10:]
    if status.returncode != 0:
        raise BrokerStartError("\n".join([f"debootstrap could not make a base image; the end of {log}:", *last]))
    # Of earlier states of the script nothing else is left to find.
    for old in archive.parent.glob("rootfs-*"):
        if old not in (archive, log):
            old.unlink()
