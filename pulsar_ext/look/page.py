"""HTML pages of a topic's map with its findings, and of an audit of its partitions (pure).

A strip is an SVG as wide as the page; its texts are beside it, so that they keep their size. Heights distinguish kinds
as colours do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulsar_ext.ids.text import counted

from .markup import (
    Markup,
    age_text,
    batches_text,
    bytes_text,
    document,
    element,
    evidence_text,
    findings_text,
    rate_text,
    table,
)
from .topic_map import ChunkedMessage, CursorMap, TopicMap, cells_of, cursor_states, entry_kinds, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pulsar_ext.doctor.findings import Finding

    from .survey import Survey


_CELLS = 480
_CURSORS = 50
_ROWS = 20
_STRIP_HEIGHT = 20
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
_SHORTEST_LABEL = 0.06
"""Share of the width below which a ledger's id is only in its tooltip."""


def survey_page(seen: Survey, target: str, when: str, *, refresh_seconds: float | None = None) -> str:
    """Return the page of a survey."""
    findings = seen.diagnosis.findings
    summary = findings_text(findings)
    notes = [element("p", note, class_="soft") for note in seen.diagnosis.notes]
    if seen.diagnosis.left_out:
        excluded = counted(len(seen.diagnosis.left_out), "partition")
        notes.append(element("p", f"not inspected because of the limit of requests: {excluded}"))
    return document(
        f"{target}: {summary}",
        element("h1", target),
        element("p", f"{summary} · {when} · {counted(seen.diagnosis.requests, 'request')}", class_="soft"),
        *notes,
        *(_topic(one, several=len(seen.maps) > 1) for one in seen.maps),
        element("h2", "Findings"),
        *(map(_finding, findings) if findings else [element("p", "No problems found.")]),
        refresh_seconds=refresh_seconds,
    )


def _topic(topic: TopicMap, *, several: bool) -> Markup:
    facts = {
        "entries": f"{topic.entries:,}",
        "stored": bytes_text(topic.size),
        "ledgers": f"{len(topic.ledgers):,}",
        "rate in": rate_text(topic.rate_in),
        "producers": f"{len(topic.producers):,}",
        "deduplication": "on" if topic.deduplication else "off",
    }
    shown, more = topic.cursors[:_CURSORS], len(topic.cursors) - _CURSORS
    cells = cells_of(topic.entries, _CELLS)
    stored = [_ledgers(topic), _entries(topic, cells)] if topic.entries else []
    return element(
        "section",
        *([element("h2", topic.name)] if several else ()),
        element(
            "dl",
            *(element("div", element("dt", name), element("dd", value)) for name, value in facts.items()),
            class_="facts",
        ),
        element("figure", *stored, *(_cursor(topic, one, cells) for one in shown), _legend(), class_="map"),
        *([element("p", f"{counted(more, 'more cursor')} with smaller backlogs", class_="soft")] if more > 0 else ()),
        *_tables(topic),
        data_topic=topic.name,
    )


def _row(name: str, details: Iterable[str], strip: Markup, figures: Iterable[str], **attributes: object) -> Markup:
    first, *others = [*figures, ""]
    return element(
        "div",
        element("div", name, *(element("span", one) for one in details if one), class_="name"),
        element("div", strip, class_="strip"),
        element("div", first, *(element("span", one) for one in others if one), class_="figures"),
        class_="row",
        **attributes,
    )


def _svg(width: int, *parts: Markup, label: str, low: bool = False) -> Markup:
    box = f"0 0 {max(width, 1)} {_STRIP_HEIGHT}"
    return element(
        "svg",
        *parts,
        viewBox=box,
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_="low" if low else None,
    )


def _ledgers(topic: TopicMap) -> Markup:
    bars = []
    for at, one in enumerate(topic.ledgers):
        kind = "ledger other" if at % 2 else "ledger"
        title = f"ledger {one.ledger_id}: {counted(one.entries, 'entry')}, {bytes_text(one.size)}"
        title += (", open" if one.is_open else "") + (", offloaded" if one.offloaded else "")
        ids = {"data_ledger": one.ledger_id, "data_entries": one.entries}
        box = {"x": one.first - 1, "y": 0, "width": one.entries, "height": _STRIP_HEIGHT}
        bars.append(element("g", element("title", title), element("rect", class_=kind, **box, **ids)))
    strip = _svg(
        topic.entries, *bars, label=f"{counted(len(topic.ledgers), 'ledger')}, scaled by their entries", low=True
    )
    return _row("ledgers", (), Markup(strip + element("div", *_labels(topic), class_="labels")), ())


