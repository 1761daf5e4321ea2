"""The scenarios by name, in the order of the table; those of one profile are adjacent. Texts: `scenarios.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from types import MappingProxyType, ModuleType
from typing import Final

from pulsar_ext.errors import InvalidUse

from ._support import Counts, Env


@dataclass(frozen=True, slots=True)
class Scenario:
    """Known defect of the official client, and the steps that show it.

    Args:
        name: its name at the command line.
        claim: the expected behaviour, in one line.
        reference: an issue, or a page of the documents.
        run: the steps; its first argument is the module of a client.
        profile: the broker profile that it needs.
    """

    name: str
    claim: str
    reference: str
    run: Callable[[ModuleType, Env], Counts]
    profile: str = "plain"


_ABOUT = "about"
_CAUSES = ("title", "cause", "where", "fix", "thread")
_TEXTS: dict[str, dict[str, dict[str, str]]] = tomllib.loads(
    files("pulsar_ext.reproduce").joinpath("scenarios.toml").read_text(encoding="utf-8")
)

GROUPS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = MappingProxyType(
    {group: (str(texts.pop(_ABOUT)), tuple(texts)) for group, texts in _TEXTS.items()}
)
"""Groups of scenarios: for each, the defects in one line, and the scenarios that show them."""


def _load() -> dict[str, Scenario]:
    found = [_scenario_of(name, texts) for group in _TEXTS.values() for name, texts in group.items()]
    profiles = list(dict.fromkeys(scenario.profile for scenario in found))
    return {one.name: one for one in sorted(found, key=lambda one: profiles.index(one.profile))}


def _scenario_of(name: str, texts: Mapping[str, str]) -> Scenario:
    module = import_module(f".{name.replace('-', '_')}", __package__)
    reference = texts.get("reference", f"docs/reproduce.md#{name}")
    return Scenario(name, texts["claim"], reference, module.run, texts.get("profile", "plain"))


SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(_load())


def causes() -> dict[str, dict[str, str]]:
    """Return the texts of each scenario for its report: `title`, `cause`, `where`, `fix` and `thread`."""
    texts_of = {name: texts for group in _TEXTS.values() for name, texts in group.items()}
    return {name: {one: texts[one] for one in _CAUSES} for name, texts in texts_of.items()}


def select(names: Iterable[str]) -> list[Scenario]:
    """Return the scenarios with these names in the order of the table; all of them without names.

    Raises:
        InvalidUse: a name is unknown.
    """
    wanted = list(names)
    unknown = [name for name in wanted if name not in SCENARIOS]
    if unknown:
        raise InvalidUse(f"unknown scenario {', '.join(unknown)}; choose from: {', '.join(SCENARIOS)}")
    return [scenario for name, scenario in SCENARIOS.items() if not wanted or name in wanted]
