"""A file of the outcomes of several runs of `cluster.py`, a line each: a full count may take several runs."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from acks_common import Outcome
from cluster_load import Consumed
from producer_topics import Outcome as Produced

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["read", "record"]

_COUNTED = {"cycles", "sent", "lost", "duplicated", "disordered", "delivered", "again", "confirmed_again", "holes"}


def record(file: Path, produced: Sequence[Produced], consumed: Sequence[Consumed]) -> None:
    """Append one run's outcomes to the file."""
    day = time.strftime("%Y-%m-%d")
    with file.open("a", encoding="utf-8") as lines:
        for one in produced:
            print(json.dumps({"day": day, "produced": asdict(one)}), file=lines)
        for other in consumed:
            print(json.dumps({"day": day, "consumed": asdict(other)}), file=lines)


def read(file: Path) -> tuple[list[Produced], list[Consumed]]:
    """Return all runs' outcomes, each count added up."""
    produced: dict[tuple[str, ...], Produced] = {}
    consumed: dict[tuple[str, ...], Consumed] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        if "produced" in found:
            one = Produced(**found["produced"])
            place = (one.client, one.fault, one.kind)
            produced[place] = Produced(**_sum(produced[place], one)) if place in produced else one
        else:
            outcome = Outcome(**found["consumed"]["outcome"])
            other = Consumed(found["consumed"]["client"], outcome, found["consumed"]["left"])
            place = (other.client, outcome.fault, outcome.type, outcome.kind)
            if place in consumed:
                before = consumed[place]
                other = Consumed(other.client, Outcome(**_sum(before.outcome, outcome)), before.left or other.left)
            consumed[place] = other
    return list(produced.values()), list(consumed.values())


def _sum(one: Any, other: Any) -> dict[str, Any]:
    added = {}
    for name in (field.name for field in fields(one)):
        first, second = getattr(one, name), getattr(other, name)
        if name in _COUNTED or name == "notes":
            added[name] = first + second
        else:
            added[name] = "; ".join(filter(None, (first, second))) if name == "note" else first
    return added
