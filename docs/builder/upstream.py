"""Reports for the official project: a page for each scenario, with the counts of docs/reproduce.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pulsar_ext.reproduce import SCENARIOS, causes, to_report

from .pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_reports"]


def write_reports(folder: Path) -> None:
    """Write every report, and the page that lists them, into a new folder."""
    table = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[([a-z-]+)\]\(\S+\) \| (.*)$", table, re.MULTILINE)
    seen = {name: cells.split(" | ")[1] for name, cells in rows}
    [broker] = re.findall(r"on Pulsar (\d+\.\d+\.\d+)", table)
    folder.mkdir()
    for name, scenario in SCENARIOS.items():
        (folder / f"{name}.md").write_text(to_report(scenario, seen[name], broker), encoding="utf-8")
    (folder / "index.md").write_text(_contents(), encoding="utf-8")


def _contents() -> str:
    every = causes()
    new = sum(cause["thread"].startswith("none found") for cause in every.values())
    lines = [
        "# Reports for upstream",
        "",
        f"A report for each of the {len(every)} scenarios, ready to send to the official project: what happens, why,",
        "with the file and the function, and a program that shows it with the official client alone.",
        f"For {new} of them no thread was found. `pulsar-ext reproduce NAME --report` prints one with new counts.",
        "",
        "| scenario | report | thread |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | [{every[name]['title']}]({name}.md) | {every[name]['thread']} |" for name in SCENARIOS]
    return "\n".join([*lines, ""])
