"""Known defects of the official client, run side by side with `pulsar_ext` on a real broker.

A scenario is a module. Its `run(pulsar, env)` takes the same steps with either client and counts the messages; its
texts are in `scenarios.toml`, in the order of the table. Scenarios of one profile are adjacent. This module has the
brokers for them, the runs of each with both clients, the verdicts and the reports; `_support.py` is the code that
scenarios share.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
import tomllib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Final

from pulsar_ext import __version__
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.errors import AdminError, BrokerStartError, InvalidUse

from ._support import Counts, Env, IsolatedProcess, Place, count

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "GROUPS",
    "SCENARIOS",
    "Counts",
    "Env",
    "Place",
    "Row",
    "Scenario",
    "Site",
    "Verdict",
    "carry_out",
    "causes",
    "existing_broker",
    "judge",
    "own_brokers",
    "reproduce",
    "select",
    "to_json",
    "to_markdown",
    "to_report",
    "to_script",
    "to_summary",
    "to_table",
    "update_markdown",
]


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
    found = []
    for name, texts in ((name, texts) for group in _TEXTS.values() for name, texts in group.items()):
        run = import_module(f".{name.replace('-', '_')}", __package__).run
        reference = texts.get("reference", f"docs/reproduce.md#{name}")
        found.append(Scenario(name, texts["claim"], reference, run, texts.get("profile", "plain")))
    profiles = list(dict.fromkeys(scenario.profile for scenario in found))
    return {one.name: one for one in sorted(found, key=lambda one: profiles.index(one.profile))}


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


_CLIENTS = ("pulsar", "pulsar_ext")
_ANSWER_SECONDS = 10.0

Site = Callable[[str], AbstractContextManager[Place]]
"""Function that returns the place in which the scenarios of a profile run."""


class Verdict(Enum):
    """Meaning of both clients' counts."""

    FIXED_HERE = "fixed here"
    FIXED_UPSTREAM = "fixed upstream"
    BROKEN = "BROKEN"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"


def judge(official: Counts, ours: Counts) -> Verdict:
    """Return the verdict of the official client's counts and those of `pulsar_ext`."""
    if not ours.clean:
        return Verdict.BROKEN
    if official.failed:
        return Verdict.INCONCLUSIVE
    return Verdict.FIXED_UPSTREAM if official.clean else Verdict.FIXED_HERE


@dataclass(frozen=True, slots=True)
class Row:
    """Counts of both clients in one scenario."""

    scenario: Scenario
    broker_version: str
    official: Counts
    ours: Counts
    why_not: str = ""

    @property
    def verdict(self) -> Verdict:
        """Meaning of the counts."""
        return Verdict.NOT_RUN if self.why_not else judge(self.official, self.ours)


def reproduce(
    scenarios: Iterable[Scenario], site: Site, started: Callable[[Scenario], None] = lambda _: None
) -> Iterator[Row]:
    """Run the scenarios one after another, on one broker per profile.

    Args:
        scenarios: in the order of the rows.
        site: `own_brokers()` or `existing_broker()`.
        started: called with each scenario before it runs.

    Raises:
        BrokerStartError: a broker could not be started, or does not answer.
    """
    for profile, group in groupby(scenarios, key=lambda scenario: scenario.profile):
        with site(profile) as place:
            for scenario in group:
                started(scenario)
                yield carry_out(scenario, place)


def carry_out(scenario: Scenario, place: Place) -> Row:
    """Run one scenario with both clients at the same time, each in its own process and on its own topics."""
    if place.why_not:
        not_run = Counts(note=place.why_not)
        return Row(scenario, place.broker_version, not_run, not_run, place.why_not)
    official, ours = count(scenario.run, place, _CLIENTS)
    return Row(scenario, place.broker_version, official, ours)


def own_brokers(backend: str | None = None, report: Callable[[str], None] = lambda _: None) -> Site:
    """Return a site that starts a broker of the profile.

    Args:
        backend: what it runs in, see `start_broker`.
        report: called with short lines: the chosen back end, the reason, and slow steps.
    """

    @contextmanager
    def site(profile: str) -> Iterator[Place]:
        from pulsar_ext.testing import start_broker  # noqa: PLC0415  # not needed for an existing broker

        report(f"starting a broker, profile {profile}")
        with (
            start_broker(backend, profile, report=report) as broker,
            _namespace(Place(broker.service_url, broker.admin_url, "", token=broker.token)) as place,
        ):
            yield place

    return site


