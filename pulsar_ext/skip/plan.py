"""Planning a skip: to which clean boundary, found in which way, and when it must be refused (pure).

`plan_skip` is a search that yields what it needs to know and is sent the answers. It asks for as little as the topic
lets it: a few headers where these prove the count (`header_count.py`), else a scan of every entry up to the boundary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pulsar_ext.errors import InvalidUse, SkipInsideMessage
from pulsar_ext.ids.text import counted

from .boundaries import Boundary, BoundaryFinder, entry_after
from .header_count import CountedEntry, HeaderCounter, prove_unbatched
from .queries import AskBatchIndexAcks, AskScan, Strategy

if TYPE_CHECKING:
    from collections.abc import Generator

    from pulsar_ext.chunks.queries import Search
    from pulsar_ext.ids.position import Position

    from .backlog import Backlog
    from .boundaries import MessageKey, ScanItem, Unit

__all__ = ["Situation", "SkipPlan", "cheapest_scan", "check_count", "plan_skip", "scan_items"]

_MAX_LONG = 2**63 - 1

_FEW_ENTRIES = 256
"""Up to so many entries, asking for each one's headers costs less than opening a reader."""

_BIG_ENTRY_BYTES = 512 * 1024
"""From this average size on, an entry's headers cost less than its content."""

_ABANDONED_MS = 60_000
"""A message whose next chunk is so late is dropped by consumers too: `expireTimeOfIncompleteChunkedMessage`."""


@dataclass(frozen=True)
class Situation:
    """What is known of the topic and the subscription before anything is counted.

    Args:
        backlog: the ledgers and the cursor.
        unbatched: whether the broker's counters show that no entry is a batch.
        may_hide_acks: whether messages inside a batch may be acknowledged, which the broker does not show.
        idle: whether the subscription has no consumer.
        batch_index_acks: whether the broker can keep a cursor inside a batch; None where that is asked when it matters.
        chunked: whether the broker has noticed chunks on the topic, which it does late and forgets.
        entry_bytes: the average size of an entry.
        now_ms: milliseconds since the epoch.
        last_ack_ms: when the subscription's last acknowledgement came, 0 for never.
        may_hide_new_acks: whether acknowledgements inside batches, which it does not show, may come from now on.
    """

    backlog: Backlog
    unbatched: bool
    may_hide_acks: bool
    idle: bool
    batch_index_acks: bool | None
    chunked: bool
    entry_bytes: float
    now_ms: int
    last_ack_ms: int = 0
    may_hide_new_acks: bool = True


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """A skip that can be carried out.

    Args:
        situation: what it was made for.
        boundary: where the cursor goes.
        strategy: how that was found.
        exact: whether just as much lies before the boundary as was asked for. False past the end, and where messages
            in batches may be acknowledged, which the broker does not show: then fewer are skipped, never more.
    """

    situation: Situation
    boundary: Boundary
    strategy: Strategy
    exact: bool

    @property
    def moves(self) -> bool:
        """Whether the cursor moves at all."""
        return self.boundary.entries > 0 or self.boundary.batch_index is not None


def plan_skip(situation: Situation, count: int, unit: Unit) -> Search[SkipPlan]:
    """Find where the cursor has to go.

    Raises:
        SkipInsideMessage: that would be inside a message; it says which counts are possible.
    """
    finder = BoundaryFinder(situation.backlog, count, unit)
    first = situation.backlog.entry(1)
    if finder.exact or first is None:
        return SkipPlan(situation, finder.boundary, Strategy.ARITHMETIC, exact=finder.exact)
    if not situation.chunked:
        plan = yield from _count(situation, count, unit)
        if plan is not None:
            return plan
    if situation.batch_index_acks is None and unit == "message":
        situation = replace(situation, batch_index_acks=bool((yield AskBatchIndexAcks())))
    through_subscription = situation.may_hide_acks and situation.idle
    cheapest = cheapest_scan(situation.backlog, count, situation.entry_bytes)
    strategy = Strategy.SUBSCRIPTION if through_subscription else cheapest
    finder = yield from _scan(situation, count, unit, strategy, frozenset())
    ignored: set[MessageKey] = set()
    while not finder.exact:
        late = {key for key, (_, newest) in finder.unfinished.items() if situation.now_ms - newest > _ABANDONED_MS}
        undeliverable = finder.broken if finder.following else finder.broken | late
        if undeliverable <= ignored:
            break
        ignored |= undeliverable
        finder = yield from _scan(situation, count, unit, strategy, frozenset(ignored))
    if not finder.exact and (finder.following or finder.unfinished):
        raise _refused_inside(finder.boundary, finder.following, count, unit, finder.unfinished)
    hidden = situation.may_hide_acks and strategy is not Strategy.SUBSCRIPTION and finder.saw_batches
    return SkipPlan(situation, finder.boundary, strategy, exact=finder.exact and not hidden)


