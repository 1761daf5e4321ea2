"""The rows as a table for a terminal, as JSON, and as the table of the README."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pulsar_ext import __version__
from pulsar_ext.errors import InvalidUse

from ._scenario import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ._runner import Row

__all__ = ["to_json", "to_markdown", "to_table", "update_markdown"]

_BEGIN, _END = "<!-- reproduce: begin -->", "<!-- reproduce: end -->"
_STYLES = {
    Verdict.FIXED_HERE: "green",
    Verdict.FIXED_UPSTREAM: "cyan",
    Verdict.BROKEN: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
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
    """Make the table of the README."""
    brokers = " and ".join(sorted({row.broker_version for row in rows}))
    lines = [
        f"| scenario | what should happen | {_official()} | {_ours()} | verdict |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        name = f"[{row.scenario.name}](docs/reproduce.md#{row.scenario.name})"
        cells = (name, row.scenario.claim, str(row.official), str(row.ours), row.verdict.value)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    lines += ["", f"From a run of `pulsar-ext reproduce` on Pulsar {brokers}."]
    return "\n".join(lines)


def update_markdown(text: str, rows: Sequence[Row]) -> str:
    """Put the table between the markers of a Markdown text.

    Raises:
        InvalidUse: the text does not have the markers.
    """
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise InvalidUse(f"the text has no place for the table: it needs the lines {_BEGIN} and {_END}")
    return f"{before}{begin}\n{to_markdown(rows)}\n{end}{after}"
