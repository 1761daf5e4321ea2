"""Maven, which fetches the broker's jars: from whatever repositories, mirrors and credentials it is configured with."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pulsar_ext.errors import BrokerStartError

from .versions import newest_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["copy_jars", "follow"]

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
