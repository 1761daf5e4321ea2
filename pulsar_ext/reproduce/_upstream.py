"""A scenario as a report for the official project; why it happens is in causes.toml (pure)."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from ._script import to_script

if TYPE_CHECKING:
    from ._scenario import Scenario

__all__ = ["causes", "to_report"]

_CPP: Final = "4.2.0"


def causes() -> dict[str, dict[str, str]]:
    """Return what causes.toml says of each scenario: `title`, `cause`, `where`, `fix` and `thread`."""
    return tomllib.loads(files("pulsar_ext.reproduce").joinpath("causes.toml").read_text(encoding="utf-8"))


def to_report(scenario: Scenario, seen: str, broker_version: str) -> str:
    """Return the report of a scenario in Markdown, with the program that shows it.

    Args:
        scenario: the scenario.
        seen: what the official client did with the messages, as `str(row.official)`.
        broker_version: of the broker where that was seen.
    """
    cause = causes()[scenario.name]
    sections = {
        "What happens": f"Expected: {scenario.claim}.\n\nSeen: **{seen}**, with the program below.",
        "Why": f"{cause['cause']}\n\nWhere: {cause['where']}.",
        "What would mend it": cause["fix"],
        "Versions": f"pulsar-client {version('pulsar-client')} (C++ client {_CPP}), broker {broker_version}.",
        "Existing thread": f"{cause['thread'][0].upper()}{cause['thread'][1:]}.",
        "Program": f"It uses the official client alone.\n\n~~~~python\n{to_script(scenario).rstrip()}\n~~~~",
    }
    return "\n\n".join([f"# {cause['title']}", *(f"## {name}\n\n{text}" for name, text in sections.items())]) + "\n"
