"""Which version of Pulsar is asked for, and the order of versions; pure, but for one variable of the environment."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from pulsar_ext.errors import InvalidUse

from .profiles import PULSAR_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["VARIABLE", "asked_version", "check_version", "choose_version", "newest_first"]

VARIABLE: Final = "PULSAR_EXT_PULSAR_VERSION"
# It becomes part of paths, of an image's tag and of a project file.
_VERSION: Final = re.compile(r"\d+(?:\.\d+)*(?:[.-][A-Za-z0-9]+)*")


def check_version(version: str) -> str:
    """Return the version as it is.

    Raises:
        InvalidUse: it does not look like one.
    """
    if _VERSION.fullmatch(version) is None:
        raise InvalidUse(f"{version!r} is not a version of Pulsar; give one like {PULSAR_VERSION}")
    return version


def asked_version(version: str | None = None) -> str | None:
    """Return the version that is given, else that of `PULSAR_EXT_PULSAR_VERSION`, else None.

    Raises:
        InvalidUse: it does not look like one.
    """
    asked = os.environ.get(VARIABLE) if version is None else version
    return check_version(asked or "") if asked or version is not None else None


def choose_version(version: str | None = None) -> str:
    """Return the version that is asked for, else the one that this harness is tested with.

    Raises:
        InvalidUse: it does not look like one.
    """
    return asked_version(version) or PULSAR_VERSION


def newest_first(versions: Iterable[str]) -> list[str]:
    """Return the versions in their order, the newest first; candidates come behind their release."""
    return sorted(set(versions), key=_order, reverse=True)


def _order(version: str) -> list[tuple[int, int, str]]:
    parts = [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"[.-]", version)]
    return [*parts, (1, -1, "")]
