"""`pulsar-ext doctor`: why a backlog does not go away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pulsar_ext.doctor.examination import examine
from pulsar_ext.doctor.findings import DiagnosisLimits
from pulsar_ext.ids.text import counted
from pulsar_ext.look.markup import findings_text

from .arguments import LOCAL_URL, Access, AdminUrl, Json, Url, open_admin
from .output import check_pause, look_again, print_json

if TYPE_CHECKING:
    from pulsar_ext.admin import PulsarAdmin
    from pulsar_ext.doctor.findings import Diagnosis, Finding

app = App(name="doctor", help="Find out why a backlog does not go away. It only reads.")

_NOTHING = Access()
_DEFAULTS = DiagnosisLimits()
_COLOURS = {"warning": "yellow", "error": "red"}


@app.default
def doctor(
    target: str = "public/default",
    /,
    *,
    subscription: str | None = None,
    limits: Annotated[DiagnosisLimits, Parameter(name="*")] = _DEFAULTS,
    watch: Annotated[bool, Parameter(negative="")] = False,
    every: float = 30.0,
    url: Url = LOCAL_URL,
    admin_url: AdminUrl = None,
    access: Access = _NOTHING,
    as_json: Json = False,
) -> int:
    """Look at a namespace or a topic, and print what is wrong, what shows it, and what mends it.

    The exit status is 0 if nothing was found, 1 with warnings, 2 with errors, and 3 if it could not be found out.

    Args:
        target: What to look at: a namespace such as public/default, or a topic, with or without partitions.
        subscription: Name of the one subscription to look at. The default is all of them.
        limits: What counts as a finding, and what finding it may cost.
        watch: Look again and again until Ctrl-C, also while the broker does not answer. With --json it prints one line
            each time.
        every: Seconds between two looks with --watch.
        url: URL of the broker. Only its host is used, to find the admin API.
        admin_url: URL of the admin REST API. The default is port 8080 on the broker's host.
        access: How to authenticate.
        as_json: Print one JSON object instead of text.
    """
    check_pause(every)
    with open_admin(url, admin_url, access) as admin:
        diagnosis = look_again(
            lambda: _look(admin, target, subscription, limits, as_json=as_json), watch=watch, every=every
        )
    return diagnosis.exit_status


def _look(
    admin: PulsarAdmin, target: str, subscription: str | None, limits: DiagnosisLimits, *, as_json: bool
) -> Diagnosis:
    notes = Console(stderr=True, highlight=False)
    with notes.status("asking") as status:

        def tell(what: str) -> None:
            status.update(what)
            if not as_json:
                notes.print(what, style="dim", markup=False)

        diagnosis = examine(admin, target, subscription, limits, tell)
    if as_json:
        print_json(diagnosis.to_dict())
    else:
        Console(highlight=False).print(_picture(target, diagnosis))
    return diagnosis


def _picture(target: str, diagnosis: Diagnosis) -> Group:
    cost = f"{counted(diagnosis.topics, 'topic')}, {counted(diagnosis.requests, 'request')}"
    head = Text(f"{target}: {findings_text(diagnosis.findings)} ({cost})", style="bold")
    notes = [Text(note, style="dim") for note in diagnosis.notes]
    if diagnosis.left_out:
        left_out = counted(len(diagnosis.left_out), "topic")
        notes.append(Text(f"not looked at, raise --max-requests to see them: {left_out}", style="red"))
    return Group(*map(_panel, diagnosis.findings), *notes, head)


def _panel(finding: Finding) -> Panel:
    colour = _COLOURS[finding.severity]
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("", Text(finding.what, style="bold"))
    for name, value in finding.evidence.items():
        table.add_row(name, Text(_text(value)))
    table.add_row("otherwise", Text(finding.otherwise))
    for remedy in finding.remedies:
        table.add_row("to mend it", Text(remedy.what))
        for command in (remedy.dry_run, remedy.command):
            if command:
                table.add_row("", Text(f"$ {command}", style="green"))
    where = f"{finding.topic} {finding.subscription}".strip()
    return Panel(table, title=Text(f"{finding.severity}: {finding.kind}"), subtitle=Text(where), border_style=colour)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
