"""Which of the broker's jars the image leaves out, and how the rest are made smaller.

A standalone broker for tests runs neither functions nor connectors, has its TLS from Java alone, and keeps its metadata
in RocksDB; half of the jars serve what is not there. The lists were found by logging every class that a broker loads
while all profiles and the admin REST API are exercised, and are proven by the integration tests that run on the image.
The process back end keeps every jar: its class path is also the Java client's, for tests that compare with it.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

__all__ = ["MACHINES", "UNNEEDED_JARS", "is_unneeded", "slim_jars"]

UNNEEDED_JARS: Final[dict[str, tuple[str, ...]]] = {
    "etcd, Oxia and the state storage, which talk gRPC; the metadata is in RocksDB and -nss turns the storage off": (
        "grpc-.*",
        "jetcd-.*",
        "oxia-.*",
        "perfmark-api",
        "proto-google-common-protos",
        "protobuf-java-util",
        "stream-storage-(api|common|java-client.*|proto|server)",
        "statelib",
        "zero-allocation-hashing",
        "vertx-.*",
        "failsafe",
    ),
    "functions on Kubernetes; -nfw turns functions off": (
        "client-java.*",
        "gson-fire",
        "rxjava",
        "google-(auth|http).*",
        "opencensus-.*",
        "jose4j",
        "okhttp.*",
        "okio.*",
        "kotlin-stdlib",
        "logging-interceptor",
        "commons-compress",
        "byte-buddy",
        "zt-zip",
        "typetools",
    ),
    "native TLS, instead of Java's own, and end-to-end encryption; of Bouncy Castle the provider stays": (
        "bc(pkix|util)-.*",
        "bouncy-castle-.*",
        "conscrypt-.*",
        "netty-tcnative-boringssl-static",
        "pulsar-client-messagecrypto-bc",
        "jetty-alpn-.*",
    ),
    "ZooKeeper clients of a real cluster; its servers need snappy, and its set-up the state storage's own": (
        "curator-.*",
        "jcommander",
    ),
    "other operating systems": ("netty-resolver-dns-(native|classes)-macos",),
    "host metrics and exporters that are off by default": (
        "oshi-core.*",
        "jna-.*",
        "opentelemetry-exporter-.*",
        "prometheus-metrics-.*",
    ),
    "annotations that only a compiler reads, and test jars": (
        "checker-qual",
        "error_prone_annotations",
        "j2objc-annotations",
        "animal-sniffer-annotations",
        "listenablefuture",
    ),
}
"""Why, and the artifacts (regular expressions, without version) that a standalone broker for tests never loads."""

_UNNEEDED: Final = re.compile("|".join(f"(?:{name})" for names in UNNEEDED_JARS.values() for name in names))
_ARTIFACT: Final = re.compile(r"(?P<name>.+?)-\d[^/]*\.jar")
_NATIVE: Final = re.compile(r"\.(so|dll|dylib|jnilib)$")
# How the jars spell the two machines that Docker engines run on, and what marks a foreign file of the same machine.
_MACHINE_SPELLINGS: Final = {
    "x86_64": re.compile(r"x86[-_]64|amd64|linux64"),
    "aarch64": re.compile(r"aarch_?64"),
}
MACHINES: Final = tuple(_MACHINE_SPELLINGS)
_FOREIGN: Final = re.compile(r"musl|android|osx|darwin|mac|win|bsd|sunos|ppc", re.IGNORECASE)
_FASTUTIL: Final = re.compile(rb"it/unimi/dsi/fastutil/[\w$/]+")


def is_unneeded(jar_name: str) -> bool:
    """Return whether the image leaves out the jar of that file name."""
    artifact = _ARTIFACT.fullmatch(jar_name)
    needless = artifact is not None and _UNNEEDED.fullmatch(artifact["name"]) is not None
    return needless or jar_name.endswith("-tests.jar")


def slim_jars(jars: Iterable[Path], target: Path, machine: str, *, leave_out: bool = True) -> None:
    """Copy what the image needs of the jars into the empty directory `target`.

    Native libraries of other machines go, and so do the 94 % of fastutil that no other jar refers to.

    Args:
        jars: all jars of the broker.
        target: where the copies go.
        machine: the engine's machine, `x86_64` or `aarch64`.
        leave_out: whether those of `UNNEEDED_JARS` go.
    """
    needed = [jar for jar in jars if not (leave_out and is_unneeded(jar.name))]
    kept = [jar for jar in needed if not _is_of_other_machine(jar.name, machine)]
    fastutil = [jar for jar in kept if jar.name.startswith("fastutil-")]
    others = [jar for jar in kept if jar not in fastutil]
    for jar in others:
        _copy_jar(jar, target / jar.name, lambda entry: not _is_of_other_machine(entry, machine))
    for jar in fastutil:
        used = _reachable(jar, _references(others))
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


def _references(jars: Iterable[Path]) -> set[str]:
    """Return the fastutil classes that the classes in these jars name; nothing loads fastutil by reflection."""
    return {name for jar in jars for _, code in _classes(jar) for name in _named_in(code)}


def _reachable(fastutil: Path, start: set[str]) -> set[str]:
    code = dict(_classes(fastutil))
    found: set[str] = set()
    todo = start & code.keys()
    while todo:
        found |= todo
        todo = {name for known in todo for name in _named_in(code[known]) if name in code} - found
    return found


def _classes(jar: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            if entry.endswith(".class"):
                yield entry.removesuffix(".class"), archive.read(entry)


def _named_in(code: bytes) -> Iterator[str]:
    return (name.decode() for name in _FASTUTIL.findall(code))
