"""`pulsar-ext look`: a topic as a map, on a page or in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.text import Text

from pulsar_ext.ids.text import counted
from pulsar_ext.look.page import survey_page
from pulsar_ext.look.survey import (
    CursorMap,
    MapLimits,
    Survey,
    TopicMap,
    cursor_states,
    entry_kinds,
    joined,
    ledger_cells,
    survey,
)
from pulsar_ext.look.text import age_text, batches_text, bytes_text, inspected_text, rate_text

from .arguments import LOCAL, Html, Json, Reach, Watch
from .output import SEVERITY_COLOURS, check_writable, now_text, print_result, run_repeatedly, write_page

app = App(name="look", help="Show a topic as a map: its ledgers, cursors, holes and messages. It only reads.")

_LIMITS = MapLimits()


@app.default
def look(
    topic: str,
    /,
    *,
    subscription: str | None = None,
    html: Html = None,
    limits: Annotated[MapLimits, Parameter(name="*")] = _LIMITS,
    watch: Watch = False,
    every: float = 5.0,
    reach: Reach = LOCAL,
    as_json: Json = False,
) -> None:
    """Show a topic as a map, and what the doctor finds in it. It only reads.

    The map has the ledgers, the cursors with their holes, and the chunked messages and batches, of each partition.

    Args:
        topic: The topic, such as public/default/orders, with or without partitions.
        subscription: Name of the only subscription to show. The default is all of them.
        limits: Thresholds of findings, and limits of requests.
        every: Seconds between two surveys with --watch.
    """
    check_writable(html, "--html")
    console = Console(highlight=False)
    with reach.open_admin() as admin:

        def survey_once() -> None:
            with Console(stderr=True).status("requesting"):
                seen = survey(admin, topic, subscription, limits)
            if html is not None:
                write_page(html, survey_page(seen, topic, now_text(), refresh_seconds=every if watch else None))
            if as_json:
                print_result(seen.to_dict())
            else:
                if watch:
                    console.clear()
                for line in _lines(seen, console):
                    console.print(line)

        run_repeatedly(survey_once, watch=watch, every=every)


_CURSORS = 20
_HOLES = 3
_STYLES: dict[str | None, tuple[str, str, str, str]] = {
    "acknowledged": ("▁", "_", "bright_black", "acknowledged"),
    "unread": ("▄", "-", "blue", "unread"),
    "delivered": ("▆", "=", "yellow", "read, not acknowledged"),
    "hole": ("█", "#", "red", "hole"),
    "message": ("▂", "m", "cyan", "single message"),
    "batch": ("▅", "b", "green", "batch"),
    "chunk": ("▓", "c", "magenta", "chunk"),
    None: ("╌", ".", "bright_black", "not inspected"),
}
"""Character, ASCII character, colour and label of each state and kind."""


def _lines(seen: Survey, console: Console) -> Iterator[Text]:
    """Draw maps and findings, as wide as the terminal."""
    drawing, diagnosis = _Drawing(console.width, ascii_only=console.options.ascii_only), seen.diagnosis
    for one in seen.maps:
        yield from drawing.topic(one)
        yield Text()
    yield drawing.legend()
    for finding in diagnosis.findings:
        where = f"{finding.topic} {finding.subscription}".strip()
        kind = (f"{finding.severity}: {finding.kind}", SEVERITY_COLOURS[finding.severity])
        yield Text.assemble(kind, "  ", finding.what, "  ", (where, "dim"))
    for note in diagnosis.notes:
        yield Text(note, style="dim")
    if diagnosis.left_out:
        excluded = counted(len(diagnosis.left_out), "partition")
        yield Text(f"not inspected, raise --max-requests to include them: {excluded}")
    if not diagnosis.findings:
        yield Text("no problems found", style="green")


class _Drawing:
    def __init__(self, width: int, *, ascii_only: bool) -> None:
        self._width, self._glyph = width, int(ascii_only)
        self._dot, self._edge = (" | ", "|") if ascii_only else (" · ", "▏")

    def topic(self, topic: TopicMap) -> Iterator[Text]:
        facts = [
            counted(topic.entries, "entry"),
            bytes_text(topic.size),
            counted(len(topic.ledgers), "ledger"),
            f"{rate_text(topic.rate_in)} in",
            counted(len(topic.producers), "producer"),
            f"deduplication {'on' if topic.deduplication else 'off'}",
        ]
        yield Text(topic.name, style="bold")
        yield Text(self._dot.join(facts), style="dim")
        cells = min(topic.entries, self._width)
        if cells:
            yield Text("ledgers")
            yield self._ledgers(ledger_cells(topic, cells))
            yield self._head("entries", [inspected_text(topic), *batches_text(topic)])
            yield self._strip(entry_kinds(topic, cells))
        for one in topic.cursors[:_CURSORS]:
            yield from self._cursor(topic, one, cells)
        if len(topic.cursors) > _CURSORS:
            yield Text(f"{counted(len(topic.cursors) - _CURSORS, 'more cursor')} with smaller backlogs", style="dim")

    def legend(self) -> Text:
        """Return the meaning of each character."""
        each = (((style[self._glyph], style[2]), (f" {style[3]}", "dim")) for style in _STYLES.values())
        return Text("   ").join(Text.assemble(*parts) for parts in each)

    def _head(self, name: str, details: Iterable[str]) -> Text:
        return Text.assemble(name, "  ", (self._dot.join(one for one in details if one), "dim"))

    def _each(self, cells: Sequence[object]) -> int:
        """Return the number of columns of a cell: several if there is room."""
        return max(self._width // max(len(cells), 1), 1)

    def _strip(self, cells: Sequence[str | None]) -> Text:
        each = self._each(cells)
        styled = [(_STYLES[what], count * each) for _, count, what in joined(cells)]
        return Text.assemble(*((style[self._glyph] * count, style[2]) for style, count in styled))

    def _ledgers(self, cells: Sequence[str]) -> Text:
        """Draw each ledger's width, with its id if it fits."""
        drawn = Text()
        for at, (_, count, ledger_id) in enumerate(joined(cells)):
            width = count * self._each(cells)
            label = f"{self._edge}{ledger_id}"
            drawn.append((label if len(label) <= width else self._edge).ljust(width), "reverse" if at % 2 else "")
        return drawn

    def _cursor(self, topic: TopicMap, cursor: CursorMap, cells: int) -> Iterator[Text]:
        holes = cursor.holes
        details = [
            cursor.type if cursor.durable else "reader",
            counted(len(cursor.consumers), "consumer"),
            f"backlog {counted(cursor.backlog_entries, 'entry')}",
            counted(len(holes), "hole") if holes else "",
            f"lag {age_text(cursor.lag_seconds)}" if cursor.lag_seconds is not None else "",
            rate_text(cursor.rate_out),
        ]
        yield self._head(cursor.name, details)
        if cells:
            yield self._strip(cursor_states(topic, cursor, cells))
        if holes:
            places = [one.begin if one.entries == 1 else f"{one.begin} to {one.end}" for one in holes[:_HOLES]]
            more = f", and {len(holes) - _HOLES:,} more" if len(holes) > _HOLES else ""
            yield Text(f"holes: {', '.join(places)}{more}", style="red")
