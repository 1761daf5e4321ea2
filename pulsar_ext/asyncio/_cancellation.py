"""Whose cancellation a `CancelledError` is: the task's own, or that of something that was awaited in it."""

from __future__ import annotations

import asyncio

__all__ = ["is_own_cancellation"]


def is_own_cancellation(error: BaseException) -> bool:
    """Whether this error ends the running task; any other one is an error of what it called, as others are."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)
