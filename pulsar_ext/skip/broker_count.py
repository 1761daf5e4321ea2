"""Having the broker count: the messages of a stretch of a topic, and whether there is a batch among them.

The broker reads without sending anything, and several stretches at a time. It stops after
`subscriptionBacklogScanMaxEntries` entries, 10,000 by default; the first answer shows how many that are.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_ext.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext.admin import BacklogAnalysis, PulsarAdmin
    from pulsar_ext.ids.position import Ledgers, Position

__all__ = ["BrokerCount"]

_AT_ONCE = 8

_TRIES = 3
"""How often two counts up to the end of the topic are begun again because a message came in between."""


class _NotCountedError(Exception):
    """The broker did not count, or counted what is not a message."""


@dataclass(frozen=True, slots=True)
class BrokerCount:
    """Counts that the broker makes for a subscription, which is not moved.

    Args:
        admin: has the broker count.
        topic: the full name of a topic without partitions.
        subscription: what it has acknowledged is not counted.
        ledgers: the entries of the topic.
    """

    admin: PulsarAdmin
    topic: str
    subscription: str
    ledgers: Ledgers

    def messages_between(self, first: Position, end: Position) -> int | None:
        """Count the messages from the entry `first` up to, not including, the entry `end`, neither acknowledged.

        The broker counts up to the end of the topic, so it does that from both: the difference lies between them.

        Returns:
            None where the broker does not count, or counts what is not a message, or while messages come all the time.
        """
        for _ in range(_TRIES):
            with ThreadPoolExecutor(2) as pool:
                try:
                    whole, rest = pool.map(self._to_the_end, (first, end))
                except _NotCountedError:
                    return None
            if whole[1] == rest[1]:
                return whole[0] - rest[0]
        return None

    def all_unbatched(self, first: Position, last: Position, report: Callable[[Position], None]) -> bool:
        """Whether every entry from `first` to `last` that is not acknowledged is one message, or one chunk.

        Args:
            first: the first entry of the stretch; the subscription stands before it.
            last: its last entry.
            report: gets the entry up to which all is counted, now and then.

        Returns:
            False as well where the broker did not count the whole stretch.
        """
        ledgers = self.ledgers
        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            reached = self._unbatched_to(first, first)
            stride = ledgers.between(first, reached) + 1
            starts = range(ledgers.up_to(reached) + 1, ledgers.up_to(last) + 1, stride)
            spans = [(ledgers.number(at), ledgers.number(at + stride - 1) or last) for at in starts]
            for counted in pool.map(lambda span: self._unbatched_to(span[0], min(span[1], last)), spans):
                report(counted)
        except _NotCountedError:
            return False
        finally:
            pool.shutdown(cancel_futures=True)
        return True

    def _to_the_end(self, first: Position) -> tuple[int, Position]:
        """Give how many messages there are from `first` on, and the last entry that was counted."""
        messages, reached = 0, None
        for found, last in self._counts(first):
            if reached is None and found.first != first:
                raise _NotCountedError
            messages, reached = messages + found.messages, last
            if not found.aborted:
                break
        if reached is None:
            raise _NotCountedError
        return messages, reached

    def _unbatched_to(self, first: Position | None, end: Position) -> Position:
        """Count from `first` at least to `end`, while there is no batch; give the last entry that was counted."""
        for found, last in self._counts(first):
            if found.messages != found.entries:
                break
            if last >= end:
                return last
        raise _NotCountedError

    def _counts(self, first: Position | None) -> Iterator[tuple[BacklogAnalysis, Position]]:
        """Have the broker count on and on from `first` to the end of the topic; give each count and its last entry."""
        at = first
        while at is not None:
            try:
                found = self.admin.analyze_backlog(self.topic, self.subscription, at)
            except AdminError as error:
                raise _NotCountedError from error
            if found.marker_messages or found.first is None or found.first < at or found.last is None:
                raise _NotCountedError
            yield found, found.last
            at = self.ledgers.next(found.last)
