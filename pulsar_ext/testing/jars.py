"""Java and the broker's jars: found, fetched with Maven once, and checked before each use.

The jars live in a cache outside any checkout, with a manifest of what must be there. A cache that is half filled or
damaged is noticed in a fraction of a second and filled again; where it cannot be, the error says what to do. The jars
of the default version must be as the committed list of SHA-256 sums has them, those of another one stay as they were
fetched. Maven uses whatever repositories, mirrors and credentials it is configured with.
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
import time
import zipfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from filelock import FileLock

from pulsar_ext.errors import BrokerStartError

from .profiles import choose_version, newest_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def committed_sums(version: str) -> dict[str, str] | None:
    """Return the sum of each jar by its file name, as this package knows them; None for a version without a list.

    The list is a file as `sha256sum *.jar` writes it.
    """
    path = _lists() / f"pulsar-{version}.sha256"
    if not path.is_file():
        return None
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {name: digest for digest, name in lines}


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Say of each jar that is not as wanted what is wrong with it: its name, the sum found, and the one wanted."""
    wrong = []
    for name in sorted(found.keys() | wanted.keys()):
        if name not in found:
            wrong.append(f"{name} is missing (wanted: SHA-256 {wanted[name]})")
        elif name not in wanted:
            wrong.append(f"{name} does not belong there (found: SHA-256 {found[name]})")
        elif found[name] != wanted[name]:
            wrong.append(f"{name} is another file (found: SHA-256 {found[name]}, wanted: {wanted[name]})")
    return wrong


def sum_of(path: Path) -> str:
    """Return the SHA-256 sum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lists() -> Path:
    return Path(__file__).parent


_SECONDS: Final = 1800.0
_ERROR_LINES: Final = 6
_REPORT_SECONDS: Final = 10.0

# Without the imported project pom, mediation picks OpenTelemetry jars that do not fit, and the broker dies.
_MANAGED: Final = """\
  <dependencyManagement><dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar</artifactId><version>{version}</version>
    <type>pom</type><scope>import</scope>
  </dependency></dependencies></dependencyManagement>
"""
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pulsar-ext</groupId><artifactId>broker-jars</artifactId><version>1</version>
{managed}  <dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""
# For a range Maven asks every repository for the versions that it has; in this one there is none, so that it ends there
# instead of reading the project files of each.
_EMPTY_RANGE: Final = "(,0]"
_METADATA: Final = "org/apache/pulsar/pulsar-broker"


class _Run(NamedTuple):
    status: int
    said: list[str]


def copy_jars(version: str, target: Path, state: str, report: Callable[[str], None], count: int | None = None) -> None:
    """Have Maven copy the jars of a broker into an empty directory; what it downloads must have the right checksum.

    Args:
        version: of the broker.
        target: where they go.
        state: why they are needed, for the error.
        report: called with short lines of progress, one in ten seconds.
        count: number of jars that are expected; None if it is not known.

    Raises:
        BrokerStartError: there is no Maven, or it failed. `served` are the versions that the repositories say they
            have, the newest first; empty if they could not be asked.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerStartError(
            f"the jars of Pulsar {version} are needed ({state}), and there is no mvn on the path to fetch them: "
            "install Maven, or use a Docker engine, or copy the directory from a machine that has it"
        )
    run = _run(
        maven,
        _POM.format(managed=_MANAGED.format(version=version), version=version),
        target,
        partial(follow, report, count),
    )
    if run.status != 0:
        report(f"Maven could not fetch Pulsar {version}; asking it which versions there are")
        raise _failure(version, run, _served(maven, target))


