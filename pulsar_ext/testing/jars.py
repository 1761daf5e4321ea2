"""Java and the broker's jars: found, fetched once with Maven, and verified before each use.

The jars are in a cache outside the checkout, with a manifest. An incomplete or damaged cache is detected in a fraction
of a second and fetched again; if that is not possible, the error says what to do. The jars of the default version must
match the committed SHA-256 sums; those of other versions must match the sums of the first fetch. Maven uses its
configured repositories, mirrors and credentials.
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
    """Return the committed sum of each jar by its file name, from a list of `sha256sum *.jar`; None without a list."""
    path = _LISTS / f"pulsar-{version}.sha256"
    if not path.is_file():
        return None
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {name: digest for digest, name in lines}


def differences(found: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """Return a line for each jar that differs: its name, the sum found, and the expected one."""
    wrong = []
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            wrong.append(f"{name} is missing (expected: SHA-256 {expected[name]})")
        elif name not in expected:
            wrong.append(f"{name} is unexpected (found: SHA-256 {found[name]})")
        elif found[name] != expected[name]:
            wrong.append(f"{name} differs (found: SHA-256 {found[name]}, expected: {expected[name]})")
    return wrong


def sum_of(path: Path) -> str:
    """Return the SHA-256 sum of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_LISTS: Final = Path(__file__).parent
_SECONDS: Final = 1800.0
_ERROR_LINES: Final = 6
_REPORT_SECONDS: Final = 10.0

# Without the imported project pom, Maven selects OpenTelemetry jars that do not match, and the broker exits.
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
# For a range Maven asks every repository for its versions; this range has none, so Maven stops there instead of
# reading the project files of each version.
_EMPTY_RANGE: Final = "(,0]"
_METADATA: Final = "org/apache/pulsar/pulsar-broker"


class _Run(NamedTuple):
    status: int
    output: list[str]


def copy_jars(version: str, target: Path, state: str, report: Callable[[str], None], count: int | None = None) -> None:
    """Copy the jars of a broker into an empty directory with Maven, which verifies downloads by their checksums."""
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerStartError(
            f"the jars of Pulsar {version} are missing ({state}), and mvn is not found on the path: "
            "install Maven, or use a Docker engine, or copy the directory from another machine"
        )
    pom = _POM.format(managed=_MANAGED.format(version=version), version=version)
    run = _run(maven, pom, target, partial(follow, report, count))
    if run.status != 0:
        report(f"Maven could not fetch Pulsar {version}; listing the available versions")
        raise _failure(version, run, _served(maven, target))


def _failure(version: str, run: _Run, served: list[str]) -> BrokerStartError:
    listed = ", ".join(served)
    if served and version not in served:
        text = f"Maven's repositories do not have Pulsar {version}; they have {listed}"
        return BrokerStartError(text, served=served)
    errors = [line for line in run.output if line.startswith("[ERROR]")][:_ERROR_LINES] or run.output[-_ERROR_LINES:]
    advice = (
        f"Maven's repositories have this version without some of its dependencies; they have {listed}"
        if served
        else "the first fetch needs a network or a filled local repository"
    )
    return BrokerStartError(
        f"Maven could not fetch the jars of Pulsar {version} (exit status {run.status}); {advice}. Its output:\n"
        + "\n".join(errors),
        served=served,
    )


def _served(maven: str, target: Path) -> list[str]:
    """Return the versions in the configured repositories, from the metadata files that Maven stores for each."""
    run = _run(maven, _POM.format(managed="", version=_EMPTY_RANGE), target, list, "-X", "-U")
    found: set[str] = set()
    for line in run.output:
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
                output = [line.rstrip() for line in follow(run.stdout or ())]
                return _Run(run.wait(_SECONDS), ["", *output])
            except BaseException:
                run.kill()
                raise


def follow(
    report: Callable[[str], None], count: int | None, lines: Iterable[str], clock: Callable[[], float] = time.monotonic
) -> list[str]:
    """Read Maven's output, and report its progress every ten seconds and at the end; return the lines."""
    output: list[str] = []
    counts: Counter[str] = Counter()
    reported = clock()
    total = "" if count is None else f" of {count}"
    for line in lines:
        output.append(line)
        if step := re.search(r"\b(Downloaded|Copying)\b.*\.jar", line):
            counts[step[1]] += 1
            if clock() - reported >= _REPORT_SECONDS:
                reported = clock()
                report(_progress(counts, total))
    if counts:
        report(_progress(counts, total))
    return output


def _progress(counts: Counter[str], total: str) -> str:
    return f"jars: {counts['Downloaded']} downloaded, {counts['Copying']}{total} copied"


