"""A subscription's backlog as ledger arithmetic (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_ext.ids.position import Ledgers, Position, PositionRange

if TYPE_CHECKING:
    from pulsar_ext.admin import InternalStats

__all__ = ["Backlog"]


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
            tuple(sorted(cursor.individually_deleted, key=lambda one: one.last)),
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