def _labels(topic: TopicMap) -> Iterator[Markup]:
    """Yield the ids of the ledgers that have room before the next label."""
    begins = [(one.first - 1) / topic.entries for one in topic.ledgers]
    labelled = [0]
    for at, begin in enumerate(begins):
        if begins[labelled[-1]] + _SHORTEST_LABEL <= begin <= 1 - _SHORTEST_LABEL:
            labelled.append(at)
    ends = [*(begins[at] for at in labelled[1:]), 1.0]
    for at, end in zip(labelled, ends, strict=True):
        yield element("span", str(topic.ledgers[at].ledger_id), style=f"width:{end - begins[at]:.4%}")


def _entries(topic: TopicMap, cells: int) -> Markup:
    bars = [*_bars(joined(entry_kinds(topic, cells))), *(_chunked(one, topic, cells) for one in topic.chunked)]
    count = len(topic.kinds)
    details = "all inspected" if count == topic.entries else f"{count:,} of {topic.entries:,} inspected"
    ends = element("div", element("span", "1"), element("span", f"{topic.entries:,}"), class_="ends")
    strip = Markup(_svg(cells, *bars, label=f"kinds of entries: {details}") + ends)
    return _row("entries", (details,), strip, batches_text(topic))


def _chunked(one: ChunkedMessage, topic: TopicMap, cells: int) -> Markup:
    """Draw a chunked message from its first to its last chunk that was inspected."""
    scale = cells / topic.entries
    first, last = min(one.chunks), max(one.chunks)
    title = f"{one.begin} to {one.end}: {len(one.chunks)} of {one.of_chunks} chunks inspected, {bytes_text(one.size)}"
    bar = element(
        "rect",
        class_="chunk one",
        x=f"{(first - 1) * scale:g}",
        y=_STRIP_HEIGHT - _HEIGHTS["chunk"],
        width=f"{(last - first + 1) * scale:g}",
        height=_HEIGHTS["chunk"],
        data_chunks=len(one.chunks),
    )
    return element("g", element("title", title), bar)


def _bars(parts: Iterable[tuple[int, int, str | None]]) -> list[Markup]:
    return [
        element(
            "rect",
            class_=what,
            x=at,
            y=_STRIP_HEIGHT - _HEIGHTS[what],
            width=count,
            height=_HEIGHTS[what],
        )
        for at, count, what in parts
        if what is not None
    ]


def _cursor(topic: TopicMap, cursor: CursorMap, cells: int) -> Markup:
    bars = _bars(joined(cursor_states(topic, cursor, cells)))
    for number, kind in ((cursor.acknowledged_until, "mark"), (cursor.read_until, "read")):
        at = number * cells / max(topic.entries, 1)
        bars.append(element("line", class_=kind, x1=f"{at:g}", x2=f"{at:g}", y1=0, y2=_STRIP_HEIGHT))
    holes = cursor.holes
    label = f"{cursor.name}: backlog of {counted(cursor.backlog_entries, 'entry')}, {counted(len(holes), 'hole')}"
    kind = cursor.type if cursor.durable else "reader"
    return _row(
        cursor.name,
        (kind, counted(len(cursor.consumers), "consumer")),
        _svg(cells, *bars, label=label) if topic.entries else Markup(),
        (
            f"backlog {counted(cursor.backlog_entries, 'entry')}",
            counted(len(holes), "hole") if holes else "",
            f"lag {age_text(cursor.lag_seconds)}" if cursor.lag_seconds is not None else "",
            rate_text(cursor.rate_out),
        ),
        data_cursor=cursor.name,
        data_mark_delete=cursor.mark_delete,
        data_read=cursor.read_position,
        data_backlog=cursor.backlog_entries,
        data_holes=len(holes),
    )


def _legend() -> Markup:
    def sample(kind: str) -> Markup:
        bar = element("rect", class_=kind, x=0, y=_STRIP_HEIGHT - _HEIGHTS[kind], width=20, height=_HEIGHTS[kind])
        return element("li", element("svg", bar, viewBox="0 0 20 20", aria_hidden="true"), text(kind))

    def text(kind: str) -> str:
        return _LABELS[kind]

    lines = (("mark", "mark-delete position"), ("read", "read position"))
    drawn = [
        element(
            "li",
            element("svg", element("line", class_=kind, x1=10, x2=10, y1=0, y2=20), viewBox="0 0 20 20"),
            what,
        )
        for kind, what in lines
    ]
    return element("ul", *map(sample, _HEIGHTS), *drawn, class_="legend")


