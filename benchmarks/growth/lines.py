"""Every line, in the order in which they are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.growth import acks, asked, messages, opened, ranges

if TYPE_CHECKING:
    from benchmarks.growth.line import Line

__all__ = ["LINES"]

LINES: Final[tuple[Line, ...]] = (*acks.LINES, *opened.LINES, *messages.LINES, *ranges.LINES, *asked.LINES)
