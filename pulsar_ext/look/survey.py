"""Requests for the map of a topic, and its diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.doctor.examination import judge, observe, wanted_entries
from pulsar_ext.doctor.findings import Diagnosis, DiagnosisLimits, TopicFacts
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.position import Position

from .topic_map import TopicMap, map_of


@dataclass(frozen=True, slots=True)
class MapLimits(DiagnosisLimits):
    """Limits of a survey: those of a diagnosis, with more entries, and a shorter watch that measures rates.

    Args:
        entries: Maximum number of entries to inspect per topic. Each takes a request.
        pause_seconds: Seconds to count messages for the rates. With 0 the rates are the broker's.
    """

    entries: int = 200
    pause_seconds: float = 1.0


@dataclass(frozen=True)
class Survey:
    """Maps and diagnosis of a topic, from the same answers.

    Args:
        maps: of the topic, or of each of its partitions.
        diagnosis: the doctor's findings.
    """

    maps: tuple[TopicMap, ...]
    diagnosis: Diagnosis

    def to_dict(self) -> dict[str, Any]:
        """Return the survey as JSON values."""
        return {"topics": list(map(asdict, self.maps)), "diagnosis": self.diagnosis.to_dict()}


def survey(
    admin: PulsarAdmin,
    topic: str,
    subscription: str | None = None,
    limits: DiagnosisLimits | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Survey:
    """Survey a topic; arguments and errors are those of `doctor.examination.examine`."""
    if isinstance(topic, str) and "://" not in topic and topic.count("/") == 1:
        raise InvalidUse(f"{topic!r} is a namespace; name a topic, such as public/default/orders")
    seen = observe(
        admin, topic, subscription, limits or MapLimits(), report, wanted=mapped_entries, watched=lambda _: True
    )
    return Survey(tuple(map(map_of, seen.facts)), judge(seen))


def mapped_entries(facts: TopicFacts, limit: int) -> list[Position]:
    """Choose the entries to inspect: all; or each cursor's first one, the doctor's, and evenly spaced ones."""
    end = facts.ledgers.entries
    if end <= limit:
        return [facts.position(number) for number in range(1, end + 1)]
    firsts = [position for name in facts.internal.cursors for position in facts.first_unacknowledged(name, 1)]
    wanted = dict.fromkeys(firsts[: limit // 2]) | dict.fromkeys(wanted_entries(facts, limit // 3))
    room = max(limit - len(wanted), 0)
    between = (facts.position((2 * nth + 1) * end // (2 * room) + 1) for nth in range(room))
    return list(wanted | dict.fromkeys(between))[:limit]
