"""HTML and SVG elements with escaped texts, the page around them, and numbers as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from pulsar_ext.ids.text import counted

if TYPE_CHECKING:
    from pulsar_ext.doctor.findings import Finding

    from .topic_map import TopicMap


_EMPTY = {"meta", "rect", "line"}


class Markup(str):
    """Text that is already markup, and is not escaped again."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """Return an element; attributes, and children that are not markup, are escaped."""
    present = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    opened = name + "".join(f' {key}="{escape(str(value))}"' for key, value in present.items())
    if name in _EMPTY:
        return Markup(f"<{opened}/>")
    inside = "".join(one if isinstance(one, Markup) else escape(one) for one in children)
    return Markup(f"<{opened}>{inside}</{name}>")


def table(kind: str, columns: list[str], rows: list[list[object]]) -> Markup:
    """Return a table that scrolls on narrow pages; numbers are right-aligned."""
    head = element("tr", *(element("th", one, scope="col") for one in columns))
    body = (element("tr", *map(_cell, row)) for row in rows)
    inside = element("table", element("thead", head), element("tbody", *body), class_=kind)
    return element("div", inside, class_="wide")


def _cell(value: object) -> Markup:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return element("td", f"{value:,}", class_="number")
    return element("td", value if isinstance(value, Markup) else str(value))


def document(title: str, *body: str, refresh_seconds: float | None = None) -> str:
    """Return the whole page, which loads nothing and follows the reader's light or dark theme."""
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        ),
        element("title", title),
        element("style", Markup(files("pulsar_ext.look").joinpath("page.css").read_text(encoding="utf-8"))),
    ]
    if refresh_seconds is not None:
        head.append(element("meta", http_equiv="refresh", content=f"{refresh_seconds:g}"))
    page = element("html", element("head", *head), element("body", element("main", *body)), lang="en")
    return f"<!doctype html>\n{page}\n"


_STEP = 1024
_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))


def bytes_text(size: float) -> str:
    """Return a size in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _STEP:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= _STEP
    return f"{size:,.1f} TiB"


def age_text(seconds: float) -> str:
    """Return an age in its largest unit."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def rate_text(messages: float) -> str:
    """Return a rate in messages per second."""
    return f"{messages:,.0f} msg/s" if messages >= 10 or not messages else f"{messages:.1f} msg/s"  # noqa: PLR2004


def batches_text(topic: TopicMap) -> list[str]:
    """Return the kinds of the inspected entries, a line for each kind."""
    kinds = list(topic.kinds.values())
    lines = []
    if single := kinds.count("message"):
        lines.append(counted(single, "single message"))
    if batches := sum(topic.batches.values()):
        messages = sum(size * count for size, count in topic.batches.items())
        lines.append(f"{counted(batches, 'batch')} of {messages / batches:,.1f} on average")
    if chunks := kinds.count("chunk"):
        lines.append(f"{counted(chunks, 'chunk')} of {counted(len(topic.chunked), 'message')}")
    return lines


def findings_text(findings: Sequence[Finding]) -> str:
    """Return the numbers of errors and warnings."""
    errors = sum(one.severity == "error" for one in findings)
    parts = [(errors, "error"), (len(findings) - errors, "warning")]
    return ", ".join(counted(number, what) for number, what in parts if number) or "no problems found"


def evidence_text(value: object) -> str:
    """Return a JSON value without its punctuation, with a line for each object in a list."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {evidence_text(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        nested = any(isinstance(one, Mapping | list | tuple) for one in value)
        return ("\n" if nested else ", ").join(map(evidence_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)
