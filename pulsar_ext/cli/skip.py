"""`pulsar-ext skip`: skip messages of a subscription, with a picture of its ledgers and cursor."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from cyclopts import App
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pulsar_ext.ids.position import Position
from pulsar_ext.ids.text import counted
from pulsar_ext.skip.boundaries import Backlog
from pulsar_ext.skip.skipper import SkipResult

from .arguments import LOCAL, Flag, Json, Reach
from .output import print_result

app = App(name="skip", help="Skip an exact number of messages of a subscription.")


_WIDTH = 48
_ROWS = 12
_DONE, _HOLE, _SKIPPED, _PENDING = ("░", "dim"), ("▒", "cyan"), ("▓", "bold yellow"), ("█", "green")
_CURSOR = ("▶", "bold")


@app.default
def skip(
    topic: str,
    subscription: str,
    count: int,
    /,
    *,
    unit: Literal["message", "entry"] = "message",
    dry_run: Flag = False,
    as_json: Json = False,
    reach: Reach = LOCAL,
) -> int:
    """Skip COUNT unacknowledged messages of SUBSCRIPTION, and show its cursor before and after.

    Args:
        topic: The topic, such as persistent://public/default/orders. It must have no partitions, or be one partition.
        subscription: Name of an existing subscription of the topic.
        count: Number of messages to skip, beginning with the first unacknowledged one.
        unit: What to count: messages, or entries as the broker's own skip does. A batch is one entry.
        dry_run: Only show what would be skipped; the cursor does not move.
    """
    with reach.connected() as (client, admin):
        # Read before the skip, after which the broker may delete ledgers.
        internal = admin.internal_stats(topic)
        result = client.skip_messages(topic, subscription, count, unit=unit, dry_run=dry_run, progress=not as_json)
    positions = {"position_before": str(result.position_before), "position_after": str(result.position_after)}
    print_result(asdict(result) | positions if as_json else picture(result, Backlog.of(internal, subscription)))
    return 0


def picture(result: SkipResult, backlog: Backlog) -> Group:
    """Draw the ledgers before and after the skip: acknowledged, skipped and remaining entries, and the cursor."""
    table = Table("ledger", "entries", "before", "after", box=None, padding=(0, 2, 0, 0))
    ledgers = list(backlog.ledgers)
    shown = _around(ledgers, result)
    largest = max((entries for _, entries in shown), default=1)
    for ledger_id, entries in shown:
        before, after = (_bar(ledger_id, entries, largest, result, backlog, moved=moved) for moved in (False, True))
        table.add_row(str(ledger_id), str(entries), before, after)
    omitted = len(ledgers) - len(shown)
    more = f"and {counted(omitted, 'more ledger')}, further from the cursor" if omitted else ""
    return Group(_headline(result), Text(""), table, Text(more, style="dim"), _legend(), _facts(result))


def _around(ledgers: list[tuple[int, int]], result: SkipResult) -> list[tuple[int, int]]:
    """Choose the ledgers between the two positions, and some on either side."""
    first = next((at for at, row in enumerate(ledgers) if row[0] >= result.position_before.ledger_id), 0)
    begin = max(min(first - 1, len(ledgers) - _ROWS), 0)
    return ledgers[begin : begin + _ROWS]


def _bar(ledger_id: int, entries: int, largest: int, result: SkipResult, backlog: Backlog, *, moved: bool) -> Text:
    """Draw one ledger; a cell is one entry, or several if there are more entries than cells."""
    cells = max(1, min(entries, round(entries * _WIDTH / max(largest, _WIDTH))))
    cursor = result.position_after if moved else result.position_before
    bar, pointed = Text(), cursor.ledger_id != ledger_id
    for cell in range(cells):
        at = Position(ledger_id, cell * entries // cells)
        if not pointed and at > cursor:
            pointed = True
            bar.append(*_CURSOR)
        if at <= result.position_before:
            bar.append(*_DONE)
        elif at <= result.position_after:
            bar.append(_DONE[0] if moved else _SKIPPED[0], _SKIPPED[1])
        elif backlog.acked_until(at) is not None:
            bar.append(*_HOLE)
        else:
            bar.append(*_PENDING)
    if not pointed:
        bar.append(*_CURSOR)
    return bar


def _headline(result: SkipResult) -> Text:
    done = "would skip" if result.dry_run else "skipped"
    messages, entries = counted(result.skipped_messages, "message"), counted(result.skipped_entries, "entry")
    text = Text(f"{done} {messages} in {entries}", style="bold")
    requested = counted(result.requested, result.unit)
    text.append("" if result.exact else f"  (requested: {requested})", style="bold red")
    return text


def _legend() -> Text:
    return Text.assemble(
        _DONE, " acknowledged  ", _SKIPPED, " skipped  ", _HOLE, " acknowledged out of order  ",
        _PENDING, " remaining  ", _CURSOR, " cursor",
    )  # fmt: skip


def _facts(result: SkipResult) -> Text:
    inside = "" if result.batch_index is None else f", before message {result.batch_index} of the next batch"
    text = Text(f"cursor {result.position_before} → {result.position_after}{inside}; counted by: {result.strategy}")
    if result.redelivered_entries:
        again = counted(result.redelivered_entries, "acknowledged entry")
        text.append(f"\nwill be redelivered: {again}", style="bold red")
    return text
