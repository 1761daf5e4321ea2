"""Planning a skip: which clean cut, found in which way, and when it must be refused (pure; seed 000).

`plan_skip` is a search that yields what it needs to know and is sent the answers, as in `chunks.py`, so that a blocking
and an awaiting driver share it. It asks for as little as the topic lets it: a few headers where these prove the count
(`proofs.py`), else the facts of every entry up to the cut.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pulsar_ext.errors import SkipInsideMessage
from pulsar_ext.ids.position import Position

from .boundaries import Batch, Cut, CutFinder, Piece
from .header_count import Counted, Counter, prove_single
from .queries import AskCount, AskEntries, AskFacts, AskIndex, AskSingles, AskSplits, Strategy

if TYPE_CHECKING:
    from pulsar_ext.chunks.search import AskEntry

    from .backlog import Backlog
    from .boundaries import Fact, MessageKey, Unit

__all__ = ["BIG_ENTRY_BYTES", "Plan", "Situation", "plan_skip", "read_facts", "scan_strategy"]

_FEW_ENTRIES = 256
"""Up to so many entries, asking for each one's headers costs less than opening a reader."""

BIG_ENTRY_BYTES = 512 * 1024
"""From this average size on, an entry's headers cost less than its content."""

_ABANDONED_MS = 60_000
"""A message whose next chunk is so late is dropped by consumers too: `expireTimeOfIncompleteChunkedMessage`."""


@dataclass(frozen=True)
class Situation:
    """What is known of the topic and the subscription before anything is counted.

    Args:
        backlog: the ledgers and the cursor.
        single: whether the broker's counters show that no entry is a batch.
        acks_hide: whether messages inside a batch may be acknowledged, which the broker does not show.
        idle: whether the subscription has no consumer.
        splits: whether the broker can keep a cursor inside a batch; None where that is asked when it matters.
        chunked: whether the broker has noticed chunks on the topic, which it does late and forgets.
        entry_bytes: the average size of an entry.
        now_ms: milliseconds since the epoch.
        last_ack_ms: when the subscription's last acknowledgement came, 0 for never.
        may_hide: whether acknowledgements inside batches, which the broker does not show, may come from now on.
    """

    backlog: Backlog
    single: bool
    acks_hide: bool
    idle: bool
    splits: bool | None
    chunked: bool
    entry_bytes: float
    now_ms: int
    last_ack_ms: int = 0
    may_hide: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """A skip that can be carried out.

    Args:
        situation: what it was made for.
        cut: where the cursor goes.
        strategy: how that was found.
        exact: whether just as much lies before the cut as was asked for. False past the end, and where messages in
            batches may be acknowledged that nobody shows: the cut then skips fewer, never more.
    """

    situation: Situation
    cut: Cut
    strategy: Strategy
    exact: bool

    @property
    def moves(self) -> bool:
        """Whether the cursor moves at all."""
        return self.cut.entries > 0 or self.cut.batch_index is not None


Steps = Generator["AskCount | AskEntry | AskEntries | AskIndex | AskFacts | AskSingles | AskSplits", object, Plan]


def plan_skip(situation: Situation, count: int, unit: Unit) -> Steps:
    """Find where the cursor has to go.

    Raises:
        SkipInsideMessage: that would be inside a message; it says which counts are possible.
    """
    finder = CutFinder(situation.backlog, count, unit)
    first = situation.backlog.entry(1)
    if finder.exact or first is None:
        return Plan(situation, finder.cut, Strategy.ARITHMETIC, exact=finder.exact)
    if not situation.chunked:
        plan = yield from _count(situation, count, unit)
        if plan is not None:
            return plan
    if situation.splits is None and unit == "message":
        situation = replace(situation, splits=bool((yield AskSplits())))
    strategy = scan_strategy(situation, count)
    finder = yield from _scan(situation, count, unit, strategy, frozenset())
    ignored: set[MessageKey] = set()
    while not finder.exact:
        late = {key for key, (_, newest) in finder.unfinished.items() if situation.now_ms - newest > _ABANDONED_MS}
        undeliverable = finder.broken if finder.beyond else finder.broken | late
        if undeliverable <= ignored:
            break
        ignored |= undeliverable
        finder = yield from _scan(situation, count, unit, strategy, frozenset(ignored))
    if not finder.exact and (finder.beyond or finder.unfinished):
        raise _inside(finder.cut, finder.beyond, count, unit, finder.unfinished)
    hidden = situation.acks_hide and strategy is not Strategy.SUBSCRIPTION and finder.batches
    return Plan(situation, finder.cut, strategy, exact=finder.exact and not hidden)


