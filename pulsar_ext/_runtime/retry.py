"""Retrying calls that fail for a transient reason, such as a starting broker or a topic that is being loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pulsar_ext._native import threads

T = TypeVar("T")


def retry(call: Callable[[], T], may: Callable[[Exception], bool], *, seconds: float, longest: float = 0.0) -> T:
    """Call until it succeeds, or `may` returns false for its error; a Ctrl-C ends the pause between two calls.

    Each pause is a quarter longer than the last one, up to `longest` seconds; 0 for equal pauses.
    """
    while True:
        try:
            return call()
        except Exception as error:
            if not may(error):
                raise
        threads.sleep(seconds)
        seconds = max(seconds, min(1.25 * seconds, longest))
