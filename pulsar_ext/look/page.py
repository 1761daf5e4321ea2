"""HTML pages of a topic's map with its findings, of an audit, and of key hash slots (pure); `templates/` draws them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_ext.ids.text import counted
from pulsar_ext.key_shared.coverage import KeyCover
from pulsar_ext.key_shared.hash_ranges import KeyHashRange, KeyHashRanges
from pulsar_ext.key_shared.hashing import SLOTS
from pulsar_ext.key_shared.plan import binned, weights_of

from .survey import Survey, TopicMap, cursor_states, entry_kinds, joined
from .text import age_text, batches_text, bytes_text, evidence_text, findings_text, inspected_text, rate_text

if TYPE_CHECKING:
    from jinja2 import Environment


_CELLS = 480
_CURSORS = 50
_BINS = 256
_SHORTEST_LABEL = 0.06
"""Share of the width below which a ledger's id is only in its tooltip."""


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  # an extra

    loader = PackageLoader("pulsar_ext.look")
    made = Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    made.filters |= {"counted": counted, "number": "{:,}".format, "evidence": evidence_text}
    made.filters |= {"age": age_text, "bytes": bytes_text, "rate": rate_text, "faults": _faults}
    made.filters |= {"inspected": inspected_text, "batches": batches_text, "figures": _figures}
    made.globals |= {"SLOTS": SLOTS, "BINS": _BINS}
    return made


def _render(template: str, title: str, summary: str, when: str, **values: object) -> str:
    return _environment().get_template(f"{template}.html").render(title=title, summary=summary, when=when, **values)


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
        "cells": cells,
        "scale": cells / max(topic.entries, 1),
        "labels": list(_labels(topic)) if topic.entries else [],
        "kinds": joined(entry_kinds(topic, cells)),
        "cursors": [(one, joined(cursor_states(topic, one, cells))) for one in topic.cursors[:_CURSORS]],
        "holes": [(one.name, hole) for one in topic.cursors for hole in one.holes],
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
    summary = f"problems in {wrong} of {len(topics)}" if wrong else "no problems found"
    every = {kind: sum(one.found[kind][0] for one in topics) for kind in (topics[0].found if topics else ())}
    counts = {kind: count for kind, count in every.items() if count}
    return _render("audit", title, summary, when, topics=topics, counts=counts)


def _figures(topic: AuditedTopic) -> list[str]:
    found = (f"{count:,} {kind}" for kind, (count, _) in topic.found.items() if count)
    return [counted(topic.messages, "message"), *found]


def plan_page(histogram: Mapping[int, float], parts: Sequence[KeyHashRanges], title: str, unit: str, when: str) -> str:
    """Return the page of a plan: the weight of the slots in 256 bins, and the ranges with their weights."""
    weights = weights_of(histogram, parts)
    bins = binned(histogram, _BINS)
    highest = max(bins, default=0.0) or 1.0
    heights = [100 * weight / highest for weight in bins]
    summary = counted(len(parts), "range")
    return _render(
        "plan", title, summary, when, unit=unit, histogram=histogram, parts=parts, weights=weights, heights=heights
    )


def cover_page(covers: Sequence[KeyCover], title: str, when: str) -> str:
    """Return the page of the covers of a topic or of its partitions: the coverage, and the slots of each consumer."""
    return _render("cover", title, "", when, covers=covers)


def _faults(cover: KeyCover) -> list[tuple[str, KeyHashRange]]:
    wrong = {"no consumer": cover.uncovered, "several consumers": cover.overlapping}
    return [(what, part) for what, ranges in wrong.items() for part in ranges]
