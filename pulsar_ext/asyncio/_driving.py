"""Steps in a loop: each call is awaited if it can be; see `pulsar_ext.process.processing`."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from inspect import isawaitable
from typing import TYPE_CHECKING

from ._cancellation import is_own_cancellation

if TYPE_CHECKING:
    from pulsar_ext.process.processing import Steps

__all__ = ["drive"]


async def drive(steps: Steps) -> None:
    """Make each call; what the steps do not catch is raised.

    What cancels something that a call awaits, and not this task, is an error of that call like others: the steps get
    it as the `CancelledError` of `concurrent.futures`, which is an `Exception`.
    """
    result: object = None
    error: BaseException | None = None
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
            if isinstance(raised, asyncio.CancelledError) and not is_own_cancellation(raised):
                error = CancelledError("Something that was awaited was cancelled.")
                error.__cause__ = raised
