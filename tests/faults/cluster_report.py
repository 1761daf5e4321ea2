"""The tables of `cluster.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acks_common import TYPES
from producer_topics import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import producer_topics
    from cluster_load import Consumed

__all__ = ["report"]


def report(produced: Sequence[producer_topics.Outcome], consumed: Sequence[Consumed]) -> str:
    """Return the outcomes as Markdown: the producers' topics, and the consumers by fault and type.

    "late" and "left" count subscriptions: not acknowledged in time after a fault, and not at the end either.
    """
    return "\n".join(
        ["## Producers", "", table(produced), "", "## Consumers", "", *_consumers(consumed), "", *_notes(consumed)]
    )


def _consumers(consumed: Sequence[Consumed]) -> Iterator[str]:
    rows: dict[tuple[str, str], list[Consumed]] = {}
    for one in consumed:
        rows.setdefault((one.client, one.outcome.fault), []).append(one)
    yield f"| client | fault | cycles | sent | not delivered | late | left | again: {' | '.join(TYPES)} |"
    yield "|---|---|" + "--:|" * (5 + len(TYPES))
    for place, ones in rows.items():
        outcomes = [one.outcome for one in ones]
        sent, lost = (sum(getattr(one, name) for one in outcomes) for name in ("sent", "lost"))
        late, left = sum(bool(one.outcome.holes) for one in ones), sum(bool(one.left) for one in ones)
        again = (sum(one.again for one in outcomes if one.type == type_name) for type_name in TYPES)
        numbers = (f"{count:,}" for count in (outcomes[0].cycles, sent, lost, late, left, *again))
        yield f"| {' | '.join((*place, *numbers))} |"


def _notes(consumed: Sequence[Consumed]) -> Iterator[str]:
    for one in consumed:
        for note in one.outcome.notes:
            end = one.left or "0"
            yield f"- {one.client} {one.outcome.fault} {one.outcome.type} {one.outcome.kind}: {note}; {end} at the end"
