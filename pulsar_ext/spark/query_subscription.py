"""A query's durable subscription: created if missing, acknowledged as batches commit, never received from."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext.errors import AdminConflict, AdminError, InvalidUse
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName

from .connection import admin_of, client_of
from .offsets import BEGINNING, Offset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_ext.admin import InternalStats

    from .options import Settings

__all__ = ["QuerySubscription"]

_BUSY_SECONDS = 60.0
"""How long to wait for the driver of a former run, which may have been killed, to be disconnected."""
_RETRY_SECONDS = 0.5
_FLUSH_SECONDS = 3.0
_POLL_SECONDS = 0.03

_log = logging.getLogger("pulsar_ext.spark")


class QuerySubscription:
    """The subscription, with an Exclusive consumer on each topic partition that never receives anything.

    The consumers keep other queries from using the same subscription, and the broker from deleting it as inactive.

    Args:
        name: of the subscription.
        settings: the options.
    """

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self._settings = settings
        self._consumers: dict[str, Any] = {}
        self._acknowledged: dict[str, Position] = {}

    def ensure(self, begin: Mapping[str, Offset], stats: Mapping[str, InternalStats]) -> None:
        """Create the subscription on topics that lack it, and connect.

        Args:
            begin: how far each topic has been read.
            stats: of each topic.

        Raises:
            InvalidUse: another query uses the subscription.
        """
        for topic, offset in begin.items():
            if self.name not in stats[topic].cursors:
                self._create(topic, offset, stats[topic])
                self._acknowledged.pop(topic, None)
            else:
                self._resend(topic, stats[topic].cursors[self.name].mark_delete_position)
            if topic not in self._consumers:
                self._consumers[topic] = self._connect(topic)

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """Acknowledge everything up to these offsets; offsets before what is acknowledged already change nothing."""
        for topic, offset in offsets.items():
            position = offset.position
            if topic not in self._consumers or position.entry_id < 0 or position.ledger_id < 0:
                continue
            known = self._acknowledged.get(topic)
            if known is None or known < position:
                self._send(topic, position)

    def flush(self) -> None:
        """Wait until the broker's cursors show what was acknowledged, for at most 3 seconds."""
        admin = admin_of(self._settings)
        deadline = time.monotonic() + _FLUSH_SECONDS
        for topic, position in self._acknowledged.items():
            while time.monotonic() < deadline:
                try:
                    cursor = admin.internal_stats(topic).cursors.get(self.name)
                except AdminError:
                    return
                if cursor is None or cursor.mark_delete_position >= position:
                    break
                time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Send pending acknowledgements and disconnect."""
        for consumer in self._consumers.values():
            with contextlib.suppress(pulsar.PulsarException):
                consumer.close()
        self._consumers.clear()

    def _send(self, topic: str, position: Position) -> None:
        inner = InnerMessageId(TopicName.parse(topic).partition_index, position.ledger_id, position.entry_id, -1)
        try:
            self._consumers[topic].inner.acknowledge_cumulative(inner)
        except pulsar.PulsarException as error:
            # The acknowledgement of the next batch includes this one; how far the query is, the checkpoint decides.
            _log.warning("The subscription %s could not acknowledge %s on %s: %s", self.name, position, topic, error)
            with contextlib.suppress(pulsar.PulsarException):
                self._consumers.pop(topic).close()
            return
        self._acknowledged[topic] = position

    def _resend(self, topic: str, mark_delete: Position) -> None:
        """Send an acknowledgement again if it did not arrive, for instance because the broker was down."""
        sent = self._acknowledged.get(topic)
        if sent is not None and mark_delete < sent and topic in self._consumers:
            self._send(topic, sent)

    def _create(self, topic: str, offset: Offset, stats: InternalStats) -> None:
        if topic in self._consumers:
            _log.warning("The subscription %s on %s was deleted; creating it again", self.name, topic)
            with contextlib.suppress(pulsar.PulsarException):
                self._consumers.pop(topic).close()
        admin = admin_of(self._settings)
        ledgers = Ledgers(stats.ledger_sizes())
        try:
            if offset == BEGINNING:
                admin.create_subscription(topic, self.name, "earliest")
                return
            at = offset.position
            following = ledgers.next(at) or Position(at.ledger_id, at.entry_id + 1)
            admin.create_subscription(topic, self.name, following)
        except AdminConflict:
            return

    def _connect(self, topic: str) -> Any:
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                # Without a queue, the broker sends no messages.
                return client_of(self._settings).subscribe(
                    topic,
                    self.name,
                    consumer_type=pulsar.ConsumerType.Exclusive,
                    receiver_queue_size=0,
                    initial_position=pulsar.InitialPosition.Earliest,
                )
            except pulsar.ConsumerBusy:
                if time.monotonic() > deadline:
                    raise InvalidUse(
                        f"The subscription {self.name!r} on {topic} is in use, by another query or by a run of this "
                        "one that has not ended. Each query needs a subscription of its own: option "
                        "predefinedSubscription."
                    ) from None
                time.sleep(_RETRY_SECONDS)
