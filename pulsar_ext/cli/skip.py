"""`pulsar-ext skip`: skip messages of a subscription, with a picture of its ledgers and its cursor."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from cyclopts import App, Parameter
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from .arguments import Access, Json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext import Client, PulsarAdmin
    from pulsar_ext.skip.backlog import Backlog
    from pulsar_ext.skip.skipper import SkipResult

app = App(name="skip", help="Skip messages of a subscription, exactly.")

_NOTHING = Access()

_WIDTH = 48
_ROWS = 12
_DONE, _HOLE, _SKIPPED, _LEFT = "dim", "cyan", "bold yellow", "green"


@app.default
def skip(
    topic: str,
    subscription: str,
    count: int,
    /,
    *,
    unit: Literal["message", "entry"] = "message",
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    as_json: Json = False,
    admin_url: str | None = None,
    service_url: str | None = None,
    access: Access = _NOTHING,
) -> int:
    """Skip COUNT messages that SUBSCRIPTION has not acknowledged, and show where its cursor was and is.

    Args:
        topic: a topic without partitions, or one partition.
        subscription: must exist.
        count: how many.
        unit: count messages, or entries as the broker does.
        dry_run: move nothing.
        as_json: print one JSON object instead of the picture.
        admin_url: the admin REST API; by default PULSAR_ADMIN_URL, else http://localhost:8080, but not with a token.
        service_url: for what has to be read; by default PULSAR_EXT_URL, else the admin URL's host with port 6650.
        access: what it gets in with.
    """
    from pulsar_ext.skip.backlog import Backlog  # noqa: PLC0415  # loaded only by the command that needs it

    with _connected(admin_url, service_url, access) as (client, admin):
        # Before the skip, after which the broker may delete the ledgers it is about.
        internal = admin.internal_stats(topic)
        result = client.skip_messages(topic, subscription, count, unit=unit, dry_run=dry_run, progress=not as_json)
    if as_json:
        positions = {"position_before": str(result.position_before), "position_after": str(result.position_after)}
        print(json.dumps(asdict(result) | positions))  # noqa: T201  # it is the result
    else:
        Console(highlight=False).print(picture(result, Backlog.of(internal, subscription)))
    return 0


@contextlib.contextmanager
def _connected(admin_url: str | None, service_url: str | None, access: Access) -> Iterator[tuple[Client, PulsarAdmin]]:
    """Open a client and its admin API; what is not given comes from the environment."""
    import pulsar  # noqa: PLC0415  # loaded only by the command that needs it

    from pulsar_ext import Client, PulsarAdmin  # noqa: PLC0415  # likewise
    from pulsar_ext.admin import derive_admin_url  # noqa: PLC0415  # likewise

    admin_url = admin_url or derive_admin_url("pulsar://localhost", has_secret=access.token is not None)
    service_url = service_url or os.environ.get("PULSAR_EXT_URL") or _service_of(admin_url)
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with (
        PulsarAdmin(admin_url, **access.admin_options()) as admin,
        Client(service_url, admin=admin, logger=quiet, **access.client_options()) as client,
    ):
        yield client, admin


def _service_of(admin_url: str) -> str:
    parts = urlsplit(admin_url)
    secure = parts.scheme == "https"
    return f"pulsar{'+ssl' if secure else ''}://{parts.hostname}:{6651 if secure else 6650}"


def picture(result: SkipResult, backlog: Backlog) -> Group:
    """Draw the ledgers before and after: what is acknowledged, skipped and left of each, and where the cursor stands.

    Args:
        result: what was skipped.
        backlog: the topic as it was before.
    """
    table = Table("ledger", "entries", "before", "after", box=None, padding=(0, 2, 0, 0))
    ledgers = list(backlog.ledgers)
    shown = _around(ledgers, result)
    largest = max((entries for _, entries in shown), default=1)
    for ledger_id, entries in shown:
        before, after = (_bar(ledger_id, entries, largest, result, backlog, moved=moved) for moved in (False, True))
        table.add_row(str(ledger_id), str(entries), before, after)
    left_out = len(ledgers) - len(shown)
    note = Text(f"and {left_out} ledgers more, further from the cursor", style=_DONE) if left_out else Text("")
    return Group(_headline(result), Text(""), table, note, _legend(), _facts(result))


def _around(ledgers: list[tuple[int, int]], result: SkipResult) -> list[tuple[int, int]]:
    """Choose the ledgers between the two positions, and what fits on either side."""
    first = next((at for at, row in enumerate(ledgers) if row[0] >= result.position_before.ledger_id), 0)
    begin = max(min(first - 1, len(ledgers) - _ROWS), 0)
    return ledgers[begin : begin + _ROWS]


def _bar(ledger_id: int, entries: int, largest: int, result: SkipResult, backlog: Backlog, *, moved: bool) -> Text:
    """Draw one ledger: a cell stands for one entry, or for several where there are more than cells."""
    from pulsar_ext.ids.position import Position  # noqa: PLC0415  # loaded only by the command that needs it

    cells = max(1, min(entries, round(entries * _WIDTH / max(largest, _WIDTH))))
    cursor = result.position_after if moved else result.position_before
    bar, pointed = Text(), False
    for cell in range(cells):
        at = Position(ledger_id, cell * entries // cells)
        if not pointed and at > cursor and (cell or cursor.ledger_id < ledger_id):
            pointed = cursor.ledger_id == ledger_id
            bar.append("▶" if pointed else "", style="bold")
        if at <= result.position_before:
            bar.append("░", style=_DONE)
        elif at <= result.position_after:
            bar.append("░" if moved else "▓", style=_SKIPPED)
        elif backlog.acked_until(at) is not None:
            bar.append("░", style=_HOLE)
        else:
            bar.append("█", style=_LEFT)
    if cursor.ledger_id == ledger_id and not pointed:
        bar.append("▶", style="bold") if cursor.entry_id >= 0 else bar.pad_left(1, "▶")
    return bar


def _headline(result: SkipResult) -> Text:
    done = "would skip" if result.dry_run else "skipped"
    entries = "entry" if result.skipped_entries == 1 else "entries"
    messages = "message" if result.skipped_messages == 1 else "messages"
    text = Text(f"{done} {result.skipped_messages} {messages} in {result.skipped_entries} {entries}", style="bold")
    text.append("" if result.exact else f"  ({result.requested} {result.unit}s were asked for)", style="bold red")
    return text


def _legend() -> Text:
    return Text.assemble(
        ("░", _DONE), " acknowledged  ", ("▓", _SKIPPED), " skipped  ", ("░", _HOLE), " acknowledged out of order  ",
        ("█", _LEFT), " left  ", ("▶", "bold"), " cursor",
    )  # fmt: skip


def _facts(result: SkipResult) -> Text:
    inside = "" if result.batch_index is None else f", before message {result.batch_index} of the next batch"
    text = Text(f"cursor {result.position_before} → {result.position_after}{inside}; counted by: {result.strategy}")
    if result.redelivered_entries:
        text.append(f"\n{result.redelivered_entries} acknowledged entries behind it come again", style="bold red")
    return text
