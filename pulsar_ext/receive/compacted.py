"""What compaction has removed from batches: the C++ client delivers an empty message in the place of each.

The broker keeps such a batch, and marks in it what was removed. Java's client skips what is marked. The C++ client does
not show the mark, so the position up to which compaction has gone decides, which the admin API knows.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext.errors import AdminError
from pulsar_ext.ids.position import Position

from .order import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import PulsarAdmin

    from .order import Transition

__all__ = ["CompactionFilter"]

_ASK_AGAIN_SECONDS: Final = 60.0
"""How long an admin API that did not answer is not asked again."""

_partition_key = InnerMessage.partition_key
_log = logging.getLogger("pulsar_ext")


class CompactionFilter(Part):
    """Tells the messages of a compacted topic from what was removed of its batches.

    A message of a batch without key, value, properties and event time was removed if compaction has gone over its
    entry: it removes what has no key as well. Without an admin API that answers, each such message counts as removed.

    Args:
        admin_api: gives the admin API, which is asked when the first such message beyond the known position comes.
    """

    def __init__(self, admin_api: Callable[[], PulsarAdmin]) -> None:
        self._admin_api = admin_api
        self._horizons: dict[str, Position] = {}
        """Up to where compaction has gone, by topic or partition."""
        self._silent_until = 0.0
        self._has_warned = False

    def __call__(self, inner: Any) -> bool:
        """Return whether a C++ message is left."""
        try:
            if _partition_key(inner):
                return True
        except UnicodeDecodeError:  # a key of any bytes
            return True
        inner_id = inner.message_id()
        if not (inner_id.batch_index() >= 0 and _is_empty(inner)):
            return True
        topic, position = inner.topic_name(), Position(inner_id.ledger_id(), inner_id.entry_id())
        horizon = self._horizons.get(topic)
        if horizon is None or position > horizon:
            horizon = self._ask(topic)
            if horizon is None:
                return False
            self._horizons[topic] = horizon
        return position > horizon

    def after(self, _: Transition, /) -> None:
        """Know no position any more: it may be of another cluster."""
        self._horizons = {}

    def _ask(self, topic: str) -> Position | None:
        """Return up to where compaction has gone; None if the admin API does not answer."""
        if time.monotonic() < self._silent_until:
            return None
        try:
            return self._admin_api().internal_stats(topic).compaction_horizon
        except AdminError as error:
            self._silent_until = time.monotonic() + _ASK_AGAIN_SECONDS
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "How far %s is compacted is not known: messages of batches without key, value and properties are "
                    "skipped, as removed by compaction. Give Client(admin=…) or PULSAR_ADMIN_URL: %s",
                    topic,
                    error,
                )
            return None


def _is_empty(inner: Any) -> bool:
    try:
        has_nothing = not (inner.ordering_key() or inner.properties() or inner.event_timestamp())
    except UnicodeDecodeError:
        return False
    return has_nothing and not inner.has_null_value() and not inner.length()
