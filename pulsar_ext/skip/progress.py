"""A progress bar for reading a long backlog: shown where it was asked for and `rich` is there to show it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext.ids.position import Position

    from .backlog import Backlog

__all__ = ["progress_bar"]


@contextlib.contextmanager
def progress_bar(backlog: Backlog, *, wanted: bool) -> Iterator[Callable[[Position], None]]:
    """Show on standard error how far through a backlog a search is, from its first report on.

    Yields:
        What a search reports to: a function of the position before which everything has been gone through.
    """
    bar = _bar() if wanted else None
    last = backlog.ledgers.last
    if bar is None or last is None:
        yield lambda _: None
        return
    begin = backlog.mark_delete
    task = bar.add_task("counting entries", total=backlog.ledgers.between(begin, last))

    def report(position: Position) -> None:
        bar.start()  # again does nothing
        bar.update(task, completed=backlog.ledgers.between(begin, position))

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()


def _bar() -> Any:
    """Give a bar that is not shown yet; None without `rich`."""
    try:
        from rich.console import Console  # noqa: PLC0415  # an extra, which the library does not need
        from rich.progress import Progress  # noqa: PLC0415  # likewise
    except ImportError:
        return None
    return Progress(console=Console(stderr=True), transient=True)
