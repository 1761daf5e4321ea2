"""A progress bar for reading a long backlog: shown where it was asked for and `rich` is there to show it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pulsar_ext.ids.position import Position

    from .backlog import Backlog

__all__ = ["Progress"]


class Progress(contextlib.AbstractContextManager["Progress"]):
    """Shows how far through a backlog a scan is, in entries.

    Args:
        wanted: whether to show anything.
        backlog: what is gone through.
    """

    def __init__(self, wanted: bool, backlog: Backlog) -> None:
        self._backlog = backlog
        self._wanted = wanted
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def at(self, position: Position) -> None:
        """Show that everything before an entry has been gone through."""
        last = self._backlog.ledgers.last
        if not self._wanted or last is None:
            return
        begin = self._backlog.mark_delete
        if self._bar is None:
            self._bar = _open_bar(self._backlog.ledgers.between(begin, last))
            self._wanted = self._bar is not None
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._backlog.ledgers.between(begin, position))

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _open_bar(total: int) -> Any:
    try:
        from rich.console import Console  # noqa: PLC0415  # an extra, which the library does not need
        from rich.progress import Progress as Bar  # noqa: PLC0415  # likewise
    except ImportError:
        return None
    bar = Bar(console=Console(stderr=True), transient=True)
    bar.add_task("counting entries", total=total)
    bar.start()
    return bar
