"""How a plan of key hash ranges shares the slots out, as one HTML page (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext.ids.text import counted
from pulsar_ext.key_shared.hashing import SLOTS
from pulsar_ext.key_shared.plan import binned

from .markup import Markup, document, element, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

__all__ = ["plan_page"]

_BINS = 256
_TALL = 100


def plan_page(
    histogram: Mapping[int, float],
    parts: Sequence[KeyHashRanges],
    weights: Sequence[float],
    title: str,
    unit: str,
    when: str,
) -> str:
    """Draw the weight of the slots, in 256 bins, where the parts begin, and how much each has.

    Args:
        histogram: the weight of each slot.
        parts: the ranges.
        weights: of each of them.
        title: what was weighed.
        unit: what a weight is: messages, or bytes.
        when: it was weighed, as text.
    """
    total = sum(weights)
    even = total / len(parts) if parts else 0.0
    most = max(weights, default=0.0)
    facts = {
        unit: f"{total:,.0f}",
        "slots with any": f"{len([one for one in histogram.values() if one]):,}",
        "ranges": f"{len(parts):,}",
        "the heaviest, of an even share": f"{most / even:.0%}" if even else "none",
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
    """Draw a bar for each bin, and a line where each part but the first begins."""
    bins = binned(histogram, _BINS)
    highest = max(bins, default=0.0) or 1.0
    bars = [
        element(
            "rect",
            class_="unread",
            x=at,
            width=1,
            y=f"{_TALL * (1 - weight / highest):.2f}",
            height=f"{_TALL * weight / highest:.2f}",
        )
        for at, weight in enumerate(bins)
        if weight
    ]
    starts = sorted(start for start in (one.start for part in parts for one in part) if start)
    cuts = [
        element("line", class_="cut", x1=f"{at:.3f}", x2=f"{at:.3f}", y1=0, y2=_TALL)
        for at in (start * _BINS / SLOTS for start in starts)
    ]
    said = f"the weight of {SLOTS:,} slots in {_BINS} bins, cut into {counted(len(parts), 'range')}"
    box = f"0 0 {_BINS} {_TALL}"
    return element("svg", *bars, *cuts, viewBox=box, preserveAspectRatio="none", role="img", aria_label=said)


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
