"""Looking at the broker's cursor: to begin runs there, and to notice after a reconnection that it went back."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import pulsar

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext.errors import PulsarExtError
from pulsar_ext.ids.position import Ledgers, Position

if TYPE_CHECKING:
    from pulsar_ext.admin import InternalStats
    from pulsar_ext.client.client import Client

    from .grouping import Acknowledger
    from .topic_acks import Cursor
    from .tracker import Entry

__all__ = ["CursorLook"]

_log = logging.getLogger("pulsar_ext.acks")

_LOOK_SECONDS = 2.0
_LOOK_DEADLINE_SECONDS = 1.0
"""The keeper's thread waits for it, and has other consumers to look after."""
_LOOK_AGAIN_SECONDS = 30.0
_SETTLE_SECONDS = 0.6
_LOOKS = 3
"""How often a cursor is seen behind what was acknowledged before that is believed."""


class CursorLook:
    """Looks at the cursors of one consumer.

    Args:
        acks: the consumer's acknowledgements.
        client: asks the admin API.
        subscription: whose cursors.
    """

    def __init__(self, acks: Acknowledger, client: Client, subscription: str) -> None:
        self._acks, self._client, self._subscription = acks, client, subscription
        self._settles: float | None = None

    def after(self, sent: float) -> None:
        """Look when what is sent again at a time should show, in seconds of `time.monotonic()`."""
        self._settles = sent + _SETTLE_SECONDS

    def look(self, now: float) -> None:
        """Look at the broker's cursors where that is needed: to begin runs, and after a reconnection."""
        settled = self._settles is not None and now >= self._settles
        if settled:
            self._settles = None
        for cursor in self._acks.cursors():
            behind = settled and cursor.reached is not None
            if not behind and not (cursor.tracker.wants_base and now - cursor.looked > _LOOK_SECONDS):
                continue
            cursor.looked = now
            try:
                admin = self._client.context.admin_api().within(_LOOK_DEADLINE_SECONDS)  # the client's own
                stats = admin.internal_stats(cursor.topic)
            except PulsarExtError:  # none answers, or none is known: everything still leaves, one by one
                cursor.looked = now + _LOOK_AGAIN_SECONDS
                if behind:
                    self._settles = now + _LOOK_SECONDS
                return
            cursor.behind = cursor.behind + 1 if self._learn(cursor, stats, behind=behind) else 0
            if not cursor.behind:
                continue
            if cursor.behind < _LOOKS:
                self._settles = now + _SETTLE_SECONDS  # what was sent again may be on its way
            else:
                cursor.behind = 0
                self._go_back(cursor, stats.cursors[self._subscription].mark_delete_position)

    def _learn(self, cursor: Cursor, stats: InternalStats, *, behind: bool) -> bool:
        """Tell the tracker where the cursor is; True if it is before what was acknowledged."""
        info = stats.cursors.get(self._subscription)
        if info is None:
            return False
        mark = info.mark_delete_position
        ledgers = Ledgers(stats.ledger_sizes())
        with self._acks.lock:
            if behind and cursor.reached is not None and ledgers.between(mark, Position(*cursor.reached)) > 0:
                return True
            following = ledgers.next(mark)
            cursor.tracker.looked(
                (mark.ledger_id, mark.entry_id),
                None if following is None else (following.ledger_id, following.entry_id),
                [
                    (ledger_id, entry)
                    for one in info.individually_deleted
                    for ledger_id, entry in _entries(one.after, one.last)
                ],
            )
        return False

    def _go_back(self, cursor: Cursor, mark: Position) -> None:
        """Take up again where the broker's cursor is.

        The broker lost a position when it was killed, or an operator moved the cursor back. The C++ client drops what
        is redelivered from there, as acknowledged earlier, until a seek makes it forget.
        """
        _log.warning(
            "The cursor of %s on %s went back to %s, before what was acknowledged: its messages are delivered again.",
            self._subscription,
            cursor.topic,
            mark,
        )
        with self._acks.lock:
            cursor.forget()
        partition = cursor.wire.partition
        self._acks.number_anew()
        with contextlib.suppress(pulsar.PulsarException):
            self._acks.inner.seek(InnerMessageId(partition, mark.ledger_id, mark.entry_id, -1))
        if mark.entry_id >= 0:
            # The broker takes back the entry that a seek names, and the C++ client does not deliver it.
            with self._acks.lock:
                cursor.tracker.add_cumulative((mark.ledger_id, mark.entry_id))
            self._acks.schedule()


def _entries(after: Position, last: Position) -> list[Entry]:
    """Give the entries of a range, as far as its own bounds tell them."""
    first = after.entry_id + 1 if after.ledger_id == last.ledger_id else 0
    return [(last.ledger_id, entry) for entry in range(first, last.entry_id + 1)]
