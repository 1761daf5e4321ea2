"""Java and the broker's jars: found, fetched with Maven once, and checked before each use.

The jars live in a cache outside any checkout, with a manifest of what must be there. A cache that is half filled or
damaged is noticed in a fraction of a second and filled again; where it cannot be, the error says what to do. The jars
of the default version must be as the committed list has them, those of another one stay as they were fetched.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock

from pulsar_ext.errors import BrokerStartError

from .jar_sums import committed_sums, differences, sum_of
from .maven import copy_jars
from .versions import choose_version

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["cache_root", "cached_jars", "ensure_jars", "find_damage", "find_java"]

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
