"""A subscription's backlog as ledger arithmetic, and what the broker's counters prove about it (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_ext.ids.position import Ledgers, Position, PositionRange

if TYPE_CHECKING:
    from pulsar_ext.admin import InternalStats, TopicStats

__all__ = ["Backlog", "is_fresh", "is_unbatched"]


@dataclass(frozen=True)
class Backlog:
    """What a cursor has before it.

    Args:
        ledgers: the topic's entries.
        mark_delete: everything up to here is acknowledged.
        deleted: what is acknowledged behind that, in order.
    """

    ledgers: Ledgers = field(compare=False)
    mark_delete: Position
    deleted: tuple[PositionRange, ...] = ()

    @classmethod
    def of(cls, stats: InternalStats, subscription: str) -> Backlog:
        """Read the internal statistics of a topic that has the subscription."""
        cursor = stats.cursors[subscription]
        return cls(
            Ledgers(stats.ledger_sizes()),
            cursor.mark_delete_position,
            tuple(cursor.individually_deleted),
        )

    def acked_until(self, position: Position) -> Position | None:
        """Give the last entry of its ledger that is acknowledged with this one; None if this one is not."""
        ledgers = self.ledgers
        for one in (PositionRange(Position(-1, -1), self.mark_delete), *self.deleted):
            if position in one:
                end = ledgers.number(min(ledgers.up_to(one.last), ledgers.up_to(Position(position.ledger_id + 1, -1))))
                return max(position, end or position)
        return None

    def entries(self, last: Position) -> int:
        """Count the entries up to `last` that are not acknowledged."""
        holes = sum(
            self.ledgers.between(max(one.after, self.mark_delete), min(one.last, last))
            for one in self.deleted
            if one.last > self.mark_delete and one.after < last
        )
        return self.ledgers.between(self.mark_delete, last) - holes

    def entry(self, nth: int) -> Position | None:
        """Give the n-th entry, 1-based, that is not acknowledged; None past the end."""
        number = self.ledgers.up_to(self.mark_delete) + nth
        for one in self.deleted:
            first = max(self.ledgers.up_to(one.after), self.ledgers.up_to(self.mark_delete)) + 1
            if number < first:
                break
            number += max(self.ledgers.up_to(one.last) - first + 1, 0)
        return self.ledgers.number(number)

    @property
    def state(self) -> tuple[Position | None, tuple[tuple[int, int], ...]]:
        """Where the cursor stands, the same for every way to write it: a trim or a new ledger changes how it reads."""
        base = self.ledgers.up_to(self.mark_delete)
        holes = ((self.ledgers.up_to(one.after) - base, self.ledgers.up_to(one.last) - base) for one in self.deleted)
        first = self.entry(1)
        gone = 0 if first is None else self.ledgers.up_to(first) - base
        return first, tuple((after - gone, last - gone) for after, last in holes if last > gone)


def is_fresh(internal: InternalStats, backlog: Backlog) -> bool:
    """Whether the whole backlog was written since the broker loaded the topic, so that its counters cover it."""
    last = backlog.ledgers.last
    behind = 0 if last is None else backlog.ledgers.between(backlog.mark_delete, last)
    added: int = internal.raw["entriesAddedCounter"]
    return behind <= added


def is_unbatched(internal: InternalStats, stats: TopicStats, backlog: Backlog) -> bool:
    """Whether the broker's counters show that no entry of the backlog is a batch: as many messages as entries came.

    The statistics have to be younger than the internal ones: a message that comes in between then disproves it.
    """
    # Transactions and replicated subscriptions write markers, entries that no message was counted for.
    marked = any(stats.raw.get(f"{kind}TxnCount") for kind in ("ongoing", "committed", "aborted")) or any(
        one.raw.get("isReplicated") for one in stats.subscriptions.values()
    )
    added: int = internal.raw["entriesAddedCounter"]
    return is_fresh(internal, backlog) and stats.messages_in == added and not marked
