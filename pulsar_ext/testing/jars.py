"""Java and the broker's jars: found, fetched once with Maven, and verified before each use.

The jars are in a cache outside the checkout, with a list of their SHA-256 sums. An incomplete or damaged cache is
detected in a fraction of a second and fetched again; if that is not possible, the error says what to do. For a version
with a committed list, Maven copies the jars of the list without reading project files, because a repository may lack
some. For other versions it copies what the broker's project file requires, and the sums of the first fetch apply from
then on. Maven uses its configured repositories, mirrors and credentials.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
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
from typing import TYPE_CHECKING, Final

from filelock import FileLock

from pulsar_ext.errors import BrokerStartError

from .profiles import choose_version, newest_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# -- Java ------------------------------------------------------------------------------------------------------------

_FIRST_ON_JAVA_21: Final = 5
_OTHER_JAVAS: Final = (
    "/usr/lib/jvm/*/bin/java",
    "/opt/java/*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
)


def oldest_java(version: str | None) -> int:
    """Return the oldest Java for a version of Pulsar; for None, for any other program."""
    return 21 if version is not None and int(re.split(r"[.-]", version)[0]) >= _FIRST_ON_JAVA_21 else 17


def find_java(version: str | None = None) -> Path:
    """Return the `java` to run: that of `JAVA_HOME`, else that of the path, else the oldest sufficient one.

    Args:
        version: of Pulsar, which decides how new it has to be; None for any other program.
    """
    needed = oldest_java(version)
    advice = f"install Java {needed} or newer (a JRE is enough), or set JAVA_HOME"
    home = os.environ.get("JAVA_HOME")
    first = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if first is None and home:
        raise BrokerStartError(f"java not found in JAVA_HOME ({home}): {advice}; or use a Docker engine")
    found = {} if first is None else {Path(first): _java_number(Path(first))}
    if any(number >= needed for number in found.values()):
        return Path(str(first))
    for path in sorted(path for pattern in _OTHER_JAVAS for path in Path("/").glob(pattern.removeprefix("/"))):
        with contextlib.suppress(BrokerStartError):
            found[path] = _java_number(path)
    if sufficient := [(number, path) for path, number in found.items() if number >= needed]:
        return min(sufficient)[1]
    if not found:
        raise BrokerStartError(f"java not found on the path: {advice}; or use a Docker engine")
    listed = ", ".join(f"{path} is Java {number}" for path, number in found.items())
    raise BrokerStartError(f"{listed}, too old for Pulsar{f' {version}' if version else ''}: {advice}")


@functools.cache
def _java_number(program: Path) -> int:
    """Return the first number of the version of a `java`."""
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerStartError(f"{program} does not run ({error}): set JAVA_HOME to another Java") from error
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if version is None:
        raise BrokerStartError(f"{program} does not print its version: set JAVA_HOME to another Java")
    return int(version[1])


# -- lists of sums ---------------------------------------------------------------------------------------------------

_LISTS: Final = Path(__file__).parent


def committed_sums(version: str) -> dict[str, str] | None:
    """Return the committed sum of each jar by its path in a Maven repository; None without a list."""
    path = _LISTS / f"pulsar-{version}.sha256"
    return _read_sums(path) if path.is_file() else None


def _read_sums(path: Path) -> dict[str, str]:
    """Return the sum of each file by its path, from the output of `sha256sum`."""
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {name: digest for digest, name in lines}


def _by_name(sums: Mapping[str, str]) -> dict[str, str]:
    return {path.rpartition("/")[2]: digest for path, digest in sums.items()}


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


# -- Maven -----------------------------------------------------------------------------------------------------------

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
_BROKER: Final = """\
  <dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId><version>{version}</version>
  </dependency></dependencies>
"""
# This version of the plugin copies a jar without reading its project file; 3.6 reads that and its parents.
_LISTED: Final = """\
  <build><plugins><plugin>
    <artifactId>maven-dependency-plugin</artifactId><version>2.8</version>
    <configuration><artifactItems>
{items}
    </artifactItems></configuration>
  </plugin></plugins></build>
"""
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pulsar-ext</groupId><artifactId>broker-jars</artifactId><version>1</version>
{content}</project>
"""
# For a range Maven asks every repository for its versions; this range has none, so Maven stops there instead of
# reading the project files of each version.
_EMPTY_RANGE: Final = "(,0]"
_METADATA: Final = "org/apache/pulsar/pulsar-broker"
_RESOLVE: Final = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
_COPY: Final = ["dependency:copy"]


def copy_jars(version: str, target: Path, state: str, report: Callable[[str], None]) -> None:
    """Copy the jars of a broker into an empty directory with Maven, which verifies downloads by their checksums."""
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerStartError(
            f"the jars of Pulsar {version} are missing ({state}), and mvn is not found on the path: "
            "install Maven, or use a Docker engine, or copy the directory from another machine"
        )
    committed = committed_sums(version)
    if committed is None:
        goal, content, count = _RESOLVE, (_MANAGED + _BROKER).format(version=version), None
    else:
        goal, content, count = _COPY, _LISTED.format(items="\n".join(map(_item, committed))), len(committed)
    status, output = _run(maven, content, [*goal, f"-DoutputDirectory={target}"], partial(follow, report, count))
    if status != 0:
        report(f"Maven could not fetch Pulsar {version}; listing the available versions")
        raise _failure(version, status, output, _served(maven, target))


def _item(path: str) -> str:
    """Return a jar, by its path in a Maven repository, as an element of Maven's configuration."""
    *group, artifact, version, name = path.split("/")
    classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
    parts = {"groupId": ".".join(group), "artifactId": artifact, "version": version, "classifier": classifier}
    return f"      <artifactItem>{''.join(f'<{tag}>{text}</{tag}>' for tag, text in parts.items())}</artifactItem>"