def existing_broker(service_url: str, admin_url: str, token: str | None = None) -> Site:
    """Return a site on a running broker; chunks have its `maxMessageSize`, and messages have fewer of them.

    The settings that a profile needs are set on the namespace of the run; if that is not possible, the scenarios do not
    run.

    Args:
        service_url: URL for clients.
        admin_url: URL of the admin REST API.
        token: a superuser's token, if the broker needs one.
    """

    @contextmanager
    def site(profile: str) -> Iterator[Place]:
        with _namespace(Place(service_url, admin_url, "", token=token)) as place:
            with IsolatedProcess(_round_trip, _CLIENTS[0], place, seconds=_ANSWER_SECONDS, leader=True) as process:
                ended = process.outcome().ended
            if ended:
                problem = f"no message arrived within {_ANSWER_SECONDS:.0f} s" if ended == "hung" else ended
                raise BrokerStartError(f"no broker answers at {service_url}: {problem}")
            yield replace(place, why_not=_prepare(place, profile))

    return site


def _prepare(place: Place, profile: str) -> str:
    """Set the settings of a profile; return why its scenarios cannot run, or an empty string."""
    try:
        with PulsarAdmin(place.admin_url, token=place.token, max_attempts=1) as admin:
            if profile == "dedup":
                admin.set_deduplication(place.namespace, value=True)
            setting = "acknowledgmentAtBatchIndexLevelEnabled"
            if profile == "batch-index-acks" and admin.broker_configuration().get(setting) != "true":
                return f"cannot run on this broker: {setting} is off"
    except AdminError as error:
        return f"cannot run on this broker: {error.reason}"
    return ""


@contextmanager
def _namespace(place: Place) -> Iterator[Place]:
    """Create a namespace for the run, and delete it with its topics afterwards."""
    # These modules of the testing package need no extra.
    from pulsar_ext.testing.access import Access  # noqa: PLC0415  # loaded only for a run
    from pulsar_ext.testing.tenancy import Tenancy  # noqa: PLC0415

    namespace = f"public/reproduce-{uuid.uuid4().hex[:12]}"
    with (
        PulsarAdmin(place.admin_url, token=place.token, max_attempts=1) as admin,
        Tenancy(place.admin_url, Access(token=place.token)) as tenancy,
    ):
        tenancy.create_namespace(namespace)
        try:
            yield replace(
                place,
                namespace=namespace,
                chunk_bytes=int(admin.broker_configuration()["maxMessageSize"]),
                broker_version=admin.broker_version(),
            )
        finally:
            tenancy.delete_namespace(namespace)


def _round_trip(_pulsar: ModuleType, env: Env) -> list[str]:
    return env.stored(env.topic())


# -- results: as tables, as JSON, and scenarios as programs and reports ------------------------------------------------

_TABLE, _SUMMARY = "reproduce", "reproduce summary"
_OURS = f"pulsar_ext {__version__}"
_STYLES = {
    Verdict.FIXED_HERE: "green",
    Verdict.FIXED_UPSTREAM: "cyan",
    Verdict.BROKEN: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_RUN: "yellow",
}


def _official() -> str:
    return f"pulsar-client {version('pulsar-client')}"


def to_table(rows: Sequence[Row]) -> Table:
    """Return the table for a terminal."""
    from rich.table import Column, Table  # noqa: PLC0415  # an extra, not needed for JSON
    from rich.text import Text  # noqa: PLC0415  # an extra

    table = Table(Column("scenario", no_wrap=True), _official(), _OURS, Column("verdict", no_wrap=True))
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
    lines = [f"| scenario | expected behaviour | {_official()} | {_OURS} | verdict |", "|---|---|---|---|---|"]
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
    lines = [f"| about | what goes wrong | {_official()} | {_OURS} |", "|---|---|---|---|"]
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