def _failure(version: str, run: _Run, served: list[str]) -> BrokerStartError:
    listed = ", ".join(served)
    if served and version not in served:
        text = f"the repositories that Maven uses here do not serve Pulsar {version}; they serve {listed}"
        return BrokerStartError(text, served=served)
    errors = [line for line in run.said if line.startswith("[ERROR]")][:_ERROR_LINES] or run.said[-_ERROR_LINES:]
    advice = (
        f"the repositories that Maven uses here have this version, but not all that it needs; they serve {listed}"
        if served
        else "they are needed once, with a network or a filled local repository"
    )
    return BrokerStartError(
        f"Maven could not fetch the jars of Pulsar {version} (exit status {run.status}); {advice}. What it said:\n"
        + "\n".join(errors),
        served=served,
    )


def _served(maven: str, target: Path) -> list[str]:
    """Return the versions that the configured repositories say they have; Maven keeps their answers in a file each."""
    run = _run(maven, _POM.format(managed="", version=_EMPTY_RANGE), target, list, "-X", "-U")
    found: set[str] = set()
    for line in run.said:
        if place := re.search(r"Using local repository at (.+)", line):
            for path in Path(place[1].strip(), _METADATA).glob("maven-metadata-*.xml"):
                found.update(re.findall(r"<version>\s*([^<\s]+)\s*</version>", path.read_text(encoding="utf-8")))
    return newest_first(found)


def _run(maven: str, pom: str, target: Path, follow: Callable[[Iterable[str]], list[str]], *options: str) -> _Run:
    with tempfile.TemporaryDirectory(prefix="pulsar-ext-") as scratch:
        path = Path(scratch, "pom.xml")
        path.write_text(pom, encoding="utf-8")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        command = [maven, "-B", "--strict-checksums", *options, "-f", str(path), *goal]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=scratch
        ) as run:
            try:
                said = [line.rstrip() for line in follow(run.stdout or ())]
                return _Run(run.wait(_SECONDS), ["", *said])
            except BaseException:
                run.kill()
                raise


