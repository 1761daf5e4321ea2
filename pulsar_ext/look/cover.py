"""Who has which key hash slots of Key_Shared subscriptions, as one HTML page (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext.ids.text import counted
from pulsar_ext.key_shared.hashing import SLOTS

from .markup import Markup, document, element, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pulsar_ext.key_shared.coverage import KeyCover
    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

__all__ = ["cover_page"]

_TALL = 10
_KINDS = {"acknowledged": "one consumer", "delivered": "several consumers", "hole": "no consumer"}
"""The looks of slots, and what each says."""


def cover_page(covers: Sequence[KeyCover], title: str, when: str) -> str:
    """Draw the slots of each topic or partition: whether they are covered, and what each consumer has.

    Args:
        covers: one for a topic, one a partition for a partitioned one.
        title: what was asked for.
        when: it was asked, as text.
    """
    return document(
        title,
        element("h1", title),
        element("p", f"key hash slots and their consumers · {when}", class_="soft"),
        *(one for cover in covers for one in _section(cover)),
    )


def _section(cover: KeyCover) -> Iterable[Markup]:
    wrong = {"no consumer": cover.uncovered, "several consumers": cover.overlapping}
    exact = "every slot has one consumer" if cover.is_exact else "not every slot has one consumer"
    looks = {
        "acknowledged": cover.covered - cover.overlapping,
        "delivered": cover.overlapping,
        "hole": cover.uncovered,
    }
    rows = [_row("all slots", cover.mode.lower().replace("_", " "), exact, looks)]
    for name, ranges in cover.consumers:
        said = f"{counted(ranges.slots, 'slot')}, {ranges.slots / SLOTS:.1%}"
        rows.append(_row(name, counted(len(ranges), "range"), said, {"unread": ranges}))
    yield element("h2", cover.topic)
    yield element("figure", *rows, _legend(), class_="map", data_topic=cover.topic)
    faults = [[what, part.start, part.end, len(part)] for what, ranges in wrong.items() for part in ranges]
    if faults:
        yield element("h3", "Slots that do not have one consumer")
        yield table("faults", ["", "first", "last", "slots"], faults)


def _row(name: str, below: str, figures: str, looks: dict[str, KeyHashRanges]) -> Markup:
    """Draw slots to scale, in a colour for each kind."""
    parts = [
        element("rect", class_=kind, x=part.start, y=0, width=len(part), height=_TALL)
        for kind, ranges in looks.items()
        for part in ranges
    ]
    box = f"0 0 {SLOTS} {_TALL}"
    said = f"{name}: {figures}"
    strip = element("svg", *parts, viewBox=box, preserveAspectRatio="none", role="img", aria_label=said)
    return element(
        "div",
        element("div", name, element("span", below), class_="name"),
        element("div", strip, class_="strip"),
        element("div", figures, class_="figures"),
        class_="row",
        data_row=name,
    )


def _legend() -> Markup:
    samples = (
        element("li", element("svg", element("rect", class_=kind, width=20, height=20), viewBox="0 0 20 20"), words)
        for kind, words in _KINDS.items()
    )
    return element("ul", *samples, class_="legend")
