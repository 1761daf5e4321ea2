"""Asks for what the map of a topic needs: the shell of the map."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pulsar_ext.doctor.examination import judge, observe, wanted_entries
from pulsar_ext.doctor.findings import DiagnosisLimits
from pulsar_ext.errors import InvalidUse

from .topic_map import TopicMap, map_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import PulsarAdmin
    from pulsar_ext.doctor.findings import Diagnosis, TopicFacts
    from pulsar_ext.ids.position import Position


@dataclass(frozen=True, slots=True)
class MapLimits(DiagnosisLimits):
    """As those of a diagnosis, but more entries are looked at, and it is watched for as long as a rate takes.

    Args:
        entries: How many entries of a topic to look at, at most. Each takes a request.
        pause_seconds: How many seconds to count messages for the rates. With 0 the rates are the broker's own.
    """

    entries: int = 200
    pause_seconds: float = 1.0


@dataclass(frozen=True)
class Survey:
    """What a look at a topic saw, all of it at the same moment.

    Args:
        maps: of the topic, or of each of its partitions.
        diagnosis: what is wrong, as the doctor says it.
    """

    maps: tuple[TopicMap, ...]
    diagnosis: Diagnosis

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return {"topics": [_with_holes(one) for one in self.maps], "diagnosis": self.diagnosis.to_dict()}


def survey(
    admin: PulsarAdmin,
    topic: str,
    subscription: str | None = None,
    limits: DiagnosisLimits | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Survey:
    """Look at a topic; the arguments and the errors are those of `doctor.examination.examine`.

    Raises:
        InvalidUse: it is no topic.
    """
    if isinstance(topic, str) and "://" not in topic and topic.count("/") == 1:
        raise InvalidUse(f"{topic!r} is a namespace; look takes one topic, such as public/default/orders")
    seen = observe(
        admin, topic, subscription, limits or MapLimits(), tell, wanted=mapped_entries, watched=lambda _: True
    )
    return Survey(tuple(map(map_of, seen.facts)), judge(seen))


def mapped_entries(facts: TopicFacts, most: int) -> list[Position]:
    """Choose the entries to look at: all; or the first unacknowledged of each cursor, the doctor's, some in between."""
    end = 0 if facts.ledgers.last is None else facts.number_of(facts.ledgers.last)
    if end <= most:
        return [facts.position(number) for number in range(1, end + 1)]
    firsts = [position for name in facts.internal.cursors for position in facts.first_unacknowledged(name, 1)]
    wanted = dict.fromkeys(firsts[: most // 2]) | dict.fromkeys(wanted_entries(facts, most // 3))
    room = max(most - len(wanted), 0)
    between = (facts.position((2 * nth + 1) * end // (2 * room) + 1) for nth in range(room))
    return list(wanted | dict.fromkeys(between))[:most]


def _with_holes(topic: TopicMap) -> dict[str, Any]:
    """Give a map as JSON has it, in which each cursor says what its holes are."""
    cursors = [{**asdict(one), "holes": [asdict(hole) for hole in one.holes]} for one in topic.cursors]
    return {**asdict(topic), "cursors": cursors}
