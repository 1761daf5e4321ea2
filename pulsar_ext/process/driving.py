"""Steps: a generator of calls, whose results or errors go back into it; here driven on a thread.

What is decided stands in the generator, for the blocking and the awaited client; `asyncio/_driving.py` drives it in a
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from inspect import isawaitable
from typing import Any

from pulsar_ext.errors import InvalidUse

__all__ = ["Steps", "drive"]

Steps = Generator[Callable[[], Any], Any, None]


def drive(steps: Steps) -> None:
    """Make each call; what the steps do not catch is raised."""
    result, error = None, None
    while True:
        try:
            step = steps.send(result) if error is None else steps.throw(error)
        except StopIteration:
            return
        result, error = None, None
        try:
            result = step()
            if isawaitable(result):
                getattr(result, "close", lambda: None)()
                raise InvalidUse("An async function was called, which only pulsar_ext.asyncio awaits.")  # noqa: TRY301
        except BaseException as raised:  # noqa: BLE001  # the steps decide
            error = raised