def _count(situation: Situation, count: int, unit: Unit) -> Search[SkipPlan | None]:
    """Count without going through the topic; None if that proves nothing."""
    backlog, unbatched = situation.backlog, situation.unbatched
    counter, found = HeaderCounter(backlog, unbatched=unbatched), None
    if unbatched or not (situation.may_hide_acks and situation.idle):
        found = yield from counter.find(count, unit)
    if found is None and not unbatched and not counter.indexed and (yield from _is_unbatched(backlog, count)):
        counter, unbatched = HeaderCounter(backlog, unbatched=True), True
        found = yield from counter.find(count, unit)
    if found is None:
        return None
    uncounted = Strategy.ARITHMETIC if unbatched else Strategy.ANALYSIS
    strategy = Strategy.INDEX if counter.indexed else uncounted
    counted = replace(situation, may_hide_acks=situation.may_hide_acks and not unbatched)
    return (yield from _from_count(counted, found, count, unit, strategy))


def _is_unbatched(backlog: Backlog, count: int) -> Search[bool]:
    """Whether no entry that the skip can reach is a batch, asked only where reading them would cost more."""
    last = backlog.ledgers.last
    count = min(count, 0 if last is None else backlog.entries(last))
    return count > _FEW_ENTRIES and (yield from prove_unbatched(backlog, count))


def check_count(count: int) -> None:
    """Refuse a count that the broker cannot be given.

    Raises:
        InvalidUse: it is not an int, negative, or does not fit into 64 bits.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MAX_LONG:
        raise InvalidUse(f"The count must be an int from 0 to {_MAX_LONG}, not {count!r}. Nothing was moved.")


def cheapest_scan(backlog: Backlog, count: int, entry_bytes: float) -> Strategy:
    """Choose how to go through so many messages of a topic entry by entry, all of whose headers say enough."""
    last = backlog.ledgers.last
    entries = 0 if last is None else backlog.entries(last)
    few = min(count, entries) <= _FEW_ENTRIES or entry_bytes >= _BIG_ENTRY_BYTES
    return Strategy.HEADERS if few else Strategy.READER


def _scan(
    situation: Situation, count: int, unit: Unit, strategy: Strategy, abandoned: frozenset[MessageKey]
) -> Search[BoundaryFinder]:
    finder = BoundaryFinder(
        situation.backlog, count, unit, inside_batches=bool(situation.batch_index_acks), abandoned=abandoned
    )
    first = situation.backlog.entry(1)
    assert first is not None  # noqa: S101  # or there would be nothing to scan
    items = scan_items(situation.backlog, strategy, first)
    ask = next(items)
    while not finder.done:
        item: ScanItem | None = yield ask
        if item is None:
            break
        finder.feed(item)
        ask = items.send(item)
    return finder


def scan_items(backlog: Backlog, strategy: Strategy, first: Position) -> Generator[AskScan, ScanItem, None]:
    """Ask for one item of a scan after another, each time from where the one before ended; for ever."""
    at = first
    while True:
        item = yield AskScan(strategy, at)
        at = entry_after(item, backlog.ledgers)


def _from_count(
    situation: Situation, found: CountedEntry, count: int, unit: Unit, strategy: Strategy
) -> Search[SkipPlan]:
    backlog = situation.backlog
    end = Boundary(found.position, found.messages, backlog.entries(found.position))
    hidden = situation.may_hide_acks and end.messages > end.entries
    if end.count(unit) <= count:
        return SkipPlan(situation, end, strategy, exact=end.count(unit) == count and not hidden)
    before = backlog.ledgers.number(backlog.ledgers.up_to(found.position) - 1) or backlog.mark_delete
    start = Boundary(max(before, backlog.mark_delete), found.messages - found.size, backlog.entries(before))
    inside = count - start.messages
    batch_index_acks = situation.batch_index_acks
    if inside and batch_index_acks is None:
        batch_index_acks = bool((yield AskBatchIndexAcks()))
    if inside and not batch_index_acks:
        raise _refused_inside(start, end, count, unit, {})
    boundary = replace(start, messages=count, batch_index=inside) if inside else start
    return SkipPlan(situation, boundary, strategy, exact=not hidden)


def _refused_inside(
    boundary: Boundary,
    following: Boundary | None,
    count: int,
    unit: Unit,
    unfinished: dict[MessageKey, tuple[Position, int]],
) -> SkipInsideMessage:
    below, above = boundary.count(unit), None if following is None else following.count(unit)
    where = f"Skipping {counted(count, unit)} would end inside a message behind {boundary.position}"
    if above is not None:
        what = (
            f"{where}: possible are {below} and {above}. Nothing was moved. Inside a batch, a cursor can stand only "
            "where the broker has acknowledgmentAtBatchIndexLevelEnabled; inside a chunked message, nowhere."
        )
    else:
        first = min(position for position, _ in unfinished.values())
        what = (
            f"{where}: possible are {below}, and no more while the chunked message that begins at {first} is not "
            f"complete. Nothing was moved. If its producer has given up, it counts as lost after "
            f"{_ABANDONED_MS // 1000} s, as it does for consumers."
        )
    return SkipInsideMessage(what, requested=count, unit=unit, below=below, above=above, position=boundary.position)
