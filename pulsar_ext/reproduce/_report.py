"""Results of a run as a table, as JSON and as the tables of the documents; scenarios as programs and reports."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING

from pulsar_ext import __version__
from pulsar_ext.errors import InvalidUse

from ._runner import GROUPS, SCENARIOS, Row, Scenario, Verdict, causes

if TYPE_CHECKING:
    from rich.table import Table


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
    """Return the table for a terminal."""
    from rich.table import Column, Table  # noqa: PLC0415  # an extra, not needed for JSON
    from rich.text import Text  # noqa: PLC0415  # an extra

    table = Table(Column("scenario", no_wrap=True), _official(), _ours(), Column("verdict", no_wrap=True))
    for row in rows:
        verdict = Text(row.verdict.value, style=_STYLES[row.verdict])
        table.add_row(row.scenario.name, Text(str(row.official)), Text(str(row.ours)), verdict)
    return table


def to_json(rows: Sequence[Row]) -> str:
    """Return the JSON; its keys are stable."""
    data = {
        "official": {"name": "pulsar-client", "version": version("pulsar-client")},
        "pulsar_ext": {"version": __version__},
        "scenarios": [
            {
                **{name: getattr(row.scenario, name) for name in ("name", "claim", "reference", "profile")},
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
    """Return the table of docs/reproduce.md, a line per scenario with a link to the scenario there."""
    lines = [f"| scenario | expected behaviour | {_official()} | {_ours()} | verdict |", "|---|---|---|---|---|"]
    for row in rows:
        name = f"[{row.scenario.name}](#{row.scenario.name})"
        cells = (name, row.scenario.claim, str(row.official), str(row.ours), row.verdict.value)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join([*lines, "", _origin(rows)])


def to_summary(rows: Sequence[Row]) -> str:
    """Return the table of the README, a line per group of scenarios.

    Raises:
        InvalidUse: a scenario has no row.
    """
    found = {row.scenario.name: row for row in rows}
    if missing := [name for name in SCENARIOS if name not in found]:
        raise InvalidUse(f"the summary needs a run of all scenarios; missing: {', '.join(missing)}")
    lines = [f"| about | what goes wrong | {_official()} | {_ours()} |", "|---|---|---|---|"]
    for group, (about, names) in GROUPS.items():
        clean = [(found[name].official.clean, found[name].ours.clean) for name in names]
        official, ours = (f"{sum(part)} of {len(names)} right" for part in zip(*clean, strict=True))
        lines.append(f"| {group} | {about} | {official} | {ours} |")
    return "\n".join([*lines, "", _origin(rows)])


def _origin(rows: Sequence[Row]) -> str:
    brokers = " and ".join(sorted({row.broker_version for row in rows}))
    return f"From a run of `pulsar-ext reproduce` on Pulsar {brokers}."


def update_markdown(text: str, rows: Sequence[Row]) -> str:
    """Replace the table, the summary or both between their markers in a Markdown text.

    Raises:
        InvalidUse: the text has no markers, or it has the summary's and a scenario has no row.
    """
    renderers = {_TABLE: to_markdown, _SUMMARY: to_summary}
    wanted = [kind for kind in renderers if _parts(text, kind)]
    if not wanted:
        begin, end = _markers(_TABLE)
        raise InvalidUse(f"the text has no markers of the table; add the lines {begin} and {end}")
    for kind in wanted:
        before, after = _parts(text, kind)
        text = f"{before}\n{renderers[kind](rows)}\n{after}"
    return text


def _markers(kind: str) -> tuple[str, str]:
    return f"<!-- {kind}: begin -->", f"<!-- {kind}: end -->"


def _parts(text: str, kind: str) -> tuple[str, ...]:
    """Return the text up to the first marker, and from the second one on; empty without markers."""
    begin, end = _markers(kind)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    return (before + begin, end + after) if found and closed else ()


_NEEDS = {
    "plain": "a broker with its default settings",
    "small-chunks": "a broker with maxMessageSize=102400 (and nettyMaxFrameSizeBytes=112640), so that chunks are small",
    "batch-index-acks": "a broker with acknowledgmentAtBatchIndexLevelEnabled=true, the default since 4.2",
    "dedup": "a broker with its default settings; deduplication is turned on for the program's namespace",
}


def to_script(scenario: Scenario) -> str:
    """Return a program that shows a scenario with the official client and the standard library only.

    It consists of the code that all scenarios share, and the scenario's own.
    """
    module = import_module(scenario.run.__module__)
    needs = f"Needs pulsar-client, tested with {version('pulsar-client')}, and {_NEEDS[scenario.profile]}."
    about = [
        f'"""{(module.__doc__ or "").strip()}',
        *textwrap.wrap(f"Expected: {scenario.claim}.", 110),
        *textwrap.wrap(needs, 110),
        f"    python {scenario.name}.py [pulsar://localhost:6650 [http://localhost:8080]]",
        'It prints the counts of messages, and exits with status 1 if the defect shows.\n"""',
    ]
    return "\n\n".join(
        [
            "\n\n".join(about),
            "from __future__ import annotations",
            _program_part(import_module("._support", __package__)),
            f"# The scenario; the code above is shared by all scenarios.\n\n{_program_part(module)}",
            f'if __name__ == "__main__":\n    main(run, {scenario.profile!r})\n',
        ]
    )


def _program_part(module: ModuleType) -> str:
    """Return a module's text without its docstring, its imports of this package, and comments for linters."""
    text = inspect.getsource(module).removeprefix(f'"""{module.__doc__}"""')
    text = re.sub(r"^from (__future__|\._support) import (\([^)]*\)|.*)\n", "", text, flags=re.MULTILINE)
    return re.sub(r"  # noqa: .*", "", text).strip()


_CPP = "4.2.0"


def to_report(scenario: Scenario, seen: str, broker_version: str) -> str:
    """Return the report of a scenario in Markdown, with the program that shows it.

    Args:
        scenario: the scenario.
        seen: the official client's counts, as `str(row.official)`.
        broker_version: of the broker of that run.
    """
    cause = causes()[scenario.name]
    sections = {
        "What happens": f"Expected: {scenario.claim}.\n\nSeen: **{seen}**, with the program below.",
        "Why": f"{cause['cause']}\n\nWhere: {cause['where']}.",
        "Suggested fix": cause["fix"],
        "Versions": f"pulsar-client {version('pulsar-client')} (C++ client {_CPP}), broker {broker_version}.",
        "Existing thread": f"{cause['thread'][0].upper()}{cause['thread'][1:]}.",
        "Program": f"It uses the official client only.\n\n~~~~python\n{to_script(scenario).rstrip()}\n~~~~",
    }
    return "\n\n".join([f"# {cause['title']}", *(f"## {name}\n\n{text}" for name, text in sections.items())]) + "\n"
