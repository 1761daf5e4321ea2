"""HTML and SVG made of elements, in which every text is escaped, the page around them, and numbers in words."""

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
    """Text that is markup already, and so is not escaped again."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """Make an element; a child that is no markup is escaped, and so are the attributes.

    Args:
        name: its name.
        children: what is inside, in order.
        attributes: their names with `_` for `-`, and one at the end dropped, as in `class_`; without those of None.
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    opened = name + "".join(f' {key}="{escape(str(value))}"' for key, value in given.items())
    if name in _EMPTY:
        return Markup(f"<{opened}/>")
    inside = "".join(one if isinstance(one, Markup) else escape(one) for one in children)
    return Markup(f"<{opened}>{inside}</{name}>")


def table(kind: str, columns: list[str], rows: list[list[object]]) -> Markup:
    """Make a table that scrolls by itself where the page is narrow; numbers stand at the right."""
    head = element("tr", *(element("th", one, scope="col") for one in columns))
    body = (element("tr", *map(_cell, row)) for row in rows)
    inside = element("table", element("thead", head), element("tbody", *body), class_=kind)
    return element("div", inside, class_="wide")


def _cell(value: object) -> Markup:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return element("td", f"{value:,}", class_="number")
    return element("td", value if isinstance(value, Markup) else str(value))


def document(title: str, *body: str, refresh_seconds: float | None = None) -> str:
    """Make the whole page, which asks for nothing from anywhere and follows the reader's choice of light or dark.

    Args:
        title: of the page.
        body: what is on it.
        refresh_seconds: how often a browser loads it again; None for not.
    """
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
    """Say how large something is, in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _STEP:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= _STEP
    return f"{size:,.1f} TiB"


def age_text(seconds: float) -> str:
    """Say how old something is, in its largest unit."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def rate_text(messages: float) -> str:
    """Say how many messages a second there are."""
    return f"{messages:,.0f} msg/s" if messages >= 10 or not messages else f"{messages:.1f} msg/s"  # noqa: PLR2004


def batches_text(topic: TopicMap) -> list[str]:
    """Say what the entries are that were looked at, a line for each kind."""
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
    """Say how many errors and warnings there are."""
    errors = sum(one.severity == "error" for one in findings)
    parts = [(errors, "error"), (len(findings) - errors, "warning")]
    return ", ".join(counted(number, what) for number, what in parts if number) or "nothing is wrong"


def evidence_text(value: object) -> str:
    """Say what JSON says, without its signs: lists of objects have a line for each."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {evidence_text(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        nested = any(isinstance(one, Mapping | list | tuple) for one in value)
        return ("\n" if nested else ", ").join(map(evidence_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not known" if value is None else str(value)