def _count(
    situation: Situation, count: int, unit: Unit
) -> Generator[AskCount | AskEntry | AskEntries | AskIndex | AskSingles | AskSplits, object, Plan | None]:
    """Count without going through the topic; None if that proves nothing."""
    backlog, single = situation.backlog, situation.single
    counter, found = Counter(backlog, single=single), None
    if single or not (situation.acks_hide and situation.idle):
        found = yield from counter.find(count, unit)
    if found is None and not single and not counter.indexed and (yield from _is_single(backlog, count)):
        counter, single = Counter(backlog, single=True), True
        found = yield from counter.find(count, unit)
    if found is None:
        return None
    uncounted = Strategy.ARITHMETIC if single else Strategy.ANALYSIS
    strategy = Strategy.INDEX if counter.indexed else uncounted
    counted = replace(situation, acks_hide=situation.acks_hide and not single)
    return (yield from _from_count(counted, found, count, unit, strategy))


def _is_single(backlog: Backlog, count: int) -> Generator[AskEntry | AskSingles, object, bool]:
    """Whether no entry that the skip can reach is a batch, asked only where reading them would cost more."""
    last = backlog.ledgers.last
    count = min(count, 0 if last is None else backlog.entries(last))
    return count > _FEW_ENTRIES and (yield from prove_single(backlog, count))


def scan_strategy(situation: Situation, count: int) -> Strategy:
    """Choose how to go through the topic entry by entry."""
    if situation.acks_hide and situation.idle:
        return Strategy.SUBSCRIPTION
    last = situation.backlog.ledgers.last
    entries = 0 if last is None else situation.backlog.entries(last)
    few = min(count, entries) <= _FEW_ENTRIES or situation.entry_bytes >= BIG_ENTRY_BYTES
    return Strategy.HEADERS if few else Strategy.READER


def _scan(
    situation: Situation, count: int, unit: Unit, strategy: Strategy, abandoned: frozenset[MessageKey]
) -> Generator[AskFacts, object, CutFinder]:
    finder = CutFinder(situation.backlog, count, unit, splits=bool(situation.splits), abandoned=abandoned)
    first = situation.backlog.entry(1)
    assert first is not None  # noqa: S101  # or there would be nothing to scan
    facts = read_facts(situation.backlog, strategy, first)
    ask = next(facts)
    while not finder.done:
        fact = yield ask
        if fact is None:
            break
        finder.feed(fact)  # type: ignore[arg-type]  # the answer to AskFacts
        ask = facts.send(fact)  # type: ignore[arg-type]  # likewise
    return finder


def read_facts(backlog: Backlog, strategy: Strategy, first: Position) -> Generator[AskFacts, Fact, None]:
    """Ask for one fact after another, each time from where the one before ended; for ever."""
    at: Position | None = first
    while at is not None:
        fact = yield AskFacts(strategy, at)
        end = fact.position if isinstance(fact, Batch | Piece) else Position(fact.ledger_id, fact.last)
        at = backlog.ledgers.next(end) or Position(end.ledger_id, end.entry_id + 1)


def _from_count(
    situation: Situation, found: Counted, count: int, unit: Unit, strategy: Strategy
) -> Generator[AskSplits, object, Plan]:
    backlog = situation.backlog
    end = Cut(found.position, found.messages, backlog.entries(found.position))
    hidden = situation.acks_hide and end.messages > end.entries
    if end.count(unit) <= count:
        return Plan(situation, end, strategy, exact=end.count(unit) == count and not hidden)
    before = backlog.ledgers.number(backlog.ledgers.up_to(found.position) - 1) or backlog.mark_delete
    start = Cut(max(before, backlog.mark_delete), found.messages - found.size, backlog.entries(before))
    inside = count - start.messages
    splits = situation.splits
    if inside and splits is None:
        splits = bool((yield AskSplits()))
    if inside and not splits:
        raise _inside(start, end, count, unit, {})
    cut = replace(start, messages=count, batch_index=inside) if inside else start
    return Plan(situation, cut, strategy, exact=not hidden)


def _inside(
    cut: Cut, beyond: Cut | None, count: int, unit: Unit, unfinished: dict[MessageKey, tuple[Position, int]]
) -> SkipInsideMessage:
    below, above = cut.count(unit), None if beyond is None else beyond.count(unit)
    where = f"Skipping {count} {unit}s would end inside a message behind {cut.position}"
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
    return SkipInsideMessage(what, requested=count, unit=unit, below=below, above=above, position=cut.position)
