"""HTML pages of a topic's map with its findings, of an audit, and of key hash slots (pure); `templates/` draws them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_ext.ids.text import counted
from pulsar_ext.key_shared.coverage import KeyCover
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.key_shared.hashing import SLOTS
from pulsar_ext.key_shared.plan import binned, weights_of

from .survey import Survey
from .text import age_text, batches_text, bytes_text, evidence_text, findings_text, inspected_text, rate_text
from .topic_map import TopicMap, cursor_states, entry_kinds, joined

if TYPE_CHECKING:
    from jinja2 import Environment


_CELLS = 480
_CURSORS = 50
_HEIGHTS = {"acknowledged": 8, "unread": 13, "delivered": 16, "hole": 20, "message": 10, "batch": 15, "chunk": 20}
_LABELS = {
    "acknowledged": "acknowledged",
    "unread": "unread",
    "delivered": "read, not acknowledged",
    "hole": "hole: later entries are acknowledged",
    "message": "single message",
    "batch": "batch",
    "chunk": "chunk",
}
_BINS = 256
_SHORTEST_LABEL = 0.06
"""Share of the width below which a ledger's id is only in its tooltip."""


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  # an extra

    loader = PackageLoader("pulsar_ext.look")
    made = Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    made.filters |= {"counted": counted, "number": "{:,}".format, "evidence": evidence_text}
    made.filters |= {"age": age_text, "bytes": bytes_text, "rate": rate_text}
    made.globals |= {"STRIP": 20, "HEIGHTS": _HEIGHTS, "LABELS": _LABELS, "ROWS": 20, "SLOTS": SLOTS, "BINS": _BINS}
    return made


def _render(template: str, title: str, summary: str, when: str, **values: object) -> str:
    page = _environment().get_template(f"{template}.html")
    return page.render(
        page_title=f"{title}: {summary}" if summary else title, title=title, summary=summary, when=when, **values
    )


# -- a topic's map -----------------------------------------------------------------------------------------------------


def survey_page(seen: Survey, target: str, when: str, *, refresh_seconds: float | None = None) -> str:
    """Return the page of a survey, which a browser reloads every `refresh_seconds`; never if None."""
    return _render(
        "survey",
        target,
        findings_text(seen.diagnosis.findings),
        when,
        diagnosis=seen.diagnosis,
        topics=list(map(_view_of, seen.maps)),
        refresh_seconds=refresh_seconds,
    )


def _view_of(topic: TopicMap) -> dict[str, object]:
    """Return a map in cells; bars are triples of the first cell, the number of cells and the kind."""
    cells = min(topic.entries, _CELLS)
    return {
        "topic": topic,
        "facts": {
            "entries": f"{topic.entries:,}",
            "stored": bytes_text(topic.size),
            "ledgers": f"{len(topic.ledgers):,}",
            "rate in": rate_text(topic.rate_in),
            "producers": f"{len(topic.producers):,}",
            "deduplication": "on" if topic.deduplication else "off",
        },
        "cells": cells,
        "scale": cells / max(topic.entries, 1),
        "labels": list(_labels(topic)) if topic.entries else [],
        "inspected": inspected_text(topic),
        "batches": batches_text(topic) or [""],
        "kinds": joined(entry_kinds(topic, cells)),
        "cursors": [(one, joined(cursor_states(topic, one, cells))) for one in topic.cursors[:_CURSORS]],
        "more_cursors": len(topic.cursors) - _CURSORS,
        "tables": _tables(topic),
    }


def _labels(topic: TopicMap) -> Iterator[tuple[int, float]]:
    """Yield the id of each ledger that has room before the next label, and its share of the width."""
    begins = [(one.first - 1) / topic.entries for one in topic.ledgers]
    labelled = [0]
    for at, begin in enumerate(begins):
        if begins[labelled[-1]] + _SHORTEST_LABEL <= begin <= 1 - _SHORTEST_LABEL:
            labelled.append(at)
    ends = [*(begins[at] for at in labelled[1:]), 1.0]
    for at, end in zip(labelled, ends, strict=True):
        yield topic.ledgers[at].ledger_id, end - begins[at]


