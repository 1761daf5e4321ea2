"""What a scenario is, what it counts, and what the two counts together mean (pure)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from ._env import Env

__all__ = ["Counts", "Scenario", "Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Counts:
    """What one client did with the messages of a scenario.

    Args:
        sent: the messages that should have arrived, or been done with.
        delivered: how many of them arrived.
        lost: how many did not.
        duplicated: how many arrivals were one too many.
        stuck: how many stay in the subscription's backlog for ever.
        note: what else was seen, in a few words.
        ended: how a process came to an end that was not a good one: `hung`, `crashed (SIGSEGV)`, `error: …`; empty
            after a good one.
    """

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    stuck: int = 0
    note: str = ""
    ended: str = ""

    @classmethod
    def of(
        cls, sent: Iterable[str], received: Iterable[str], *, stuck: int = 0, note: str = "", ended: str = ""
    ) -> Self:
        """Compare what should arrive with what arrived, label by label."""
        expected, arrived = Counter(sent), Counter(received)
        delivered = expected & arrived
        return cls(
            sent=expected.total(),
            delivered=delivered.total(),
            lost=(expected - arrived).total(),
            duplicated=(arrived - expected).total(),
            stuck=stuck,
            note=note,
            ended=ended,
        )

    @property
    def failed(self) -> bool:
        """Whether the scenario itself could not be carried out, so that its counts say nothing."""
        return self.ended.startswith("error")

    @property
    def clean(self) -> bool:
        """Whether every message arrived once and nothing is left behind."""
        return not (self.lost or self.duplicated or self.stuck or self.ended)

    def __str__(self) -> str:
        faults = [
            f"{count} of {self.sent} {what}"
            for what, count in (("lost", self.lost), ("duplicated", self.duplicated), ("stuck", self.stuck))
            if count
        ]
        if self.ended:
            faults.insert(0, self.ended)
        text = ", ".join(faults) or (f"{self.delivered} of {self.sent}" if self.sent else "fine")
        return f"{text} ({self.note})" if self.note else text

    def to_dict(self) -> dict[str, Any]:
        """Give the fields by their names, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One known defect of the official client, and the steps that show it.

    Args:
        name: what it is called at the command line.
        claim: what should happen, in one line.
        reference: the issue or the row of the defect list that it shows.
        run: the steps, carried out with `pulsar` or `pulsar_ext` as their first argument.
        profile: the broker profile that it needs.
        seconds: after which it counts as hung.
    """

    name: str
    claim: str
    reference: str
    run: Callable[[ModuleType, Env], Counts]
    profile: str = "plain"
    seconds: float = 90.0


class Verdict(Enum):
    """What the two clients' counts together mean."""

    FIXED_HERE = "fixed here"
    FIXED_UPSTREAM = "fixed upstream"
    BROKEN = "BROKEN"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"


def judge(official: Counts, ours: Counts) -> Verdict:
    """Compare the official client's counts with those of `pulsar_ext`."""
    if not ours.clean:
        return Verdict.BROKEN
    if official.failed:
        return Verdict.INCONCLUSIVE
    return Verdict.FIXED_UPSTREAM if official.clean else Verdict.FIXED_HERE