def _failure(version: str, status: int, output: list[str], served: list[str]) -> BrokerStartError:
    listed = ", ".join(served)
    if served and version not in served:
        text = f"Maven's repositories do not have Pulsar {version}; they have {listed}"
        return BrokerStartError(text, served=served)
    errors = [line for line in output if line.startswith("[ERROR]")][:_ERROR_LINES] or output[-_ERROR_LINES:]
    advice = (
        f"Maven's repositories have this version without some of its dependencies; they have {listed}"
        if served
        else "the first fetch needs a network or a filled local repository"
    )
    return BrokerStartError(
        f"Maven could not fetch the jars of Pulsar {version} (exit status {status}); {advice}. Its output:\n"
        + "\n".join(errors),
        served=served,
    )


def _served(maven: str, target: Path) -> list[str]:
    """Return the versions in the configured repositories, from the metadata files that Maven stores for each."""
    goal = [*_RESOLVE, f"-DoutputDirectory={target}", "-X", "-U"]
    found: set[str] = set()
    for line in _run(maven, _BROKER.format(version=_EMPTY_RANGE), goal, list)[1]:
        if place := re.search(r"Using local repository at (.+)", line):
            for path in Path(place[1].strip(), _METADATA).glob("maven-metadata-*.xml"):
                found.update(re.findall(r"<version>\s*([^<\s]+)\s*</version>", path.read_text(encoding="utf-8")))
    return newest_first(found)


def _run(
    maven: str, content: str, goal: Iterable[str], follow: Callable[[Iterable[str]], list[str]]
) -> tuple[int, list[str]]:
    """Run Maven with a project file; return its exit status and the lines of its output."""
    with tempfile.TemporaryDirectory(prefix="pulsar-ext-") as scratch:
        path = Path(scratch, "pom.xml")
        path.write_text(_POM.format(content=content), encoding="utf-8")
        command = [maven, "-B", "--strict-checksums", "-f", str(path), *goal]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=scratch
        ) as run:
            try:
                output = [line.rstrip() for line in follow(run.stdout or ())]
                return run.wait(_SECONDS), ["", *output]
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


# -- the cache -------------------------------------------------------------------------------------------------------

_SUMS: Final = "jars.sha256"
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
            damage, committed = find_damage(chosen), committed_sums(chosen)
            # If the jars match the committed list, only the record was wrong, and is replaced.
            if damage is not None and (committed is None or not directory.is_dir() or _record(directory, committed)):
                report(f"{directory}: {damage}; fetching the jars of Pulsar {chosen} with Maven")
                _replace(directory, chosen, damage, report)
    except OSError as error:
        raise BrokerStartError(f"cannot write the cache {root} ({error}): set PULSAR_EXT_CACHE to another") from error
    return directory


def find_damage(version: str | None = None) -> str | None:
    """Return what is wrong with the cached jars of a version, or None if all are as expected.

    A jar that was last changed before its sum was recorded has that sum; any other one is read. The expected sums are
    the committed ones or, without a list, the recorded ones.
    """
    chosen = choose_version(version)
    directory = cached_jars(chosen)
    if not directory.is_dir():
        return "not fetched yet"
    try:
        recorded, at = _read_sums(directory / _SUMS), (directory / _SUMS).stat().st_mtime_ns
    except (OSError, ValueError):
        return "its list of sums is missing or damaged"
    # Every jar of the directory is on the class path, so an additional one is an error, too.
    found = {
        path.name: recorded[path.name] if path.name in recorded and path.stat().st_ctime_ns < at else sum_of(path)
        for path in directory.glob("*.jar")
    }
    bad = differences(found, _by_name(committed_sums(chosen) or recorded))
    return f"{len(bad)} of its jars are missing or damaged: {'; '.join(bad[:_SHOWN])}" if bad else None


def _record(directory: Path, committed: Mapping[str, str] | None) -> list[str]:
    """Record the sums of the jars, unless they differ from the committed ones; return the differences."""
    found = {path.name: sum_of(path) for path in directory.glob("*.jar")}
    wrong = differences(found, _by_name(committed)) if committed is not None else []
    if not wrong:
        text = "".join(f"{digest}  {name}\n" for name, digest in sorted(found.items()))
        (directory / _SUMS).write_text(text, encoding="ascii")
    return wrong


def _replace(directory: Path, version: str, damage: str, report: Callable[[str], None]) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
    try:
        copy_jars(version, fresh, f"{directory}: {damage}", report)
        _check(fresh, version)
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
    """Record the jars, or raise if Maven did not copy a broker's jars, or if they differ from the committed sums."""
    if wrong := _record(directory, committed_sums(version)):
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise BrokerStartError(
            f"Maven's jars of Pulsar {version} differ from the known ones: {'; '.join(wrong[:_SHOWN])}{more}. "
            "Delete these files in Maven's local repository and try again; if the sums are the same again, do not use "
            "that repository, and ask its owner who changed it"
        )
    jars = sorted(directory.glob("*.jar"))
    if not any(path.name.startswith("pulsar-broker-") for path in jars):
        raise BrokerStartError("Maven succeeded but copied no pulsar-broker jar; check `mvn -version`")
    if broken := [path.name for path in jars if not zipfile.is_zipfile(path)]:
        raise BrokerStartError(
            f"{len(broken)} jars in Maven's local repository are damaged ({', '.join(broken[:_SHOWN])}): delete them "
            "and try again"
        )