def _tables(topic: TopicMap) -> Iterable[Markup]:
    holes = [
        [one.name, hole.begin, hole.end, hole.entries, hole.acknowledged_behind]
        for one in topic.cursors
        for hole in one.holes
    ]
    if holes:
        yield element("h3", f"Holes{_of(holes)}")
        yield table("holes", ["subscription", "first", "last", "entries", "acknowledged after"], holes[:_ROWS])
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
    if chunked:
        yield element("h3", f"Inspected chunked messages{_of(chunked)}")
        yield table(
            "chunked", ["first", "last", "chunks inspected", "bytes", "producer", "sequence id"], chunked[:_ROWS]
        )


def _of(rows: list[Any]) -> str:
    return f": the first {_ROWS} of {len(rows):,}" if len(rows) > _ROWS else f": {len(rows)}"


def _finding(one: Finding) -> Markup:
    evidence = [
        part
        for name, value in one.evidence.items()
        for part in (element("dt", name.replace("_", " ")), element("dd", evidence_text(value)))
    ]
    remedies = [
        part
        for remedy in one.remedies
        for part in (
            element("p", remedy.what),
            *(element("pre", command) for command in (remedy.dry_run, remedy.command) if command),
        )
    ]
    where = f"{one.topic} {one.subscription}".strip()
    return element(
        "article",
        element("h3", element("b", f"{one.severity}: {one.kind}"), f" {one.what}"),
        element("p", where, class_="soft"),
        element("dl", *evidence, element("dt", "otherwise"), element("dd", one.otherwise)),
        *remedies,
        class_=f"finding {one.severity}",
        data_kind=one.kind,
        data_subscription=one.subscription,
    )


_AUDIT_HEIGHT = 10


@dataclass(frozen=True)
class AuditedTopic:
    """Audit result of a topic or partition.

    Args:
        name: its full name.
        messages: number of its messages.
        is_clean: True if it has no findings.
        found: for each kind of finding its count, and some of its places.
    """

    name: str
    messages: int
    is_clean: bool
    found: Mapping[str, tuple[int, Sequence[str]]]


def audit_page(topics: Sequence[AuditedTopic], title: str, when: str) -> str:
    """Return the page of an audit: the messages of each topic or partition, and the findings with some places."""
    messages = sum(one.messages for one in topics)
    wrong = sum(not one.is_clean for one in topics)
    summary = f"problems in {wrong} of {len(topics)}" if wrong else "no problems found"
    kinds = list(dict.fromkeys(kind for one in topics for kind in one.found))
    totals = {kind: sum(one.found[kind][0] for one in topics if kind in one.found) for kind in kinds}
    facts = {"messages": messages, **{kind: count for kind, count in totals.items() if count}}
    return document(
        f"{title}: {summary}",
        element("h1", title),
        element(
            "p", f"audit of {counted(len(topics), 'topic or partition', 'topics or partitions')} · {summary} · {when}"
        ),
        element(
            "dl",
            *(element("div", element("dt", name), element("dd", f"{value:,}")) for name, value in facts.items()),
            class_="facts",
        ),
        element("figure", *_rows(topics), class_="map"),
        *(part for kind in kinds if totals[kind] for part in _audit_finding(kind, topics)),
    )


def _rows(topics: Sequence[AuditedTopic]) -> Iterator[Markup]:
    """Yield a bar for each partition, scaled by its messages."""
    most = max((one.messages for one in topics), default=0) or 1
    for one in topics:
        kinds = [f"{count:,} {kind}" for kind, (count, _) in one.found.items() if count]
        label = f"{one.name}: {counted(one.messages, 'message')}"
        bar = element("rect", class_="unread" if one.is_clean else "hole", width=one.messages, height=_AUDIT_HEIGHT)
        box = f"0 0 {most} {_AUDIT_HEIGHT}"
        strip = element("svg", bar, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label)
        figures = (counted(one.messages, "message"), *(element("span", kind) for kind in kinds))
        yield element(
            "div",
            element("div", one.name, class_="name"),
            element("div", strip, class_="strip"),
            element("div", *figures, class_="figures"),
            class_="row",
            data_topic=one.name,
        )


def _audit_finding(kind: str, topics: Sequence[AuditedTopic]) -> Iterator[Markup]:
    rows: list[list[object]] = [
        [one.name, count, ", ".join(places)]
        for one in topics
        for count, places in [one.found.get(kind, (0, ()))]
        if count
    ]
    yield element("h3", kind)
    yield table("findings", ["topic", "count", "places"], rows)
