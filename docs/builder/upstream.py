"""Write the reports for the official project: `python -m docs.builder.upstream`.

What happens and the program come from the scenario, the counts from the table of docs/reproduce.md, and why from
docs/upstream/causes.toml.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version

from pulsar_ext.reproduce import SCENARIOS, to_script

from .pages import ROOT

__all__ = ["contents", "report"]

_FOLDER = ROOT / "docs" / "upstream"
_CPP = "4.2.0"


def causes() -> dict[str, dict[str, str]]:
    """Give what causes.toml says of each scenario."""
    return tomllib.loads((_FOLDER / "causes.toml").read_text(encoding="utf-8"))


def seen() -> dict[str, str]:
    """Give what the official client did with the messages of each scenario, in the last run."""
    text = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[([a-z-]+)\]\(\S+\) \| (.*)$", text, re.MULTILINE)
    return {name: cells.split(" | ")[1] for name, cells in rows}


def report(name: str) -> str:
    """Give the report of a scenario."""
    scenario, cause = SCENARIOS[name], causes()[name]
    broker = re.search(r"on Pulsar (\d+\.\d+\.\d+)", (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8"))
    parts = [
        f"# {cause['title']}",
        "",
        "<!-- Written by `python -m docs.builder.upstream`; edit causes.toml or the scenario instead. -->",
        "",
        "## What happens",
        "",
        f"Expected: {scenario.claim}.",
        "",
        f"Seen: **{seen()[name]}**, with the program below.",
        "",
        "## Why",
        "",
        cause["cause"],
        "",
        f"Where: {cause['where']}.",
        "",
        "## What would mend it",
        "",
        cause["fix"],
        "",
        "## Versions",
        "",
        f"pulsar-client {version('pulsar-client')} (C++ client {_CPP}), broker {broker[1] if broker else 'unknown'}.",
        "",
        "## Existing thread",
        "",
        f"{cause['thread'][0].upper()}{cause['thread'][1:]}.",
        "",
        "## Program",
        "",
        f"It uses the official client alone. `pulsar-ext reproduce {name} --script` prints it.",
        "",
        f"~~~~python\n{to_script(scenario).rstrip()}\n~~~~",
        "",
    ]
    return "\n".join(parts)


def contents() -> str:
    """Give the page that lists the reports."""
    every = causes()
    new = sum(cause["thread"].startswith("none found") for cause in every.values())
    lines = [
        "# Reports for upstream",
        "",
        "<!-- Written by `python -m docs.builder.upstream`. -->",
        "",
        f"A report for each of the {len(every)} scenarios, ready to send to the official project: what happens, why,",
        "with the file and the function, and a program that shows it with the official client alone.",
        f"For {new} of them no thread was found.",
        "",
        "| scenario | report | thread |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | [{every[name]['title']}]({name}.md) | {every[name]['thread']} |" for name in SCENARIOS]
    return "\n".join([*lines, ""])


def main() -> None:
    """Write every report, and the page that lists them."""
    for name in SCENARIOS:
        (_FOLDER / f"{name}.md").write_text(report(name), encoding="utf-8")
    (_FOLDER / "README.md").write_text(contents(), encoding="utf-8")


if __name__ == "__main__":
    main()
