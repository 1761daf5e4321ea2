"""`pulsar-ext redrive`: dead letters back to the topics that they came from."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pulsar_ext.transfer import Transfer

from .arguments import LOCAL, Json, Reach, read_pairs
from .cat import pattern_of, text_of
from .output import note, print_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.message import Message

app = App(name="redrive", help="Send dead letters back to the topics that they came from, each once.")

Where = Annotated[str | None, Parameter(help="Only messages whose value, as `cat` prints it, this expression matches.")]
Properties = Annotated[
    list[str] | None,
    Parameter(name="--property", negative="", help="Only messages with this property, NAME=VALUE; may be repeated."),
]
DryRun = Annotated[bool, Parameter(negative="", help="Only count the messages for each target.")]


@app.default
def redrive(
    dlq: str,
    /,
    *,
    to: str | None = None,
    subscription: str = "redrive",
    where: Where = None,
    property_: Properties = None,
    dry_run: DryRun = False,
    reach: Reach = LOCAL,
    as_json: Json = False,
) -> None:
    """Send the dead letters of DLQ back, and acknowledge each when it is persisted there.

    It ends with the letters that are stored when it begins. If it is interrupted or killed, the same command
    continues, and sends no letter twice.

    Args:
        dlq: The dead letter topic, partitioned or not.
        to: The topic for all letters, instead of the one that each came from.
        subscription: Subscription of DLQ that has the letters to redrive; it is created with all stored letters.
    """
    wanted = chosen(where, property_)
    with reach.connected() as (client, _):
        transfer = Transfer(client, client, dlq, subscription, to, is_letter=True, wanted=wanted)
        carry_out(transfer, dry_run=dry_run, as_json=as_json)


def chosen(where: str | None, properties: list[str] | None) -> Callable[[Message], bool] | None:
    """Return the function that chooses messages; None for all."""
    pattern, items = pattern_of(where), read_pairs("--property", properties or ()).items()
    if where is None and not items:
        return None
    return lambda message: items <= message.properties().items() and pattern.search(text_of(message)) is not None


def carry_out(transfer: Transfer, *, dry_run: bool, as_json: bool) -> None:
    """Run a transfer with its progress on the terminal, and print its numbers."""
    summary = transfer.summary
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("counting", total=None)

        def show(done: int, total: int) -> None:
            progress.update(task, description="sending", completed=done, total=total)

        try:
            transfer.run(dry_run=dry_run, on_progress=show)
        except BaseException:
            if summary.sent:
                note(f"{summary.sent:,} messages were sent; the same command continues, and sends none of them twice")
            raise
    if as_json:
        print_result({**asdict(summary), "dry_run": dry_run})
        return
    for target, count in summary.targets.items():
        print_result(f"{count:,} for {target}")
    wanted = summary.found - summary.excluded
    sent = f"would be sent: {wanted - summary.already_sent:,}" if dry_run else f"sent: {summary.sent:,}"
    print_result(f"{sent}; sent before: {summary.already_sent:,}; excluded: {summary.excluded:,}")
