"""Sum up the measured results: the faults of all campaigns in one table, and the speeds in one picture."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from .pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["fault_totals", "speed_picture"]

_CAMPAIGNS = {
    "acks": "acknowledgements",
    "producer": "producers",
    "retry": "retry letters",
    "cluster": "a cluster",
    "spark": "Spark",
}
_COUNTED = {"cycles": "cycles", "kills": "cycles", "faults": "cycles", "restarts": "cycles", "sent": "sent"}
_COUNTED |= {"messages": "sent", "lost": "lost", "duplicated": "twice", "confirmed, again": "twice"}
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_LEAST = 2


def fault_totals() -> str:
    """Return a table with a line for each campaign and client: cycles, messages, lost, stored or delivered twice."""
    lines = ["| campaign | client | cycles | messages | lost | twice | counts |", "|---|---|--:|--:|--:|--:|---|"]
    for name, title in _CAMPAIGNS.items():
        file = ROOT / "tests" / "faults" / f"RESULTS-{name}.md"
        totals: dict[str, dict[str, int]] = {}
        for row in _rows(file):
            total = totals.setdefault(row.get("client", "pulsar_ext"), dict.fromkeys(_COUNTED.values(), 0))
            for column, what in _COUNTED.items():
                total[what] += _number(row.get(column, ""))
        for client, total in totals.items():
            cells = (f"{total[what]:,}" for what in ("cycles", "sent", "lost", "twice"))
            lines.append(f"| {title} | {client} | {' | '.join(cells)} | [{name}](../tests/faults/{file.name}) |")
    return "\n".join(lines)


def _rows(file: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of every table of a page that counts lost messages."""
    for table in _TABLE.findall(file.read_text(encoding="utf-8")):
        header, _, *rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()]
        if "lost" in header and len(_COUNTED.keys() & set(header)) > _LEAST:
            for row in rows:
                yield dict(zip(header, row, strict=False))


def _number(text: str) -> int:
    """Return a count, or the sum of those in a text such as `4 worker, 4 broker`."""
    return sum(int(part.replace(",", "")) for part in re.findall(r"\d[\d,]*", text))


def speed_picture() -> str:
    """Draw the ratios of benchmarks/RESULTS.md as bars: speed relative to the official client."""
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ([^|]+?) \| [\d,]+ \| [\d,]+ \| ([\d.]+) \|", text, re.MULTILINE)
    ratios = [(path, float(ratio)) for path, ratio in found if "prefetched" not in path]
    left, height, width = 330, 24, 820
    scale = (width - left - 70) / max(ratio for _, ratio in ratios)
    parts = []
    for number, (path, ratio) in enumerate(ratios):
        y = 40 + number * height
        colour = "#2f9e5b" if ratio >= 1 else "#c98a1b"
        parts += [
            f'<text x="{left - 10}" y="{y + 14}" text-anchor="end">{escape(path)}</text>',
            f'<rect x="{left}" y="{y + 2}" width="{ratio * scale:.1f}" height="{height - 8}" rx="3" fill="{colour}"/>',
            f'<text x="{left + ratio * scale + 6:.1f}" y="{y + 14}" fill="#5b6675">{ratio:.2f}</text>',
        ]
    bottom = 44 + len(ratios) * height
    one = left + scale
    parts += [
        f'<line x1="{one:.1f}" y1="30" x2="{one:.1f}" y2="{bottom}" stroke="#1f2937" stroke-dasharray="4 3"/>',
        f'<text x="{one:.1f}" y="22" text-anchor="middle" font-weight="bold">the official client</text>',
    ]
    begin = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 10}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12.5" fill="#1f2937">'
    )
    title = "<title>Speed relative to the official client</title>"
    ground = f'<rect width="{width}" height="{bottom + 10}" rx="8" fill="#ffffff"/>'
    return "\n".join([begin, title, ground, *parts, "</svg>", ""])
