"""The progress of a streaming query, a line for each batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pulsar_ext.ids.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ProgressLines", "line_of"]


def line_of(report: Any) -> str:
    """Format the progress report of one batch as a line."""
    source = report.sources[0] if report.sources else None
    behind = None
    if source is not None and source.latestOffset:
        try:
            behind = json.loads(source.latestOffset).get("entriesBehind")
        except (ValueError, AttributeError):
            behind = None  # of another source
    seconds = report.batchDuration / 1000
    rate = f", {report.numInputRows / seconds:,.0f} rows/s" if seconds else ""
    lag = "" if behind is None else f", was {counted(behind, 'entry')} behind"
    return f"batch {report.batchId}: {counted(report.numInputRows, 'row')} in {seconds:.1f} s{rate}{lag}"


class ProgressLines(StreamingQueryListener):
    """Reports each batch that read something as a line; `spark.streams.addListener(ProgressLines(print))`.

    Args:
        tell: called with each line.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's name, here and below
        """Do nothing: the first batch is reported."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Report one batch."""
        if event.progress.numInputRows:
            self._tell(line_of(event.progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the query's caller learns how it ended."""
