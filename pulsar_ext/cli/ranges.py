"""`pulsar-ext ranges`: the slots of keys, and their consumers."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.text import counted
from pulsar_ext.key_shared.coverage import KeyCover, key_cover
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.key_shared.hashing import SLOTS, auto_split_slot, key_slot
from pulsar_ext.key_shared.plan import draw_histogram, plan_key_hash_ranges, read_histogram
from pulsar_ext.look.page import cover_page

from .arguments import DEFAULT_PICTURE, LOCAL, LOCAL_URL, Flag, Html, Json, Png, Reach
from .output import check_writable, choose_picture, note, now_text, print_plan, print_result, write_page

app = App(name="ranges", help="Compute the slots of keys, split them, and check which consumer has which.")

_WIDEST = 128


@app.command
def slot(
    *keys: str,
    as_base64: Annotated[bool, Parameter(name="--base64", negative="")] = False,
    auto_split: Flag = False,
    as_json: Json = False,
) -> None:
    """Print the slot of each key, as the broker computes it.

    Args:
        keys: The keys, as text. An empty text is a key too.
        as_base64: The keys are bytes in base64.
        auto_split: Use the numbering of subscriptions whose slots the broker splits, instead of that of fixed
            ranges. `check --whose` determines it.
    """
    if not keys:
        raise InvalidUse("pass at least one key")
    slot_of = auto_split_slot if auto_split else key_slot
    try:
        found = [(key, slot_of(_decoded(key) if as_base64 else key)) for key in keys]
    except UnicodeEncodeError as error:
        raise InvalidUse(f"{error.object!r} is not valid text; pass bytes with --base64") from error
    text = "\n".join(f"{number:>5} {key}" for key, number in found)
    print_result([{"key": key, "slot": number} for key, number in found] if as_json else text)


@app.command
def split(parts: int, *, as_json: Json = False) -> None:
    """Split all slots into ranges of the same size, and print them.

    Args:
        parts: Number of ranges, 1 to 65536.
    """
    ranges = list(map(str, KeyHashRanges.full().split(parts)))
    print_result(ranges if as_json else "\n".join(ranges))


@app.command
def plan(
    topic: str,
    parts: int,
    *,
    by: Literal["messages", "bytes"] = "messages",
    png: Png = DEFAULT_PICTURE,
    html: Html = None,
    key_forms: Literal["auto", "exact", "text"] = "auto",
    reach: Reach = LOCAL,
    as_json: Json = False,
) -> None:
    """Read a topic, and print ranges that have about the same number of messages or bytes each.

    Args:
        topic: The topic to read, with or without partitions.
        parts: Number of ranges, one for each consumer.
        by: What to balance between the ranges.
        key_forms: How to distinguish a key of bytes from text that looks like base64. `exact` asks the admin API
            about each such key, `auto` about some, `text` about none.
    """
    # Invalid arguments raise before anything is read.
    plan_key_hash_ranges({}, parts)
    png = choose_picture(png)
    check_writable(html, "--html")
    notes = Console(stderr=True, highlight=False)
    with reach.open_client(reach.url or LOCAL_URL, reach.admin_url) as client, notes.status("reading") as status:
        histogram = read_histogram(
            client.context,
            topic,
            by=by,
            key_forms=key_forms,
            progress=lambda count: status.update(f"{counted(count, 'message')} read"),
        )
    ranges = plan_key_hash_ranges(histogram, parts)
    if png is not None:
        draw_histogram(histogram, ranges, topic, by, png)
        note(f"written: {png}")
    print_plan(topic, by, histogram, ranges, html=html, as_json=as_json)


@app.command
def check(
    topic: str,
    subscription: str,
    *,
    whose: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    html: Html = None,
    reach: Reach = LOCAL,
    as_json: Json = False,
) -> int:
    """Show which slots of a Key_Shared subscription are covered, uncovered or overlapping, and the consumers of a key.

    Exit status: 0 if every slot has one consumer, 1 if not.

    Args:
        topic: The topic, with or without partitions.
        subscription: Name of the subscription.
        whose: A key, as text, whose slot and consumer to show. May be repeated.
    """
    check_writable(html, "--html")
    with reach.open_admin() as admin:
        covers = key_cover(admin, topic, subscription)
    if html is not None:
        write_page(html, cover_page(covers, f"{subscription} on {topic}", now_text()))
    if as_json:
        print_result([_facts(cover, whose) for cover in covers])
    else:
        for cover in covers:
            _show(cover, whose)
    return 0 if all(cover.is_exact for cover in covers) else 1


def _facts(cover: KeyCover, keys: tuple[str, ...]) -> dict[str, object]:
    return {
        "topic": cover.topic,
        "subscription": cover.subscription,
        "mode": cover.mode,
        "consumers": [{"name": name, "ranges": str(ranges)} for name, ranges in cover.consumers],
        "covered": str(cover.covered),
        "uncovered": str(cover.uncovered),
        "overlapping": str(cover.overlapping),
        "exact": cover.is_exact,
        "keys": [{"key": key, "slot": cover.slot_of(key), "consumers": cover.consumers_of(key)} for key in keys],
    }


def _show(cover: KeyCover, keys: tuple[str, ...]) -> None:
    title = Text(f"{cover.subscription} on {cover.topic}")
    table = Table("", Column("slots", justify="right"), "ranges", title=title)
    for name, ranges in cover.consumers:
        table.add_row(Text(f"consumer {name}"), f"{ranges.slots:,}", str(ranges))
    table.add_section()
    for what in ("covered", "uncovered", "overlapping"):
        part: KeyHashRanges = getattr(cover, what)
        bad = what != "covered" and not part.is_empty
        table.add_row(what, f"{part.slots:,}", str(part), style="bold red" if bad else None)
    table.add_section()
    for key in keys:
        table.add_row(Text(f"key {key}"), f"slot {cover.slot_of(key)}", Text(", ".join(cover.consumers_of(key))))
    console = Console()
    console.print(_strip(cover, min(console.width, _WIDEST), ascii_only=console.options.ascii_only))
    console.print(table)
    if not cover.consumers:
        console.print("No consumer is connected.", style="red")
    elif not cover.uncovered.is_empty:
        console.print("Uncovered slots stall every consumer of the subscription.", style="red")


def _strip(cover: KeyCover, width: int, *, ascii_only: bool) -> Text:
    """Draw the slots in `width` columns; a column with a single faulty slot shows the fault."""
    styles = [("covered", "█", "=", "green"), ("overlapping", "▓", "#", "yellow"), ("uncovered", "░", "!", "red")]
    drawn: list[tuple[str, str]] = [(" ", "")] * width
    for name, block, letter, style in styles:
        for part in getattr(cover, name):
            for at in range(part.start * width // SLOTS, part.end * width // SLOTS + 1):
                drawn[at] = (letter if ascii_only else block, style)
    return Text.assemble(*drawn)


def _decoded(key: str) -> bytes:
    try:
        return base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidUse(f"{key!r} is not base64: {error}") from None
