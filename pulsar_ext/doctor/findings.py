"""What a diagnosis consists of: findings, each with its evidence and what mends it (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping  # noqa: TC003  # dataclasses are read at run time
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Diagnosis", "Finding", "Remedy", "Severity", "skip_remedy"]

Severity = Literal["warning", "error"]
"""An error costs messages, or stalls a subscription, already; a warning will."""

_STATUS = {"warning": 1, "error": 2}


@dataclass(frozen=True, slots=True)
class Remedy:
    """What mends a finding.

    Args:
        what: what is to be done, and what that does, in a sentence.
        command: which does it, as typed into a shell; empty where only the application can.
        dry_run: the same command, that only shows what it would do; empty where there is no such.
    """

    what: str
    command: str = ""
    dry_run: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Args:
        kind: its name, such as `holes`; `docs/doctor.md` lists them.
        severity: `warning` or `error`.
        topic: the full name of a topic or one partition.
        subscription: of the topic, empty where it is about the topic itself.
        what: what is the case, in a sentence.
        evidence: what shows it: numbers, positions and names, as JSON has them.
        otherwise: what happens if nothing is done.
        remedies: what mends it; the first loses nothing, where there is such a one.
    """

    kind: str
    severity: Severity
    topic: str
    subscription: str
    what: str
    evidence: Mapping[str, Any]
    otherwise: str
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, the errors first, and what it cost.

    Args:
        findings: all of them.
        topics: how many topics and partitions were looked at.
        left_out: those that were not, because they would have passed the limit of requests.
        requests: how many requests were sent.
        notes: what could not be looked at, and why.
    """

    findings: tuple[Finding, ...]
    topics: int
    left_out: tuple[str, ...] = ()
    requests: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def exit_status(self) -> int:
        """0 without findings, 1 with warnings, 2 with errors."""
        return max((_STATUS[one.severity] for one in self.findings), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return {"exit_status": self.exit_status, **asdict(self)}


def skip_remedy(topic: str, subscription: str, entries: int, what: str) -> Remedy:
    """Give the command that moves a cursor over so many entries."""
    command = f"pulsar-ext skip {shlex.quote(topic)} {shlex.quote(subscription)} {entries} --unit entry"
    return Remedy(what, command, f"{command} --dry-run")
