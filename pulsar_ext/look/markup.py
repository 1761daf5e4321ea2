"""HTML and SVG made of elements, in which every text is escaped; and the one page around them (pure)."""

from __future__ import annotations

from html import escape

__all__ = ["Markup", "document", "element", "table"]

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
    """Make a table that scrolls by itself where the page is narrow; numbers stand at the right.

    Args:
        kind: its class.
        columns: their heads.
        rows: their cells.
    """
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
        element("style", Markup(_STYLE)),
    ]
    if refresh_seconds is not None:
        head.append(element("meta", http_equiv="refresh", content=f"{refresh_seconds:g}"))
    page = element("html", element("head", *head), element("body", element("main", *body)), lang="en")
    return f"<!doctype html>\n{page}\n"


_STYLE = """
:root {
  --ground: #fbfbfa; --card: #ffffff; --ink: #1d2327; --soft: #5c666d; --edge: #dfe3e6; --track: #f0f2f3;
  --acknowledged: #b9c6c2; --unread: #2f6fb5; --delivered: #d08a00; --hole: #c8321f;
  --message: #8fa3ad; --batch: #3f8f7f; --chunk: #8a55a8; --ledger: #cfd6da; --other: #b4bfc5;
  --error: #c8321f; --warning: #9a6500; --command: #f0f2f3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14181b; --card: #1c2226; --ink: #e4e8ea; --soft: #9aa6ad; --edge: #333c42; --track: #252c31;
    --acknowledged: #4c5a57; --unread: #5a9be0; --delivered: #e3a72f; --hole: #f0604a;
    --message: #70838d; --batch: #4fae9b; --chunk: #b184cf; --ledger: #3a454c; --other: #505e67;
    --error: #f0604a; --warning: #e3a72f; --command: #12171a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.35rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; overflow-wrap: anywhere; }
h3 { font-size: .95rem; margin: 1.2rem 0 .4rem; }
p { margin: .3rem 0; }
.soft { color: var(--soft); }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: .8rem 0 1rem; padding: 0; }
.facts div { display: flex; flex-direction: column-reverse; }
.facts dt { color: var(--soft); font-size: .85rem; }
.facts dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.map { background: var(--card); border: 1px solid var(--edge); border-radius: 8px; padding: .9rem 1rem; margin: 0; }
.row { display: grid; grid-template-columns: 11rem minmax(0, 1fr) 11rem; gap: .2rem 1rem; align-items: center;
  padding: .45rem 0; border-top: 1px solid var(--edge); }
.row:first-child { border-top: 0; }
.name { overflow-wrap: anywhere; font-weight: 600; }
.name span, .figures span { display: block; font-weight: 400; font-size: .82rem; color: var(--soft); }
.figures { font-size: .9rem; font-variant-numeric: tabular-nums; }
.strip { min-width: 0; }
.strip svg { display: block; width: 100%; height: 26px; background: var(--track); }
.strip svg.low { height: 16px; }
.strip.tall svg { height: 180px; }
svg.share { width: 9rem; height: .8rem; display: block; }
.labels { display: flex; font-size: .75rem; color: var(--soft); font-variant-numeric: tabular-nums; }
.labels span { overflow: hidden; white-space: nowrap; text-overflow: clip; min-width: 0; padding-left: 2px; }
.ends { display: flex; justify-content: space-between; font-size: .75rem; color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .7rem 0 0; padding: 0; list-style: none;
  font-size: .82rem; color: var(--soft); }
.legend li { display: flex; align-items: center; gap: .4rem; }
.legend svg { width: 14px; height: 14px; }
.acknowledged { fill: var(--acknowledged); } .unread { fill: var(--unread); } .delivered { fill: var(--delivered); }
.hole { fill: var(--hole); } .message { fill: var(--message); } .batch { fill: var(--batch); }
.chunk { fill: var(--chunk); } .ledger { fill: var(--ledger); } .ledger.other { fill: var(--other); }
.one { stroke: var(--card); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.mark { stroke: var(--ink); stroke-width: 2; vector-effect: non-scaling-stroke; }
.read { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 3 2; vector-effect: non-scaling-stroke; }
.cut { stroke: var(--hole); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; }
th, td { text-align: left; padding: .25rem 1.2rem .25rem 0; border-bottom: 1px solid var(--edge); vertical-align: top;
  white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.finding { background: var(--card); border: 1px solid var(--edge); border-left: 4px solid var(--warning);
  border-radius: 6px; padding: .8rem 1rem; margin: 0 0 .9rem; overflow-wrap: anywhere; }
.finding.error { border-left-color: var(--error); }
.finding h3 { margin: 0 0 .3rem; } .finding b { color: var(--warning); } .finding.error b { color: var(--error); }
.finding dl { margin: .5rem 0; display: grid; grid-template-columns: minmax(6rem, max-content) minmax(0, 1fr);
  gap: .1rem 1rem; font-size: .87rem; }
.finding dt { color: var(--soft); } .finding dd { margin: 0; white-space: pre-line; }
pre { background: var(--command); border-radius: 4px; padding: .4rem .6rem; margin: .3rem 0; white-space: pre-wrap;
  font: .84rem/1.4 ui-monospace, monospace; }
@media (max-width: 720px) {
  main { padding: 1rem .7rem 2rem; }
  .map { padding: .6rem .7rem; }
  .row { grid-template-columns: minmax(0, 1fr); }
  .name span, .figures span { display: inline; } .name span::before, .figures span::before { content: " · "; }
  .finding dl { grid-template-columns: 8.5rem minmax(0, 1fr); gap: .1rem .6rem; }
}
@media print { .finding, .map { break-inside: avoid; } }
"""