def follow(
    report: Callable[[str], None],
    count: int | None,
    lines: Iterable[str],
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Read what Maven says, and report how far it is, once in ten seconds and at the end; return the lines.

    Args:
        report: called with a short line.
        count: number of jars that are expected; None if it is not known.
        lines: what Maven says.
        clock: returns the time in seconds.
    """
    said: list[str] = []
    counts: Counter[str] = Counter()
    reported = clock()
    total = "" if count is None else f" of {count}"
    for line in lines:
        said.append(line)
        if step := re.search(r"\b(Downloaded|Copying)\b.*\.jar", line):
            counts[step[1]] += 1
            if clock() - reported >= _REPORT_SECONDS:
                reported = clock()
                report(_progress(counts, total))
    if counts:
        report(_progress(counts, total))
    return said


def _progress(counts: Counter[str], total: str) -> str:
    return f"jars: {counts['Downloaded']} downloaded, {counts['Copying']}{total} copied"


_OLDEST_JAVA: Final = 17
_MANIFEST: Final = "manifest.json"
_SHOWN: Final = 3


def cache_root() -> Path:
    """Return the directory for what is fetched once: `PULSAR_EXT_CACHE`, else the platform's cache directory."""
    if chosen := os.environ.get("PULSAR_EXT_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pulsar_ext"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulsar_ext"


def cached_jars(version: str | None = None) -> Path:
    """Return the directory where the jars of that version are, or will be; by default of `choose_version()`.

    Raises:
        InvalidUse: the version does not look like one.
    """
    return cache_root() / f"pulsar-{choose_version(version)}"


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
        raise BrokerStartError(f"{found} is Java {version[1]}, too old for Pulsar: {advice}")
    return Path(found)


def ensure_jars(report: Callable[[str], None] = lambda _: None, version: str | None = None) -> Path:
    """Return the directory with the broker's jars, fetching or repairing them first where needed.

    Several processes may call this at once: one fetches, the others wait for it.

    Args:
        report: called with short lines of progress when it takes longer.
        version: of the broker; by default that of `choose_version()`.

    Raises:
        InvalidUse: the version does not look like one.
        BrokerStartError: the jars are not there and cannot be fetched, or are not those that are known; the message
            says what to do.
    """
    chosen = choose_version(version)
    directory = cached_jars(chosen)
    root = directory.parent
    if find_damage(chosen) is None:
        return directory
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{directory.name}.lock"):
            # The process that held the lock before may have done the work.
            damage = find_damage(chosen)
            if damage is not None and not _is_known(directory, chosen):
                report(f"{directory}: {damage}; fetching the jars of Pulsar {chosen} with Maven")
                _replace(directory, chosen, damage, report)
    except OSError as error:
        raise BrokerStartError(f"cannot write the cache {root} ({error}): set PULSAR_EXT_CACHE to another") from error
    return directory


def find_damage(version: str | None = None) -> str | None:
    """Return in a few words what is wrong with the cached jars of a version, or None if all of them are as wanted.

    A jar whose size and time are as recorded is taken as it was then; any other one is read. Wanted is what the
    committed list says, or where there is none what was recorded.
    """
    chosen = choose_version(version)
    directory = cached_jars(chosen)
    if not directory.is_dir():
        return "not there yet"
    try:
        recorded = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))["jars"]
        # The class path is every jar of the directory, so one too many is as wrong as one too few.
        found = {path.name: _known_sum(path, recorded.get(path.name)) for path in directory.glob("*.jar")}
        wanted = committed_sums(chosen) or {name: facts["sha256"] for name, facts in recorded.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "its manifest is missing or damaged"
    bad = differences(found, wanted)
    return f"{len(bad)} of its jars are missing or damaged: {'; '.join(bad[:_SHOWN])}" if bad else None


def _known_sum(path: Path, facts: dict[str, object] | None) -> str:
    status = path.stat()
    if facts is not None and (facts["size"], facts["mtime_ns"]) == (status.st_size, status.st_mtime_ns):
        return str(facts["sha256"])
    return sum_of(path)


def _is_known(directory: Path, version: str) -> bool:
    """Return whether all jars are as the committed list has them, and record that: only the manifest was amiss."""
    committed = committed_sums(version)
    if committed is None or not directory.is_dir() or differences(_sums(directory), committed):
        return False
    _record(directory, version)
    return True


def _replace(directory: Path, version: str, damage: str, report: Callable[[str], None]) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
    try:
        known = committed_sums(version)
        copy_jars(version, fresh, f"{directory}: {damage}", report, None if known is None else len(known))
        _check(fresh, version)
        _record(fresh, version)
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


def _check(directory: Path, version: str) -> None:
    """Raise if what Maven copied is not a broker's jars, or not those that are known."""
    committed = committed_sums(version)
    wrong = differences(_sums(directory), committed) if committed is not None else []
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise BrokerStartError(
            f"what Maven gave is not Pulsar {version} as this package knows it: {'; '.join(wrong[:_SHOWN])}{more}. "
            "Delete these files in Maven's local repository and try again; if that gives the same sums, do not use "
            "what the repository serves, but find out who changed it"
        )
    jars = sorted(directory.glob("*.jar"))
    if not any(path.name.startswith("pulsar-broker-") for path in jars):
        raise BrokerStartError("Maven ended well but copied no pulsar-broker jar; run `mvn -version` and look at it")
    broken = [path.name for path in jars if not zipfile.is_zipfile(path)]
    if broken:
        raise BrokerStartError(
            f"{len(broken)} jars in Maven's local repository are damaged ({', '.join(broken[:_SHOWN])}): delete them "
            "there and try again"
        )


def _record(directory: Path, version: str) -> None:
    manifest = {"version": version, "jars": {path.name: _facts(path) for path in sorted(directory.glob("*.jar"))}}
    (directory / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _facts(path: Path) -> dict[str, object]:
    status = path.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sum_of(path)}


def _sums(directory: Path) -> dict[str, str]:
    return {path.name: sum_of(path) for path in directory.glob("*.jar")}
