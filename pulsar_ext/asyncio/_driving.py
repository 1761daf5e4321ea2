"""Steps in a loop: each call is awaited if it can be; see `pulsar_ext.process.driving`."""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_ext.process.driving import Steps

__all__ = ["drive"]


async def drive(steps: Steps) -> None:
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
                result = await result
        except BaseException as raised:  # noqa: BLE001  # the steps decide
            error = raised
