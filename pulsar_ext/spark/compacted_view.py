"""What compaction has removed from one topic partition, as far as a reader of the compacted view can know it.

Compaction has gone over the entries up to the position of its own cursor. An entry up to there that no message came
from may have been removed; one behind it has to come, as in any other read.

The view outlives the ledgers that it was made of. The broker finds what is older than the oldest ledger only for a
reader that begins at the beginning, and not for one that reconnects. So what comes of it is counted, and has to be all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulsar_ext.ids.position import Position

from .connection import admin_of
from .errors import NotDelivered

if TYPE_CHECKING:
    from pulsar_ext.admin import InternalStats, LedgerInfo

    from .message_block import MessageBlock
    from .options import Settings
    from .splits import Segment

__all__ = ["CompactedView"]


class CompactedView:
    """The compacted view of one segment.

    Args:
        segment: what is to be read.
        settings: the options.
    """

    def __init__(self, segment: Segment, settings: Settings) -> None:
        self._segment = segment
        self._settings = settings
        self._horizon = Position(-1, -1)
        self.outlives = segment.only_compacted > 0
        """Whether entries may come whose ledgers are gone."""
        self._ledger: LedgerInfo | None = None
        if self.outlives:
            self._ledger = self._ask().compacted
        self._seen: set[tuple[int, int]] = set()

    def horizon(self, position: Position) -> Position:
        """Give the position up to which compaction has gone; ask again if `position` lies behind what is known."""
        if position > self._horizon:
            self._ask()
        return self._horizon

    def count(self, block: MessageBlock) -> None:
        """Take note of messages that came, if it matters whether all of the view did."""
        if self.outlives:
            ledger, entry, _ = block.positions
            self._seen.update(map(tuple, np.unique(np.stack((ledger, entry), 1), axis=0).tolist()))

    def check_whole(self) -> None:
        """Check that all of the view came, if a part of it cannot be found missing otherwise.

        Raises:
            NotDelivered: it did not.
        """
        before, stats = self._ledger, self._ask() if self.outlives else None
        if stats is None or before is None or stats.compacted is None or stats.compacted.ledger_id != before.ledger_id:
            return
        horizon = self._horizon
        came = sum(Position(*one) <= horizon for one in self._seen)
        if self._segment.until.last_entry >= horizon and came < before.entries:
            raise NotDelivered(
                f"Of the {before.entries} entries of the compacted view of {self._segment.topic}, {came} came: the "
                "connection was lost among entries whose own ledgers are gone, where the broker does not find its "
                "place again, or messages in chunks were compacted, of which it keeps one chunk. Run the job again; "
                "if it fails again, it is the latter.",
                topic=self._segment.topic,
                position=max((Position(*one) for one in self._seen), default=None),
            )

    def _ask(self) -> InternalStats:
        stats = admin_of(self._settings).internal_stats(self._segment.topic)
        self._horizon = max(self._horizon, stats.compaction_horizon)
        return stats

    def without_removed(self, block: MessageBlock) -> MessageBlock | None:
        """Leave out the messages of batches that were compacted away: the C++ client delivers empty ones for them.

        Compaction removes every message without a key.
        """
        ledger, entry, batch = (column.tolist() for column in block.positions)
        empty = [
            index
            for index, key in enumerate(block.key_texts)
            if not key and not block.payloads[index] and batch[index] >= 0 and not block.ordering_keys[index]
        ]
        if not empty:
            return block
        horizon = self.horizon(Position(ledger[empty[-1]], entry[empty[-1]]))
        gone = {index for index in empty if Position(ledger[index], entry[index]) <= horizon}
        kept = [index for index in range(len(block)) if index not in gone]
        return block.take(kept) if kept else None
