"""The SHA-256 sums of jars: what was found beside what is wanted, and the committed list of the default version's."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["committed_sums", "differences", "sum_of"]


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
