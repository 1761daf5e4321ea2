"""Java and the broker's jars: found, fetched with Maven once, and checked before each use.

The jars live in a cache outside any checkout, with a manifest of what must be there. A cache that is half filled or
damaged is noticed in a fraction of a second and filled again; where it cannot be, the error says what to do.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock

from pulsar_ext.errors import BrokerStartError

from .profiles import PULSAR_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["cache_root", "cached_jars", "ensure_jars", "find_damage", "find_java"]

_OLDEST_JAVA: Final = 17
_MAVEN_SECONDS: Final = 1800.0
_MANIFEST: Final = "manifest.json"

# Without the imported project pom, mediation picks OpenTelemetry jars that do not fit, and the broker dies.
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pulsar-ext</groupId><artifactId>broker-jars</artifactId><version>1</version>
  <dependencyManagement><dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar</artifactId><version>{version}</version>
    <type>pom</type><scope>import</scope>
  </dependency></dependencies></dependencyManagement>
  <dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""


def cache_root() -> Path:
    """Return the directory for what is fetched once: `PULSAR_EXT_CACHE`, else the platform's cache directory."""
    if chosen := os.environ.get("PULSAR_EXT_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pulsar_ext"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulsar_ext"


def cached_jars() -> Path:
    """Return the directory where the broker's jars are, or will be."""
    return cache_root() / f"pulsar-{PULSAR_VERSION}"


def find_java() -> Path:
    """Return the `java` to run: that of `JAVA_HOME`, else the one on the path.

    Raises:
        BrokerStartError: no Java is found, it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    advice = f"install Java {_OLDEST_JAVA} or newer (a JRE is enough), or point JAVA_HOME at one"
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the path"
        raise BrokerStartError(f"there is no java {where}: {advice}; or use a Docker engine")
    try:
        answer = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerStartError(f"{found} does not run ({error}): {advice}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if version is None:
        raise BrokerStartError(f"{found} does not print its version: {advice}")
    if int(version[1]) < _OLDEST_JAVA:
        raise BrokerStartError(f"{found} is Java {version[1]}, too old for Pulsar {PULSAR_VERSION}: {advice}")
    return Path(found)


def ensure_jars(report: Callable[[str], None] = lambda _: None) -> Path:
    """Return the directory with the broker's jars, fetching or repairing them first where needed.

    Several processes may call this at once: one fetches, the others wait for it.

    Args:
        report: called with short lines of progress when it takes longer.

    Raises:
        BrokerStartError: the jars are not there and cannot be fetched; the message says what to do.
    """
    directory = cached_jars()
    root = directory.parent
    if find_damage(directory) is None:
        return directory
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{directory.name}.lock"):
            # The process that held the lock before may have done the work.
            damage = find_damage(directory)
            if damage is not None:
                report(f"{directory}: {damage}; fetching the jars of Pulsar {PULSAR_VERSION} with Maven")
                _replace(directory, damage, report)
    except OSError as error:
        raise BrokerStartError(f"cannot write the cache {root} ({error}): set PULSAR_EXT_CACHE to another") from error
    return directory


def find_damage(directory: Path) -> str | None:
    """Return in a few words what is wrong with a directory of jars, or None if all of it is as it was fetched.

    A jar whose size and time are as recorded is taken as it is; any other one is read and compared.
    """
    if not directory.is_dir():
        return "not there yet"
    try:
        manifest = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        bad = [name for name, facts in manifest["jars"].items() if not _is_intact(directory / name, facts)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "its manifest is missing or damaged"
    # The class path is every jar of the directory, so one too many is as wrong as one too few.
    bad += sorted({path.name for path in directory.glob("*.jar")} - manifest["jars"].keys())
    return f"{len(bad)} of its jars are missing or damaged ({', '.join(bad[:3])})" if bad else None


def _is_intact(path: Path, facts: dict[str, object]) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    if status.st_size != facts["size"]:
        return False
    return status.st_mtime_ns == facts["mtime_ns"] or _digest(path) == facts["sha1"]


def _replace(directory: Path, damage: str, report: Callable[[str], None]) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
    try:
        _copy_dependencies(fresh, f"{directory}: {damage}", report)
        _check_and_record(fresh)
        fresh.chmod(0o755)
        if directory.exists():
            # A broker that still runs on the old jars keeps them open, so they are moved away first and then deleted.
            old = Path(tempfile.mkdtemp(prefix=f"{directory.name}.old.", dir=directory.parent))
            directory.rename(old / "lib")
            fresh.rename(directory)
            shutil.rmtree(old, ignore_errors=True)
        else:
            fresh.rename(directory)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _copy_dependencies(target: Path, state: str, report: Callable[[str], None]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerStartError(
            f"the jars of Pulsar {PULSAR_VERSION} are needed ({state}), and there is no mvn on the path to fetch them: "
            "install Maven, or use a Docker engine, or copy the directory from a machine that has it"
        )
    with tempfile.TemporaryDirectory(prefix="pulsar-ext-") as scratch:
        pom = Path(scratch, "pom.xml")
        pom.write_text(_POM.format(version=PULSAR_VERSION), encoding="utf-8")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        command = [maven, "-B", "-f", str(pom), *goal]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=scratch
        ) as run:
            try:
                said = _follow(run.stdout or (), report)
                status = run.wait(_MAVEN_SECONDS)
            except BaseException:
                run.kill()
                raise
    if status != 0:
        errors = [line for line in said if line.startswith("[ERROR]")][:6] or said[-6:]
        raise BrokerStartError(
            f"Maven could not fetch the jars of Pulsar {PULSAR_VERSION} (exit status {status}); they are needed once, "
            "with a network or a filled local repository. What it said:\n" + "\n".join(errors)
        )


def _follow(lines: Iterable[str], report: Callable[[str], None]) -> list[str]:
    said = [""]
    counts: Counter[str] = Counter()
    for line in lines:
        said.append(line.rstrip())
        if step := re.search(r"\b(Downloaded|Copying)\b.*\.jar", line):
            counts[step[1]] += 1
            report(f"{step[1].lower()} jars: {counts[step[1]]}")
    return said


def _check_and_record(directory: Path) -> None:
    jars = sorted(directory.glob("*.jar"))
    if not any(path.name.startswith("pulsar-broker-") for path in jars):
        raise BrokerStartError("Maven ended well but copied no pulsar-broker jar; run `mvn -version` and look at it")
    broken = [path.name for path in jars if not zipfile.is_zipfile(path)]
    if broken:
        raise BrokerStartError(
            f"{len(broken)} jars in Maven's local repository are damaged ({', '.join(broken[:3])}): delete them there "
            "and try again"
        )
    manifest = {"version": PULSAR_VERSION, "jars": {path.name: _facts(path) for path in jars}}
    (directory / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _facts(path: Path) -> dict[str, object]:
    status = path.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha1": _digest(path)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()
