"""Counts as text (pure)."""

from __future__ import annotations

import re

_CONSONANT_Y = re.compile(r"(?<=[^aeiou])y$")


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number and what it counts, such as `1 entry` or `1,000 entries`; `many` is by default regular."""
    if not many:
        many = _CONSONANT_Y.sub("ie", one) + ("es" if one.endswith("ch") else "s")
    return f"{number:,} {one if number == 1 else many}"
