"""HTML pages of key hash slots: a plan of ranges with their weights, and the slots of each consumer (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext.ids.text import counted
from pulsar_ext.key_shared.hashing import SLOTS
from pulsar_ext.key_shared.plan import binned

from .markup import Markup, document, element, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pulsar_ext.key_shared.coverage import KeyCover
    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges


_BINS = 256
_PLAN_HEIGHT = 100


def plan_page(
    histogram: Mapping[int, float],
    parts: Sequence[KeyHashRanges],
    weights: Sequence[float],
    title: str,
    unit: str,
    when: str,
) -> str:
    """Return the page of a plan: the weight of the slots in 256 bins, and the ranges with their weights."""
    total = sum(weights)
    even = total / len(parts) if parts else 0.0
    most = max(weights, default=0.0)
    facts = {
        unit: f"{total:,.0f}",
        f"slots with {unit}": f"{len([one for one in histogram.values() if one]):,}",
        "ranges": f"{len(parts):,}",
        "heaviest, relative to an even share": f"{most / even:.0%}" if even else "none",
    }
    return document(
        f"{title}: {counted(len(parts), 'range')}",
        element("h1", title),
        element("p", f"key hash ranges by {unit} · {when}", class_="soft"),
        element(
            "dl",
            *(element("div", element("dt", name), element("dd", value)) for name, value in facts.items()),
            class_="facts",
        ),
        element(
            "figure",
            element("div", "slots", element("span", f"{unit} per {SLOTS // _BINS} slots"), class_="name"),
            element("div", _bars(histogram, parts), _ends(), class_="strip tall"),
            class_="map",
        ),
        element("h3", "Ranges"),
        table("plan", ["", "slots", unit, "share", ""], [*_rows(parts, weights, total, most)]),
    )


def _bars(histogram: Mapping[int, float], parts: Sequence[KeyHashRanges]) -> Markup:
    """Draw a bar for each bin, and a line at the start of each part but the first."""
    bins = binned(histogram, _BINS)
    highest = max(bins, default=0.0) or 1.0
    bars = [
        element(
            "rect",
            class_="unread",
            x=at,
            width=1,
            y=f"{_PLAN_HEIGHT * (1 - weight / highest):.2f}",
            height=f"{_PLAN_HEIGHT * weight / highest:.2f}",
        )
        for at, weight in enumerate(bins)
        if weight
    ]
    starts = sorted(start for start in (one.start for part in parts for one in part) if start)
    cuts = [
        element("line", class_="cut", x1=f"{at:.3f}", x2=f"{at:.3f}", y1=0, y2=_PLAN_HEIGHT)
        for at in (start * _BINS / SLOTS for start in starts)
    ]
    label = f"weight of {SLOTS:,} slots in {_BINS} bins, cut into {counted(len(parts), 'range')}"
    box = f"0 0 {_BINS} {_PLAN_HEIGHT}"
    return element("svg", *bars, *cuts, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label)


def _ends() -> Markup:
    return element("div", element("span", "0"), element("span", f"{SLOTS - 1:,}"), class_="ends")


def _rows(
    parts: Sequence[KeyHashRanges], weights: Sequence[float], total: float, most: float
) -> Iterator[list[object]]:
    for at, (part, weight) in enumerate(zip(parts, weights, strict=True)):
        width = 100 * weight / most if most else 0.0
        bar = element(
            "svg",
            element("rect", class_="unread", x=0, y=0, width=f"{width:.2f}", height=10),
            viewBox="0 0 100 10",
            preserveAspectRatio="none",
            class_="share",
            aria_hidden="true",
        )
        yield [at, str(part), round(weight), f"{weight / total:.1%}" if total else "none", bar]


_ROW_HEIGHT = 10
_KINDS = {"acknowledged": "one consumer", "delivered": "several consumers", "hole": "no consumer"}
"""Labels of the CSS classes of slots."""


def cover_page(covers: Sequence[KeyCover], title: str, when: str) -> str:
    """Return the page of covers: the coverage of the slots, and the slots of each consumer."""
    return document(
        title,
        element("h1", title),
        element("p", f"key hash slots and their consumers · {when}", class_="soft"),
        *(one for cover in covers for one in _section(cover)),
    )


def _section(cover: KeyCover) -> Iterable[Markup]:
    wrong = {"no consumer": cover.uncovered, "several consumers": cover.overlapping}
    exact = "every slot has one consumer" if cover.is_exact else "not every slot has one consumer"
    kinds = {
        "acknowledged": cover.covered - cover.overlapping,
        "delivered": cover.overlapping,
        "hole": cover.uncovered,
    }
    rows = [_row("all slots", cover.mode.lower().replace("_", " "), exact, kinds)]
    for name, ranges in cover.consumers:
        share = f"{counted(ranges.slots, 'slot')}, {ranges.slots / SLOTS:.1%}"
        rows.append(_row(name, counted(len(ranges), "range"), share, {"unread": ranges}))
    yield element("h2", cover.topic)
    yield element("figure", *rows, _legend(), class_="map", data_topic=cover.topic)
    faults = [[what, part.start, part.end, len(part)] for what, ranges in wrong.items() for part in ranges]
    if faults:
        yield element("h3", "Slots without exactly one consumer")
        yield table("faults", ["", "first", "last", "slots"], faults)


def _row(name: str, detail: str, figures: str, kinds: dict[str, KeyHashRanges]) -> Markup:
    """Draw slots to scale, with a colour for each kind."""
    parts = [
        element("rect", class_=kind, x=part.start, y=0, width=len(part), height=_ROW_HEIGHT)
        for kind, ranges in kinds.items()
        for part in ranges
    ]
    box = f"0 0 {SLOTS} {_ROW_HEIGHT}"
    label = f"{name}: {figures}"
    strip = element("svg", *parts, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label)
    return element(
        "div",
        element("div", name, element("span", detail), class_="name"),
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
