"""The rows as a table for a terminal, as JSON, and as the tables of the documents."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pulsar_ext import __version__
from pulsar_ext.errors import InvalidUse

from ._scenario import Verdict
from ._scenarios import GROUPS, SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ._runner import Row

__all__ = ["to_json", "to_markdown", "to_summary", "to_table", "update_markdown"]

_TABLE, _SUMMARY = "reproduce", "reproduce summary"
_STYLES = {
    Verdict.FIXED_HERE: "green",
    Verdict.FIXED_UPSTREAM: "cyan",
    Verdict.BROKEN: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_RUN: "yellow",
}


def _official() -> str:
    return f"pulsar-client {version('pulsar-client')}"


def _ours() -> str:
    return f"pulsar_ext {__version__}"


def to_table(rows: Sequence[Row]) -> Table:
    """Make the table for a terminal."""
    from rich.table import Column, Table  # noqa: PLC0415  # an extra, which JSON does not need
    from rich.text import Text  # noqa: PLC0415  # likewise

    table = Table(Column("scenario", no_wrap=True), _official(), _ours(), Column("verdict", no_wrap=True))
    for row in rows:
        verdict = Text(row.verdict.value, style=_STYLES[row.verdict])
        table.add_row(row.scenario.name, Text(str(row.official)), Text(str(row.ours)), verdict)
    return table


def to_json(rows: Sequence[Row]) -> str:
    """Make the JSON; its keys stay as they are."""
    data: dict[str, Any] = {
        "official": {"name": "pulsar-client", "version": version("pulsar-client")},
        "pulsar_ext": {"version": __version__},
        "scenarios": [
            {
                "name": row.scenario.name,
                "claim": row.scenario.claim,
                "reference": row.scenario.reference,
                "profile": row.scenario.profile,
                "broker_version": row.broker_version,
                "official": row.official.to_dict(),
                "pulsar_ext": row.ours.to_dict(),
                "verdict": row.verdict.value,
            }
            for row in rows
        ],
        "broken": [row.scenario.name for row in rows if row.verdict is Verdict.BROKEN],
    }
    return json.dumps(data, indent=2)


def to_markdown(rows: Sequence[Row]) -> str:
    """Make the table of docs/reproduce.md, a line a scenario, which links to the scenario's heading there."""
    lines = [
        f"| scenario | what should happen | {_official()} | {_ours()} | verdict |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        name = f"[{row.scenario.name}](#{row.scenario.name})"
        cells = (name, row.scenario.claim, str(row.official), str(row.ours), row.verdict.value)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join([*lines, "", _origin(rows)])


def to_summary(rows: Sequence[Row]) -> str:
    """Make the table of the README, a line for each group of scenarios.

    Raises:
        InvalidUse: there is not a row for each scenario.
    """
    found = {row.scenario.name: row for row in rows}
    if missing := [name for name in SCENARIOS if name not in found]:
        raise InvalidUse(f"the summary needs a run of all scenarios; not among them: {', '.join(missing)}")
    lines = [
        f"| about | what goes wrong | {_official()} | {_ours()} |",
        "|---|---|---|---|",
    ]
    for group, (about, names) in GROUPS.items():
        clean = [(found[name].official.clean, found[name].ours.clean) for name in names]
        official, ours = (f"{sum(part)} of {len(names)} right" for part in zip(*clean, strict=True))
        lines.append(f"| {group} | {about} | {official} | {ours} |")
    return "\n".join([*lines, "", _origin(rows)])


def _origin(rows: Sequence[Row]) -> str:
    brokers = " and ".join(sorted({row.broker_version for row in rows}))
    return f"From a run of `pulsar-ext reproduce` on Pulsar {brokers}."


def update_markdown(text: str, rows: Sequence[Row]) -> str:
    """Put the table, the summary or both between their markers in a Markdown text.

    Raises:
        InvalidUse: the text has neither's markers, or the summary's and not a row for each scenario.
    """
    made = {_TABLE: to_markdown, _SUMMARY: to_summary}
    wanted = [kind for kind in made if _parts(text, kind)]
    if not wanted:
        begin, end = _markers(_TABLE)
        raise InvalidUse(f"the text has no place for the table: it needs the lines {begin} and {end}")
    for kind in wanted:
        before, after = _parts(text, kind)
        text = f"{before}\n{made[kind](rows)}\n{after}"
    return text


def _markers(kind: str) -> tuple[str, str]:
    return f"<!-- {kind}: begin -->", f"<!-- {kind}: end -->"


def _parts(text: str, kind: str) -> tuple[str, ...]:
    """Give the text up to the first marker and from the second one on; nothing if they are not there."""
    begin, end = _markers(kind)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    return (before + begin, end + after) if found and closed else ()
