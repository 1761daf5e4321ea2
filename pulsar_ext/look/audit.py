"""What an audit found on a topic's partitions, as one HTML page (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_ext.ids.text import counted

from .markup import Markup, document, element, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["AuditedTopic", "audit_page"]

_TALL = 10


@dataclass(frozen=True)
class AuditedTopic:
    """What was found on a topic or partition.

    Args:
        name: its full name.
        messages: how many it has.
        is_clean: whether nothing is wrong with it.
        found: of each kind of finding how many there are, and some of the places.
    """

    name: str
    messages: int
    is_clean: bool
    found: Mapping[str, tuple[int, Sequence[str]]]


def audit_page(topics: Sequence[AuditedTopic], title: str, when: str) -> str:
    """Draw how the messages are shared out, and the findings, each with some places.

    Args:
        topics: one for a topic, one a partition for a partitioned one.
        title: what was audited.
        when: it was, as text.
    """
    messages = sum(one.messages for one in topics)
    wrong = sum(not one.is_clean for one in topics)
    said = f"something is wrong with {wrong} of {len(topics)}" if wrong else "nothing is wrong"
    kinds = list(dict.fromkeys(kind for one in topics for kind in one.found))
    totals = {kind: sum(one.found[kind][0] for one in topics if kind in one.found) for kind in kinds}
    facts = {"messages": messages, **{kind: count for kind, count in totals.items() if count}}
    return document(
        f"{title}: {said}",
        element("h1", title),
        element(
            "p", f"audit of {counted(len(topics), 'topic or partition', 'topics or partitions')} · {said} · {when}"
        ),
        element(
            "dl",
            *(element("div", element("dt", name), element("dd", f"{value:,}")) for name, value in facts.items()),
            class_="facts",
        ),
        element("figure", *_rows(topics), class_="map"),
        *(part for kind in kinds if totals[kind] for part in _finding(kind, topics)),
    )


def _rows(topics: Sequence[AuditedTopic]) -> Iterator[Markup]:
    """Draw a bar for each partition: its messages, as wide as the most that one has."""
    most = max((one.messages for one in topics), default=0) or 1
    for one in topics:
        kinds = [f"{count:,} {kind}" for kind, (count, _) in one.found.items() if count]
        said = f"{one.name}: {counted(one.messages, 'message')}"
        bar = element("rect", class_="unread" if one.is_clean else "hole", width=one.messages, height=_TALL)
        box = f"0 0 {most} {_TALL}"
        strip = element("svg", bar, viewBox=box, preserveAspectRatio="none", role="img", aria_label=said)
        figures = (counted(one.messages, "message"), *(element("span", kind) for kind in kinds))
        yield element(
            "div",
            element("div", one.name, class_="name"),
            element("div", strip, class_="strip"),
            element("div", *figures, class_="figures"),
            class_="row",
            data_topic=one.name,
        )


def _finding(kind: str, topics: Sequence[AuditedTopic]) -> Iterator[Markup]:
    rows: list[list[object]] = [
        [one.name, count, ", ".join(places)]
        for one in topics
        for count, places in [one.found.get(kind, (0, ()))]
        if count
    ]
    yield element("h3", kind)
    yield table("findings", ["topic", "count", "places"], rows)
