"""`pulsar-ext skip`: skip messages of a subscription."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from cyclopts import App
from rich.console import Console
from rich.text import Text

from pulsar_ext.ids.text import counted
from pulsar_ext.skip.skipper import SkipResult

from .arguments import Flag, Json, Reach
from .output import print_json

app = App(name="skip", help="Skip an exact number of messages of a subscription.")

_LOCAL = Reach()


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
    reach: Reach = _LOCAL,
) -> None:
    """Skip COUNT unacknowledged messages of SUBSCRIPTION, and show its cursor before and after.

    Args:
        topic: The topic, such as persistent://public/default/orders. It must have no partitions, or be one partition.
        subscription: Name of an existing subscription of the topic.
        count: Number of messages to skip, beginning with the first unacknowledged one.
        unit: What to count: messages, or entries as the broker's own skip does. A batch is one entry.
        dry_run: Only show what would be skipped; the cursor does not move.
    """
    with reach.connected() as (client, _):
        result = client.skip_messages(topic, subscription, count, unit=unit, dry_run=dry_run, progress=not as_json)
    if as_json:
        positions = {"position_before": str(result.position_before), "position_after": str(result.position_after)}
        print_json(asdict(result) | positions)
    else:
        Console(highlight=False).print(described(result))


def described(result: SkipResult) -> Text:
    """Return the counts, and the cursor before and after the skip."""
    done = "would skip" if result.dry_run else "skipped"
    messages, entries = counted(result.skipped_messages, "message"), counted(result.skipped_entries, "entry")
    text = Text.assemble((f"{done} {messages} in {entries}", "bold"))
    if not result.exact:
        text.append(f"  (requested: {counted(result.requested, result.unit)})", style="bold red")
    inside = "" if result.batch_index is None else f", before message {result.batch_index} of the next batch"
    text.append(f"\ncursor {result.position_before} → {result.position_after}{inside}; counted by: {result.strategy}")
    if result.redelivered_entries:
        again = counted(result.redelivered_entries, "acknowledged entry")
        text.append(f"\nwill be redelivered: {again}", style="bold red")
    return text
