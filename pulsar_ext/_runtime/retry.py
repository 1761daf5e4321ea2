"""Calling again while it fails with what may be over soon: a broker starts, or loads a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pulsar_ext._native import threads

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def retry(call: Callable[[], T], may: Callable[[Exception], bool], *, seconds: float, longest: float = 0.0) -> T:
    """Call until there is an answer, and return it; a Ctrl-C ends the pause between two calls.

    Args:
        call: what may be done twice.
        may: returns whether to call again after an error, which is raised else.
        seconds: the first pause.
        longest: the longest pause, in seconds, to which they grow by a quarter each; 0 for equal ones.
    """
    while True:
        try:
            return call()
        except Exception as error:
            if not may(error):
                raise
        threads.sleep(seconds)
        seconds = max(seconds, min(1.25 * seconds, longest))
