"""The blocking shell around the searches of `skip_plan.py` and `id_after.py`: it answers what they ask."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pulsar_ext.chunks.search import AskEntry, AskLedgers
from pulsar_ext.errors import AdminNotFound, AdminUnauthorized, InvalidUse

from .broker_count import messages_between, only_singles
from .progress import Progress
from .queries import AskCount, AskEntries, AskFacts, AskIndex, AskSingles, AskSplits
from .scan import Scan

if TYPE_CHECKING:
    from collections.abc import Generator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import InternalStats, TopicStats
    from pulsar_ext.ids.position import Position

    from .backlog import Backlog

__all__ = ["Inquiry", "check_count", "is_fresh", "is_single"]

_MAX_LONG = 2**63 - 1
_BATCH_INDEX_SETTING = "acknowledgmentAtBatchIndexLevelEnabled"


class Inquiry:
    """Runs searches over one topic.

    Args:
        context: of the client that asks.
        topic: the full name of a topic without partitions.
        subscription: the one whose deliveries count.
        progress: whether to show a progress bar while the topic is read.
    """

    def __init__(self, context: ClientContext, topic: str, subscription: str = "", *, progress: bool = False) -> None:
        self._context, self._admin = context, context.admin_api()
        self._topic, self._subscription = topic, subscription
        self._progress = progress
        self._ahead: tuple[Position, object] | None = None

    def run(self, steps: Generator[Any, Any, Any], backlog: Backlog) -> Any:
        """Answer what a search asks for, and return what it finds.

        Raises:
            pulsar.ConsumerBusy: the search is for what the subscription would deliver, and it has a consumer.
            AdminError: the admin API refused or did not answer.
        """
        scan: Scan | None = None
        answer: object = None
        with Progress(self._progress, backlog) as progress:
            try:
                while True:
                    ask = steps.send(answer)
                    if not isinstance(ask, AskFacts):
                        answer = self._answer(ask, backlog, progress)
                        continue
                    if scan is None or scan.at != ask.first:
                        if scan is not None:
                            scan.close()
                        scan = Scan(
                            self._context,
                            self._topic,
                            self._subscription,
                            backlog,
                            ask.strategy,
                            ask.first,
                        )
                    answer = scan.next()
                    progress.at(scan.at)
            except StopIteration as done:
                return done.value
            finally:
                if scan is not None:
                    scan.close()

    def keeps_batch_indexes(self) -> bool | None:
        """Whether the broker keeps acknowledgements inside batches; None if it may not be asked."""
        try:
            return self._admin.broker_configuration().get(_BATCH_INDEX_SETTING) == "true"
        except AdminUnauthorized:
            return None

    def look_ahead(self, at: Position) -> None:
        """Ask for an entry's headers before the search that will need them begins."""
        self._ahead = None
        self._ahead = (at, self._entry(at))

    def _answer(self, ask: object, backlog: Backlog, progress: Progress) -> object:
        if isinstance(ask, AskEntry):
            return self._entry(ask.position)
        if isinstance(ask, AskEntries):
            with ThreadPoolExecutor(len(ask.positions) or 1) as pool:
                return list(pool.map(self._entry, ask.positions))
        if isinstance(ask, AskIndex):
            return self._index(ask.index)
        if isinstance(ask, AskCount | AskSingles):
            return self._counted(ask, backlog, progress)
        if isinstance(ask, AskSplits):
            return bool(self.keeps_batch_indexes())
        assert isinstance(ask, AskLedgers)  # noqa: S101  # there are no other questions
        return self._admin.internal_stats(self._topic).ledger_sizes()

    def _counted(self, ask: AskCount | AskSingles, backlog: Backlog, progress: Progress) -> int | bool | None:
        if not self._subscription:
            return None  # the broker counts what a subscription has before it
        where = (self._admin, self._topic, self._subscription, backlog.ledgers)
        if isinstance(ask, AskCount):
            return messages_between(*where, ask.first, ask.end)
        return only_singles(*where, ask.first, ask.last, progress.at)

    def _entry(self, at: Position) -> object:
        if self._ahead is not None and self._ahead[0] == at:
            return self._ahead[1]
        try:
            return self._admin.entry(self._topic, at.ledger_id, at.entry_id)
        except AdminNotFound:
            return None

    def _index(self, index: int) -> Position | None:
        try:
            return self._admin.message_id_by_index(self._topic, index)
        except AdminNotFound:
            return None


def check_count(count: int) -> None:
    """Refuse what is no count.

    Raises:
        InvalidUse: it is no int, negative, or does not fit into 64 bits.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MAX_LONG:
        raise InvalidUse(f"The count must be an int from 0 to {_MAX_LONG}, not {count!r}. Nothing was moved.")


def is_fresh(internal: InternalStats, backlog: Backlog) -> bool:
    """Whether the whole backlog was written since the broker loaded the topic, so that its counters cover it."""
    last = backlog.ledgers.last
    behind = 0 if last is None else backlog.ledgers.between(backlog.mark_delete, last)
    added: int = internal.raw["entriesAddedCounter"]
    return behind <= added


def is_single(internal: InternalStats, stats: TopicStats, backlog: Backlog) -> bool:
    """Whether the broker's counters show that no entry of the backlog is a batch: as many messages as entries came.

    The statistics have to be younger than the internal ones: a message that comes in between then disproves it.
    """
    # Transactions and replicated subscriptions write markers, entries that no message was counted for.
    marked = any(stats.raw.get(f"{kind}TxnCount") for kind in ("ongoing", "committed", "aborted")) or any(
        one.raw.get("isReplicated") for one in stats.subscriptions.values()
    )
    added: int = internal.raw["entriesAddedCounter"]
    return is_fresh(internal, backlog) and stats.messages_in == added and not marked
