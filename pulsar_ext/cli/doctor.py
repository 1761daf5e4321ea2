"""`pulsar-ext doctor`: why a backlog does not shrink."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.doctor.examination import examine
from pulsar_ext.doctor.findings import Diagnosis, DiagnosisLimits, Finding
from pulsar_ext.ids.text import counted
from pulsar_ext.look.text import findings_text

from .arguments import LOCAL, Json, Reach, Watch
from .output import SEVERITY_COLOURS, print_result, run_repeatedly

app = App(name="doctor", help="Diagnose why a backlog does not shrink. It only reads.")

_DEFAULTS = DiagnosisLimits()


@app.default
def doctor(
    target: str = "public/default",
    /,
    *,
    subscription: str | None = None,
    limits: Annotated[DiagnosisLimits, Parameter(name="*")] = _DEFAULTS,
    watch: Watch = False,
    every: float = 30.0,
    reach: Reach = LOCAL,
    as_json: Json = False,
) -> int:
    """Diagnose a namespace or a topic, and print each problem with its evidence and remedies.

    The exit status is 0 if nothing was found, 1 with warnings, 2 with errors, and 3 if the diagnosis failed.

    Args:
        target: Namespace such as public/default, or topic, with or without partitions.
        subscription: Name of the only subscription to inspect. The default is all of them.
        limits: Thresholds of findings, and limits of requests.
        every: Seconds between two diagnoses with --watch.
    """
    with reach.open_admin() as admin:
        diagnosis = run_repeatedly(
            lambda: _diagnose(admin, target, subscription, limits, as_json=as_json), watch=watch, every=every
        )
    return diagnosis.exit_status


def _diagnose(
    admin: PulsarAdmin, target: str, subscription: str | None, limits: DiagnosisLimits, *, as_json: bool
) -> Diagnosis:
    notes = Console(stderr=True, highlight=False)
    with notes.status("requesting") as status:

        def report(line: str) -> None:
            status.update(line)
            if not as_json:
                notes.print(line, style="dim", markup=False)

        diagnosis = examine(admin, target, subscription, limits, report)
    print_result(diagnosis.to_dict() if as_json else _picture(target, diagnosis))
    return diagnosis


def _picture(target: str, diagnosis: Diagnosis) -> Group:
    cost = f"{counted(diagnosis.topics, 'topic')}, {counted(diagnosis.requests, 'request')}"
    head = Text(f"{target}: {findings_text(diagnosis.findings)} ({cost})", style="bold")
    if diagnosis.broker_version:
        head.append(f", Pulsar {diagnosis.broker_version}")
    notes = [Text(str(note), style="dim") for note in (*diagnosis.notes, *diagnosis.missing_settings)]
    if diagnosis.left_out:
        excluded = counted(len(diagnosis.left_out), "topic")
        notes.append(Text(f"not inspected, raise --max-requests to include them: {excluded}", style="red"))
    return Group(*map(_panel, diagnosis.findings), *notes, head)


def _panel(finding: Finding) -> Panel:
    colour = SEVERITY_COLOURS[finding.severity]
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("", Text(finding.what, style="bold"))
    for name, value in finding.evidence.items():
        table.add_row(name, Text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
    table.add_row("otherwise", Text(finding.otherwise))
    for remedy in finding.remedies:
        table.add_row("remedy", Text(remedy.what))
        for command in (remedy.dry_run, remedy.command):
            if command:
                table.add_row("", Text(f"$ {command}", style="green"))
    where = f"{finding.topic} {finding.subscription}".strip()
    return Panel(table, title=Text(f"{finding.severity}: {finding.kind}"), subtitle=Text(where), border_style=colour)
