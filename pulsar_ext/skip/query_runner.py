"""Runs the searches of `plan.py` and `message_id_after.py`: answers what they ask, over the admin API or by reading."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pulsar_ext.chunks.queries import AskEntry, AskLedgers, entry_headers, run_search
from pulsar_ext.errors import AdminNotFound, AdminUnauthorized

from .broker_count import BrokerCount
from .open_transactions import before_open_transactions
from .progress import progress_bar
from .queries import AskBatchIndexAcks, AskCount, AskEntries, AskIndex, AskScan, AskUnbatched
from .scan import Scan

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import EntryMetadata, TopicStats
    from pulsar_ext.chunks.queries import Search
    from pulsar_ext.ids.position import Position

    from .backlog import Backlog

__all__ = ["QueryRunner"]

T = TypeVar("T")

_BATCH_INDEX_SETTING = "acknowledgmentAtBatchIndexLevelEnabled"


class QueryRunner:
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
        self._prefetched: tuple[Position, EntryMetadata | None] | None = None

    def run(self, search: Search[T], backlog: Backlog) -> T:
        """Run a search and return what it finds.

        Raises:
            pulsar.ConsumerBusy: the search is for what the subscription would deliver, and it has a consumer.
            AdminError: the admin API refused or did not answer.
        """
        scan: Scan | None = None

        def answer(query: object) -> object:
            nonlocal scan
            if not isinstance(query, AskScan):
                return self._answer(query, backlog, report)
            if scan is None or scan.at != query.first:
                if scan is not None:
                    scan.close()
                scan = Scan(self._context, self._topic, self._subscription, backlog, query.strategy, query.first)
            item = scan.next()
            report(scan.at)
            return item

        with progress_bar(backlog, wanted=self._progress) as report:
            try:
                return run_search(search, answer)
            finally:
                if scan is not None:
                    scan.close()

    def deliverable(self, backlog: Backlog, stats: TopicStats) -> Backlog:
        """Return a backlog without what consumers get only after an open transaction has ended."""
        if not stats.raw.get("ongoingTxnCount"):
            return backlog
        search = before_open_transactions(backlog.ledgers)
        return replace(backlog, ledgers=run_search(search, lambda query: self._entry(query.position)))

    def keeps_batch_indexes(self) -> bool | None:
        """Whether the broker keeps acknowledgements inside batches; None if it may not be asked."""
        try:
            return self._admin.broker_configuration().get(_BATCH_INDEX_SETTING) == "true"
        except AdminUnauthorized:
            return None

    def prefetch_entry(self, at: Position) -> None:
        """Ask for an entry's headers before the search that will need them begins."""
        self._prefetched = None
        self._prefetched = (at, self._entry(at))

    def _answer(self, query: object, backlog: Backlog, report: Callable[[Position], None]) -> object:
        if isinstance(query, AskEntry):
            return self._entry(query.position)
        if isinstance(query, AskEntries):
            with ThreadPoolExecutor(len(query.positions) or 1) as pool:
                return list(pool.map(self._entry, query.positions))
        if isinstance(query, AskIndex):
            return self._entry_of_index(query.index)
        if isinstance(query, AskCount | AskUnbatched):
            return self._counted(query, backlog, report)
        if isinstance(query, AskBatchIndexAcks):
            return bool(self.keeps_batch_indexes())
        assert isinstance(query, AskLedgers)  # noqa: S101  # there are no other queries
        return self._admin.internal_stats(self._topic).ledger_sizes()

    def _counted(
        self, query: AskCount | AskUnbatched, backlog: Backlog, report: Callable[[Position], None]
    ) -> int | None:
        if not self._subscription:
            return None  # the broker counts what a subscription has before it
        count = BrokerCount(self._admin, self._topic, self._subscription, backlog.ledgers)
        if isinstance(query, AskCount):
            return count.messages_between(query.first, query.end)
        return count.all_unbatched(query.first, query.last, report)

    def _entry(self, at: Position) -> EntryMetadata | None:
        if self._prefetched is not None and self._prefetched[0] == at:
            return self._prefetched[1]
        return entry_headers(self._admin, self._topic, at)

    def _entry_of_index(self, index: int) -> Position | None:
        try:
            return self._admin.message_id_by_index(self._topic, index)
        except AdminNotFound:
            return None
