"""Messages that compaction removed from batches: the C++ client delivers an empty message for each.

The broker keeps such a batch, and marks the removed messages in it. Java's client skips them. The C++ client does not
expose the mark, so the compaction horizon from the admin API decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.errors import AdminError
from pulsar_ext.ids.position import Position

from .order import Part, Transition, TransitionSubscriber

_ASK_AGAIN_SECONDS: Final = 60.0
"""Seconds after which an admin API that did not answer is queried again."""

_partition_key = InnerMessage.partition_key
_log = logging.getLogger("pulsar_ext")


class CompactionFilter(TransitionSubscriber):
    """Recognises the messages that compaction removed from batches of a topic.

    A message of a batch without key, value, properties and event time was removed if its entry is below the compaction
    horizon, as compaction also removes messages without a key. The admin API is queried at the first such message
    beyond the known horizon; without one, every such message counts as removed.
    """

    part = Part.COMPACTION

    def __init__(self, admin_api: Callable[[], PulsarAdmin]) -> None:
        self._admin_api = admin_api
        self._horizons: dict[str, Position] = {}
        """Compaction horizons by topic or partition."""
        self._silent_until = 0.0
        self._has_warned = False

    def __call__(self, inner: InnerMessage) -> bool:
        """Return whether a C++ message exists, that is, was not removed."""
        try:
            if _partition_key(inner):
                return True
        except UnicodeDecodeError:  # a key of arbitrary bytes
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

    def on_after(self, _: Transition, /) -> None:
        """Drop the known horizons, which may belong to another cluster."""
        self._horizons = {}

    def _ask(self, topic: str) -> Position | None:
        """Return the compaction horizon; None if the admin API does not answer."""
        if time.monotonic() < self._silent_until:
            return None
        try:
            return self._admin_api().internal_stats(topic).compaction_horizon
        except AdminError as error:
            self._silent_until = time.monotonic() + _ASK_AGAIN_SECONDS
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "The compaction horizon of %s is unknown: messages of batches without key, value and properties "
                    "are skipped as removed by compaction. Set Client(admin=…) or PULSAR_ADMIN_URL: %s",
                    topic,
                    error,
                )
            return None


def _is_empty(inner: InnerMessage) -> bool:
    try:
        has_nothing = not (inner.ordering_key() or inner.properties() or inner.event_timestamp())
    except UnicodeDecodeError:
        return False
    return has_nothing and not inner.has_null_value() and not inner.length()
