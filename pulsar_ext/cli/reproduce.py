"""`pulsar-ext reproduce`: each known defect of the official client, compared with `pulsar_ext` on a real broker."""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Column, Table

from pulsar_ext import reproduce as defects
from pulsar_ext.admin import derive_admin_url
from pulsar_ext.errors import AdminError, BrokerStartError, InvalidUse

from .arguments import AdminUrl, Backend, Flag, Json, Token, Url
from .output import print_result

app = App(name="reproduce", help="Show each known defect of the official client, and that pulsar_ext does not have it.")

_LOSS, _NOT_RUN = 1, 2


@app.default
def run(
    *scenarios: str,
    url: Annotated[Url, Parameter(help="URL of a running broker. Without it, brokers are started for the run.")] = None,
    admin_url: AdminUrl = None,
    token: Token = None,
    backend: Backend = None,
    as_list: Annotated[bool, Parameter(name="--list", negative="")] = False,
    script: Flag = False,
    as_json: Json = False,
    as_markdown: Annotated[bool, Parameter(name="--markdown", negative="")] = False,
    report: Flag = False,
    update: list[Path] | None = None,
) -> int:
    """Run the same steps with the official client and with pulsar_ext, and show what each delivers.

    On a running broker, the token must be a superuser's.

    Exit status: 0 if pulsar_ext loses, duplicates and blocks nothing, 1 if it does, 2 if the run failed.

    Args:
        scenarios: Names of the scenarios to run. The default is all of them; --list shows the names.
        as_list: List the scenarios instead of running them.
        script: Print a program that shows one scenario with the official client only, instead of running it.
        as_markdown: Print a Markdown table instead.
        report: Print each scenario as a report for the official project instead, in Markdown.
        update: A Markdown file whose tables are replaced by those of this run. May be repeated.
    """
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        chosen = defects.select(scenarios)
        if script:
            _reject("--script prints one scenario: pass its name", when=len(scenarios) != 1)
            print_result(defects.to_script(chosen[0]).rstrip())
            return 0
        if as_list:
            _list(chosen, as_json=as_json)
            return 0
        _reject("--json, --markdown and --report exclude each other", when=as_json + as_markdown + report > 1)
        of_environment = map(os.environ.get, ("PULSAR_ADMIN_URL", "PULSAR_EXT_ADMIN_URL"))  # of all commands
        _reject("--admin-url requires --url", when=url is None and admin_url not in (None, *of_environment))
        _reject("--backend and --url (or PULSAR_URL) exclude each other", when=backend is not None and url is not None)
        old = {file: _markdown(file, chosen) for file in update or ()}
        rows = _run(chosen, _site(url, admin_url, token, backend, notes), notes)
    except (BrokerStartError, InvalidUse, AdminError) as error:
        notes.print(f"pulsar-ext: {error}", markup=False)
        return _NOT_RUN
    if as_json or as_markdown:
        print_result(defects.to_json(rows) if as_json else defects.to_markdown(rows))
    elif report:
        for row in rows:
            print_result(defects.to_report(row.scenario, str(row.official), row.broker_version))
    else:
        Console().print(defects.to_table(rows))
    for file, text in old.items():
        file.write_text(defects.update_markdown(text, rows), encoding="utf-8")
    return _LOSS if any(row.verdict is defects.Verdict.BROKEN for row in rows) else 0


def _site(
    url: str | None, admin_url: str | None, token: str | None, backend: str | None, notes: Console
) -> defects.Site:
    if url is None:
        # The broker of each profile reports its back end again.
        return defects.own_brokers(backend, cache(partial(notes.print, style="dim", markup=False)))
    notes.print(f"on the broker at {url}", style="dim", markup=False)
    return defects.existing_broker(
        url, admin_url or derive_admin_url(url, has_secret=token is not None).split(",")[0], token
    )


def _reject(reason: str, *, when: bool) -> None:
    if when:
        raise InvalidUse(reason)


def _run(chosen: list[defects.Scenario], site: defects.Site, notes: Console) -> list[defects.Row]:
    rows: list[defects.Row] = []
    with notes.status("") as status:

        def started(scenario: defects.Scenario) -> None:
            status.update(f"{len(rows) + 1} of {len(chosen)}: {scenario.name}")

        for row in defects.reproduce(chosen, site, started):
            rows.append(row)
            notes.print(f"{len(rows)}/{len(chosen)} {row.scenario.name}: {row.verdict.value}", style="dim")
    return rows


def _list(chosen: list[defects.Scenario], *, as_json: bool) -> None:
    if as_json:
        print_result([{"name": one.name, "claim": one.claim, "profile": one.profile} for one in chosen])
        return
    table = Table(Column("scenario", no_wrap=True), "expected behaviour", Column("broker profile", no_wrap=True))
    for scenario in chosen:
        table.add_row(scenario.name, scenario.claim, scenario.profile)
    Console().print(table)


def _markdown(file: Path, chosen: list[defects.Scenario]) -> str:
    """Return the file's text, after checking that its tables can be replaced, before the long run."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidUse(f"{file} cannot be read: {error.strerror}") from error
    defects.update_markdown(
        text, [defects.Row(scenario, "", defects.Counts(), defects.Counts()) for scenario in chosen]
    )
    return text