def _tables(topic: TopicMap) -> list[tuple[str, str, list[str], list[list[object]]]]:
    """Return the class, the heading, the columns and the rows of each table."""
    holes: list[list[object]] = [
        [one.name, hole.begin, hole.end, hole.entries, hole.acknowledged_behind]
        for one in topic.cursors
        for hole in one.holes
    ]
    chunked: list[list[object]] = [
        [
            one.begin,
            one.end,
            f"{len(one.chunks)} of {one.of_chunks}",
            bytes_text(one.size),
            one.producer,
            str(one.sequence_id),
        ]
        for one in topic.chunked
    ]
    of_chunked = ["first", "last", "chunks inspected", "bytes", "producer", "sequence id"]
    return [
        ("holes", "Holes", ["subscription", "first", "last", "entries", "acknowledged after"], holes),
        ("chunked", "Inspected chunked messages", of_chunked, chunked),
    ]


# -- an audit ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditedTopic:
    """Audit result of a topic or partition: for each kind of finding its count, and some of its places."""

    name: str
    messages: int
    is_clean: bool
    found: Mapping[str, tuple[int, Sequence[str]]]


def audit_page(topics: Sequence[AuditedTopic], title: str, when: str) -> str:
    """Return the page of an audit: the messages of each topic or partition, and the findings with some places."""
    wrong = sum(not one.is_clean for one in topics)
    findings: dict[str, list[list[object]]] = {}
    for one in topics:
        for kind, (count, places) in one.found.items():
            findings.setdefault(kind, []).extend([[one.name, count, ", ".join(places)]] if count else [])
    totals = {kind: sum(topic.found[kind][0] for topic in topics if kind in topic.found) for kind in findings}
    facts = {
        "messages": sum(one.messages for one in topics),
        **{kind: count for kind, count in totals.items() if count},
    }
    return _render(
        "audit",
        title,
        f"problems in {wrong} of {len(topics)}" if wrong else "no problems found",
        when,
        totals={name: f"{count:,}" for name, count in facts.items()},
        topics=[
            (one, [counted(one.messages, "message"), *(f"{n:,} {kind}" for kind, (n, _) in one.found.items() if n)])
            for one in topics
        ],
        most=max((one.messages for one in topics), default=0) or 1,
        findings=findings,
    )


# -- key hash slots ----------------------------------------------------------------------------------------------------


def plan_page(histogram: Mapping[int, float], parts: Sequence[KeyHashRanges], title: str, unit: str, when: str) -> str:
    """Return the page of a plan: the weight of the slots in 256 bins, and the ranges with their weights."""
    weights = weights_of(histogram, parts)
    total, most = sum(weights), max(weights, default=0.0)
    even = total / len(parts) if parts else 0.0
    bins = binned(histogram, _BINS)
    highest = max(bins, default=0.0) or 1.0
    return _render(
        "plan",
        title,
        counted(len(parts), "range"),
        when,
        unit=unit,
        totals={
            unit: f"{total:,.0f}",
            f"slots with {unit}": f"{len([one for one in histogram.values() if one]):,}",
            "ranges": f"{len(parts):,}",
            "heaviest, relative to an even share": f"{most / even:.0%}" if even else "none",
        },
        heights=[100 * weight / highest for weight in bins],
        starts=sorted(one.start for part in parts for one in part if one.start),
        rows=[
            (
                str(part),
                round(weight),
                f"{weight / total:.1%}" if total else "none",
                100 * weight / most if most else 0.0,
            )
            for part, weight in zip(parts, weights, strict=True)
        ],
    )


def cover_page(covers: Sequence[KeyCover], title: str, when: str) -> str:
    """Return the page of the covers of a topic or of its partitions: the coverage, and the slots of each consumer."""
    return _render("cover", title, "", when, covers=[(cover.topic, _rows(cover), _faults(cover)) for cover in covers])


def _rows(cover: KeyCover) -> list[tuple[str, str, str, dict[str, KeyHashRanges]]]:
    """Return name, detail, figures and colours of the row of all slots, and of each consumer's."""
    exact = "every slot has one consumer" if cover.is_exact else "not every slot has one consumer"
    kinds = {"acknowledged": cover.covered - cover.overlapping, "delivered": cover.overlapping, "hole": cover.uncovered}
    return [
        ("all slots", cover.mode.lower().replace("_", " "), exact, kinds),
        *(
            (
                name,
                counted(len(ranges), "range"),
                f"{counted(ranges.slots, 'slot')}, {ranges.slots / SLOTS:.1%}",
                {"unread": ranges},
            )
            for name, ranges in cover.consumers
        ),
    ]


def _faults(cover: KeyCover) -> list[list[object]]:
    wrong = {"no consumer": cover.uncovered, "several consumers": cover.overlapping}
    return [[what, part.start, part.end, len(part)] for what, ranges in wrong.items() for part in ranges]
