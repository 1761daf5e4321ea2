"""Making the class archive of the broker, once, by running a broker."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .class_archive import archive_path
from .jars import cached_jars, find_java
from .process import PulsarProcess

__all__ = ["make_archive"]


def make_archive(version: str | None = None) -> Path | None:
    """Return the archive for the Java that would be used, made now if it is missing; None if this Java cannot make one.

    Args:
        version: of the broker; by default that of `choose_version()`.

    Raises:
        InvalidUse: the version does not look like one.
        BrokerStartError: no Java is found, or the broker that it is made with did not start.
    """
    path = archive_path(find_java(), cached_jars(version))
    if path.is_file():
        return path
    with tempfile.TemporaryDirectory(prefix="pulsar-ext-") as scratch:
        fresh = Path(scratch, "classes.jsa")
        # A data directory of its own, because only such a broker is ended in good order, and Java writes at its end.
        broker = PulsarProcess(
            data_dir=Path(scratch, "data"), version=version, java_options=[f"-XX:ArchiveClassesAtExit={fresh}"]
        )
        broker.start().stop()
        if not fresh.is_file():
            return None
        # Copied beside its place and renamed: the scratch may be on another file system.
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(fresh.read_bytes())
        part.replace(path)
    return path
