"""All lines, in the order in which they are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.growth import acks, admin_requests, messages, opened, ranges

if TYPE_CHECKING:
    from benchmarks.growth.line import Line

__all__ = ["LINES"]

LINES: Final[tuple[Line, ...]] = (*acks.LINES, *opened.LINES, *messages.LINES, *ranges.LINES, *admin_requests.LINES)
