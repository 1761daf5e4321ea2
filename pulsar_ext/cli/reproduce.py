"""`pulsar-ext reproduce`: each known defect of the official client, beside `pulsar_ext`, on a real broker."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Column, Table

from pulsar_ext.admin import derive_admin_url
from pulsar_ext.errors import AdminError, BrokerStartError, InvalidUse
from pulsar_ext.reproduce import (
    Counts,
    Row,
    Scenario,
    Verdict,
    existing_broker,
    own_brokers,
    reproduce,
    select,
    to_json,
    to_markdown,
    to_table,
    update_markdown,
)

from .arguments import Json  # noqa: TC001  # cyclopts evaluates annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.reproduce import Site

app = App(name="reproduce", help="Show each known defect of the official client beside pulsar_ext, on a real broker.")

_LOSS, _NOT_RUN = 1, 2


@app.default
def run(
    *scenarios: str,
    url: Annotated[str | None, Parameter(env_var="PULSAR_EXT_URL")] = None,
    admin_url: Annotated[str | None, Parameter(env_var="PULSAR_EXT_ADMIN_URL")] = None,
    token: Annotated[str | None, Parameter(env_var="PULSAR_EXT_TOKEN", show=False)] = None,
    backend: Literal["auto", "docker", "process"] | None = None,
    as_list: Annotated[bool, Parameter(name="--list", negative="")] = False,
    as_json: Json = False,
    as_markdown: Annotated[bool, Parameter(name="--markdown", negative="")] = False,
    update: list[Path] | None = None,
) -> int:
    """Run the same steps with the official client and with pulsar_ext, and show what each did with the messages.

    Exit status: 0 if pulsar_ext shows no loss, no duplicate and nothing stuck, 1 if it does, 2 if there was no run.

    Args:
        scenarios: which ones; all by default.
        url: a broker that already runs, instead of one started for the run.
        admin_url: its admin REST API; by default the same host's usual port.
        token: a superuser's token for that broker, best given by the environment.
        backend: what the broker runs in; by default what PULSAR_EXT_BACKEND says, else Docker where an engine answers.
        as_list: only list the scenarios.
        as_json: print JSON instead of a table.
        as_markdown: print a Markdown table instead.
        update: a Markdown file whose tables, each between two markers, are replaced by this run's; may be repeated.
    """
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        chosen = select(scenarios)
        if as_list:
            _list(chosen)
            return 0
        _refuse("--json and --markdown exclude each other", when=as_json and as_markdown)
        _refuse("--admin-url goes with --url", when=admin_url is not None and url is None)
        _refuse("--backend and --url exclude each other", when=backend is not None and url is not None)
        old = {file: _markdown(file, chosen) for file in update or ()}
        rows = _run(chosen, _site(url, admin_url, token, backend, notes), notes)
    except (BrokerStartError, InvalidUse, AdminError) as error:
        notes.print(f"pulsar-ext: {error}", markup=False)
        return _NOT_RUN
    if as_json or as_markdown:
        print(to_json(rows) if as_json else to_markdown(rows))  # noqa: T201  # it is the result
    else:
        Console().print(to_table(rows))
    for file, text in old.items():
        file.write_text(update_markdown(text, rows), encoding="utf-8")
    return _LOSS if any(row.verdict is Verdict.BROKEN for row in rows) else 0


def _site(url: str | None, admin_url: str | None, token: str | None, backend: str | None, notes: Console) -> Site:
    """Choose between brokers of our own and one that is running already."""
    if url is None:
        return own_brokers(backend, _print_once(notes))
    notes.print(f"on the broker at {url}", style="dim", markup=False)
    return existing_broker(url, admin_url or derive_admin_url(url, has_secret=token is not None).split(",")[0], token)


def _refuse(reason: str, *, when: bool) -> None:
    if when:
        raise InvalidUse(reason)


def _run(chosen: list[Scenario], site: Site, notes: Console) -> list[Row]:
    rows: list[Row] = []
    with notes.status("") as status:

        def started(scenario: Scenario) -> None:
            status.update(f"{len(rows) + 1} of {len(chosen)}: {scenario.name}")

        for row in reproduce(chosen, site, started):
            rows.append(row)
            notes.print(f"{len(rows)}/{len(chosen)} {row.scenario.name}: {row.verdict.value}", style="dim")
    return rows


def _print_once(notes: Console) -> Callable[[str], None]:
    """Print each line once: the broker of every profile reports again which back end was chosen and why."""
    printed: set[str] = set()

    def report(line: str) -> None:
        if line not in printed:
            printed.add(line)
            notes.print(line, style="dim", markup=False)

    return report


def _list(chosen: list[Scenario]) -> None:
    table = Table(Column("scenario", no_wrap=True), "what should happen", Column("broker profile", no_wrap=True))
    for scenario in chosen:
        table.add_row(scenario.name, scenario.claim, scenario.profile)
    Console().print(table)


def _markdown(file: Path, chosen: list[Scenario]) -> str:
    """Read the file and make sure that its tables can be replaced, before anything takes long."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidUse(f"{file} cannot be read: {error.strerror}") from error
    update_markdown(text, [Row(scenario, "", Counts(), Counts()) for scenario in chosen])
    return text
