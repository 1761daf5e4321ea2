"""Looking once, or again and again: what `--watch` and `--every` do."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TypeVar

from pulsar_ext.errors import AdminError, AdminNotAllowed, AdminNotFound, AdminUnauthorized, InvalidUse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_pause", "look_again"]

T = TypeVar("T")

_LONGEST_PAUSE = 30 * 86_400.0
_FINAL = (AdminNotFound, AdminUnauthorized, AdminNotAllowed)
"""What does not pass by itself."""


def check_pause(every: float) -> None:
    """Check the seconds between two looks.

    Raises:
        InvalidUse: nobody can wait so long.
    """
    if not 0 < every <= _LONGEST_PAUSE:
        raise InvalidUse(f"--every must be more than 0 seconds and at most {_LONGEST_PAUSE:.0f}, not {every!r}")


def look_again(look: Callable[[], T], *, watch: bool, every: float) -> T:
    """Look once and give what was seen; or go on looking, every so many seconds, until Ctrl-C.

    A broker that was seen before and does not answer now is told, and looked for again.
    """
    has_seen = False
    while True:
        try:
            seen = look()
            if not watch:
                return seen
            has_seen = True
        except _FINAL:
            raise
        except AdminError as error:
            if not has_seen:
                raise
            print(f"pulsar-ext: {error}", file=sys.stderr, flush=True)  # noqa: T201  # as every command's error
        time.sleep(every)
