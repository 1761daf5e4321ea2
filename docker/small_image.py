"""Build the small image of a standalone broker, for machines on which no registry answers.

The command line is `python docker/small_image.py {build,context DIRECTORY}`; set `PULSAR_EXT_IMAGE` to the name that it
prints.

Slow results (the jars from Maven, the root file system from debootstrap) are kept in a cache outside the checkout, so
that a second build takes seconds. The image's tag has a hash of all its inputs, so that a change in this directory
leads to a new image, and an unchanged image is reused.

A standalone broker for tests runs neither functions nor connectors, uses Java's own TLS, and keeps its metadata in
RocksDB; half of the jars serve other features. The lists were made by logging every class that a broker loads while all
profiles and the admin REST API are used, and the integration tests on the image verify them. The process back end keeps
every jar: its class path is also the Java client's, for tests that compare with it.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docker.errors import BuildError, DockerException
from filelock import FileLock

from pulsar_ext.errors import BrokerStartError, InvalidUse
from pulsar_ext.testing.image import connect_engine, is_present
from pulsar_ext.testing.jars import cache_root, ensure_jars, find_java, oldest_java
from pulsar_ext.testing.profiles import PULSAR_VERSION, VARIABLE, broker_settings, choose_version, standalone_conf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

SOURCE: Path = Path(__file__).parent
"""Directory with the Dockerfile."""

_ARTIFACT: Final = re.compile(r"(?P<name>.+?)-\d[^/]*\.jar")
_NATIVE: Final = re.compile(r"\.(so|dll|dylib|jnilib)$")
# Names of the two supported machines in jars, and marks of foreign files for one of them.
_MACHINE_SPELLINGS: Final = {"x86_64": re.compile(r"x86[-_]64|amd64|linux64"), "aarch64": re.compile(r"aarch_?64")}
MACHINES: Final = tuple(_MACHINE_SPELLINGS)
_FOREIGN: Final = re.compile(r"musl|android|osx|darwin|mac|win|bsd|sunos|ppc", re.IGNORECASE)
_FASTUTIL: Final = re.compile(rb"it/unimi/dsi/fastutil/[\w$/]+")


def is_unneeded(jar_name: str) -> bool:
    """Return True if the image omits the jar with a file name."""
    artifact = _ARTIFACT.fullmatch(jar_name)
    unneeded = artifact is not None and any(re.fullmatch(one, artifact["name"]) for one in _unneeded())
    return unneeded or jar_name.endswith("-tests.jar")


@functools.cache
def _unneeded() -> list[str]:
    lines = (SOURCE / "unneeded-jars").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def slim_jars(jars: Iterable[Path], target: Path, machine: str, *, drop_unneeded: bool = True) -> None:
    """Copy the jars, without native libraries of other machines and the 94 % of fastutil that none refers to."""
    needed = [jar for jar in jars if not (drop_unneeded and is_unneeded(jar.name))]
    kept = [jar for jar in needed if not _is_of_other_machine(jar.name, machine)]
    fastutil = [jar for jar in kept if jar.name.startswith("fastutil-")]
    others = [jar for jar in kept if jar not in fastutil]
    for jar in others:
        _copy_jar(jar, target / jar.name, lambda entry: not _is_of_other_machine(entry, machine))
    for jar in fastutil:
        # Reflection never loads fastutil.
        used = _reachable(jar, {name for one in others for _, code in _classes(one) for name in _referenced_in(code)})
        _copy_jar(jar, target / jar.name, lambda entry, used=used: not entry.endswith(".class") or entry[:-6] in used)  # type: ignore[misc]


def _is_of_other_machine(name: str, machine: str) -> bool:
    native_jar = re.search(r"-(linux|osx|windows)-\w+\.jar$", name)
    if not native_jar and not _NATIVE.search(name):
        return False
    return _FOREIGN.search(name) is not None or _MACHINE_SPELLINGS[machine].search(name) is None


def _copy_jar(source: Path, target: Path, wanted: Callable[[str], bool]) -> None:
    with zipfile.ZipFile(source) as jar:
        entries = jar.infolist()
        if all(wanted(entry.filename) for entry in entries):
            shutil.copy2(source, target)
            return
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as smaller:
            for entry in entries:
                if wanted(entry.filename):
                    smaller.writestr(entry, jar.read(entry), zipfile.ZIP_DEFLATED)


def _reachable(fastutil: Path, start: set[str]) -> set[str]:
    code = dict(_classes(fastutil))
    found: set[str] = set()
    todo = start & code.keys()
    while todo:
        found |= todo
        todo = {name for known in todo for name in _referenced_in(code[known]) if name in code} - found
    return found


def _classes(jar: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            if entry.endswith(".class"):
                yield entry.removesuffix(".class"), archive.read(entry)


def _referenced_in(code: bytes) -> Iterator[str]:
    return (name.decode() for name in _FASTUTIL.findall(code))


_REPOSITORY: Final = "pulsar-ext-standalone"
_BASE_REPOSITORY: Final = "pulsar-ext-base"
_DIGITS: Final = 12


def local_tag(machine: str, version: str = PULSAR_VERSION, base_image: str | None = None) -> str:
    """Return the name of the image that `build_image` builds of a version for a machine."""
    digest = hashlib.sha256()
    for part in _inputs(machine, base_image):
        digest.update(len(part).to_bytes(8, "big") + part)
    return f"{_REPOSITORY}:{version}-{digest.hexdigest()[:_DIGITS]}"


def machine_of(engine: Any) -> str:
    """Return the engine's machine, `x86_64` or another name of `uname -m`."""
    return str(engine.info()["Architecture"])