_OLDEST_JAVA: Final = 17
_MANIFEST: Final = "manifest.json"
_SHOWN: Final = 3


def cache_root() -> Path:
    """Return the cache directory: `PULSAR_EXT_CACHE`, else the platform's."""
    if chosen := os.environ.get("PULSAR_EXT_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pulsar_ext"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulsar_ext"


def cached_jars(version: str | None = None) -> Path:
    """Return the directory of a version's jars, which may not exist yet; by default of `choose_version()`."""
    return cache_root() / f"pulsar-{choose_version(version)}"


def find_java() -> Path:
    """Return the `java` to run: that of `JAVA_HOME`, else that of the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    advice = f"install Java {_OLDEST_JAVA} or newer (a JRE is enough), or set JAVA_HOME"
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the path"
        raise BrokerStartError(f"java not found {where}: {advice}; or use a Docker engine")
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
    """Return the directory with the broker's jars, fetched or repaired by one of the processes that need them."""
    chosen = choose_version(version)
    root, directory = cache_root(), cached_jars(chosen)
    if find_damage(chosen) is None:
        return directory
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{directory.name}.lock"):
            # Another process may have fetched them while it held the lock.
            damage = find_damage(chosen)
            if damage is not None and not _is_known(directory, chosen):
                report(f"{directory}: {damage}; fetching the jars of Pulsar {chosen} with Maven")
                _replace(directory, chosen, damage, report)
    except OSError as error:
        raise BrokerStartError(f"cannot write the cache {root} ({error}): set PULSAR_EXT_CACHE to another") from error
    return directory


def find_damage(version: str | None = None) -> str | None:
    """Return what is wrong with the cached jars of a version, or None if all are as expected.

    A jar with the recorded size and time has the recorded sum; any other one is read. The expected sums are the
    committed ones or, without a list, the recorded ones.
    """
    chosen = choose_version(version)
    directory = cached_jars(chosen)
    if not directory.is_dir():
        return "not fetched yet"
    try:
        recorded = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))["jars"]
        # Every jar of the directory is on the class path, so an additional one is an error, too.
        found = {path.name: _known_sum(path, recorded.get(path.name)) for path in directory.glob("*.jar")}
        expected = committed_sums(chosen) or {name: facts["sha256"] for name, facts in recorded.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "its manifest is missing or damaged"
    bad = differences(found, expected)
    return f"{len(bad)} of its jars are missing or damaged: {'; '.join(bad[:_SHOWN])}" if bad else None


def _known_sum(path: Path, facts: dict[str, object] | None) -> str:
    status = path.stat()
    if facts is not None and (facts["size"], facts["mtime_ns"]) == (status.st_size, status.st_mtime_ns):
        return str(facts["sha256"])
    return sum_of(path)


def _is_known(directory: Path, version: str) -> bool:
    """Record the jars and return True if they match the committed list, so that only the manifest was wrong."""
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
            # The old jars are moved before they are deleted, because a running broker may have them open.
            old = Path(tempfile.mkdtemp(prefix=f"{directory.name}.old.", dir=directory.parent))
            directory.rename(old / "lib")
            fresh.rename(directory)
            shutil.rmtree(old, ignore_errors=True)
        else:
            fresh.rename(directory)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _check(directory: Path, version: str) -> None:
    """Raise if Maven did not copy a broker's jars, or if they differ from the committed sums."""
    committed = committed_sums(version)
    wrong = differences(_sums(directory), committed) if committed is not None else []
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise BrokerStartError(
            f"Maven's jars of Pulsar {version} differ from the known ones: {'; '.join(wrong[:_SHOWN])}{more}. "
            "Delete these files in Maven's local repository and try again; if the sums are the same again, do not use "
            "that repository, and ask its owner who changed it"
        )
    jars = sorted(directory.glob("*.jar"))
    if not any(path.name.startswith("pulsar-broker-") for path in jars):
        raise BrokerStartError("Maven succeeded but copied no pulsar-broker jar; check `mvn -version`")
    broken = [path.name for path in jars if not zipfile.is_zipfile(path)]
    if broken:
        raise BrokerStartError(
            f"{len(broken)} jars in Maven's local repository are damaged ({', '.join(broken[:_SHOWN])}): delete them "
            "and try again"
        )


def _record(directory: Path, version: str) -> None:
    jars: dict[str, dict[str, object]] = {}
    for path in sorted(directory.glob("*.jar")):
        status = path.stat()
        jars[path.name] = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sum_of(path)}
    manifest = {"version": version, "jars": jars}
    (directory / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _sums(directory: Path) -> dict[str, str]:
    return {path.name: sum_of(path) for path in directory.glob("*.jar")}