def build_image(
    engine: Any,
    version: str = PULSAR_VERSION,
    *,
    base_image: str | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> str:
    """Return the name of the image that `docker/` describes, after building it if the engine lacks it.

    Several processes may call this at the same time: one builds, the others wait.
    """
    machine = machine_of(engine)
    tag = local_tag(machine, version, base_image)
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / "image.lock"):
            if not is_present(engine, tag):
                _build(engine, tag, version, base_image or _make_base(engine, version, report), machine, report)
    except OSError as error:
        raise BrokerStartError(
            f"cannot build {tag} ({error}); set PULSAR_EXT_CACHE to replace the cache {root}"
        ) from error
    return tag


def build_problem(version: str = PULSAR_VERSION) -> str | None:
    """Return why no base image can be made here and what to do about it, or None if one can."""
    if _base_archive(version).is_file():
        return None
    if shutil.which("debootstrap") is None:
        problem = "debootstrap is not installed (on Debian: apt-get install debootstrap)"
    elif os.geteuid() != 0:
        problem = "debootstrap has to run as root"
    else:
        return None
    return f"no base image can be made: {problem}; or pass --base-image, or use a broker process"


def write_context(
    directory: Path, machine: str, version: str = PULSAR_VERSION, *, report: Callable[[str], None] = lambda _: None
) -> None:
    """Write the context of `docker build` into a new or empty directory."""
    if machine not in MACHINES:
        raise BrokerStartError(f"machine must be one of {', '.join(MACHINES)}, got {machine!r}")
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise BrokerStartError(f"{directory} is not empty; name a new directory for the context")
    jars = sorted(ensure_jars(report, version).glob("*.jar"))
    report("removing jars that a standalone broker does not need")
    image = directory / "pulsar"
    for name in ("lib", "conf"):
        (image / name).mkdir(parents=True)
    (directory / "data").mkdir()
    # The list of unneeded jars was made, and is tested, with the default version.
    slim_jars(jars, image / "lib", machine, drop_unneeded=version == PULSAR_VERSION)
    (image / "conf" / "standalone.conf").write_text(_image_conf(), encoding="utf-8")
    shutil.copytree(SOURCE / "bin", image / "bin")
    shutil.copy(SOURCE / "Dockerfile", directory)


def _inputs(machine: str, base_image: str | None) -> Iterator[bytes]:
    yield from (machine.encode(), (base_image or "").encode(), _image_conf().encode())
    parts = (SOURCE / name for name in ("Dockerfile", "small_image.py", "rootfs", "unneeded-jars"))
    for path in (*parts, *sorted((SOURCE / "bin").iterdir())):
        yield path.name.encode()
        yield path.read_bytes()


def _image_conf() -> str:
    return standalone_conf(broker_settings(bind_address="0.0.0.0"))  # noqa: S104  # inside a container


def _build(engine: Any, tag: str, version: str, base: str, machine: str, report: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="pulsar-ext-") as scratch:
        context = Path(scratch, "context")
        write_context(context, machine, version, report=report)
        report(f"building {tag}")
        arguments = {"BASE_IMAGE": base, "PULSAR_VERSION": version}
        try:
            engine.images.build(path=str(context), tag=tag, buildargs=arguments, rm=True, forcerm=True)
        except (BuildError, DockerException) as error:
            raise BrokerStartError(f"the engine could not build {tag} on {base}: {error}") from error


def _make_base(engine: Any, version: str, report: Callable[[str], None]) -> str:
    archive = _base_archive(version)
    digest = archive.stem.removeprefix("rootfs-")
    base = f"{_BASE_REPOSITORY}:{digest}"
    if not is_present(engine, base):
        if not archive.is_file():
            _run_debootstrap(version, archive, report)
        report(f"importing {base}")
        engine.api.import_image_from_file(str(archive), repository=_BASE_REPOSITORY, tag=digest)
    return base


def _base_archive(version: str) -> Path:
    parts = "\n".join([os.uname().machine, *_own_jdk(version)])
    digest = hashlib.sha256((SOURCE / "rootfs").read_bytes() + parts.encode()).hexdigest()[:_DIGITS]
    return cache_root() / f"rootfs-java{oldest_java(version)}-{digest}.tar"


def _own_jdk(version: str) -> list[str]:
    """Return the JDK of this machine for the image of a version; empty if Debian's is new enough."""
    return [] if oldest_java(version) == oldest_java(None) else [str(find_java(version).resolve().parents[1])]


def _run_debootstrap(version: str, archive: Path, report: Callable[[str], None]) -> None:
    if problem := build_problem(version):
        raise BrokerStartError(problem)
    report("making a base image with debootstrap, about a minute")
    log = archive.with_suffix(".log")
    with log.open("w+") as output:
        status = subprocess.run(
            ["bash", str(SOURCE / "rootfs"), str(archive), *_own_jdk(version)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
        output.seek(0)
        last = output.read().splitlines()[-10:]
    if status.returncode != 0:
        raise BrokerStartError("\n".join([f"debootstrap could not make a base image; the end of {log}:", *last]))
    # Archives of earlier versions of the script are of no use.
    for old in archive.parent.glob(f"rootfs-java{oldest_java(version)}-*"):
        if old not in (archive, log):
            old.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: build the image, or write the context of `docker build`."""
    parser = argparse.ArgumentParser(prog="python docker/small_image.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pulsar-version", help=f"of the broker (default: {VARIABLE}, else {PULSAR_VERSION})")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the image if the engine lacks it, and print its name")
    build.add_argument("--base-image", help="bash and a Java for the broker; by default one is made with debootstrap")
    context = commands.add_parser("context", help="write the context for `docker build`")
    context.add_argument("directory", type=Path, help="new or empty")
    context.add_argument("--machine", default=os.uname().machine, help="x86_64 or aarch64 (default: this one)")
    chosen = parser.parse_args(arguments)
    try:
        version = choose_version(chosen.pulsar_version)
        if chosen.command == "context":
            write_context(chosen.directory, chosen.machine, version, report=_print_progress)
        else:
            engine = connect_engine()
            image = build_image(engine, version, base_image=chosen.base_image, report=_print_progress)
            sys.stdout.write(f"{image}\n")
    except (BrokerStartError, InvalidUse) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _print_progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
