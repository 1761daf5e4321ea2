"""Acknowledging what no consumer can receive: the remains of chunked messages that were cut off, or written twice.

Java's consumers put a message together whose chunks are partly there twice, and acknowledge what is too much; those of
the C++ client drop all of it, and it stays in the backlog. Here the cursor is looked at now and then where chunked
messages come. Where it stands still, the entries behind it are looked at: chunks that nobody can receive are
acknowledged, and where they kept a whole message from being received the consumer is opened anew, and gets it. That
needs an admin API.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext.chunks.leftovers import find_leftovers
from pulsar_ext.errors import PulsarExtError
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.receive.order import Part, Transition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ack.grouping import Acknowledger
    from pulsar_ext.chunks.leftovers import Leftovers
    from pulsar_ext.ids.position import Position
    from pulsar_ext.receive.order import ReceiveOrder

__all__ = ["LeftoverWatch"]

_log = logging.getLogger("pulsar_ext")

_SOON_SECONDS: Final = 5.0
_SOON_LOOKS: Final = 3
"""So many looks come soon behind the first chunked message, or behind the opening."""
_LATER_SECONDS: Final = 60.0
_REQUEST_SECONDS: Final = 3.0


@dataclass
class _Known:
    """What was seen of one topic, as long as the cursor stands still."""

    mark: Position
    endless: frozenset[Position] = frozenset()
    acknowledged: set[Position] = field(default_factory=set)


class LeftoverWatch(Part):
    """Looks after the chunks that nobody can receive, of one consumer.

    Args:
        context: of the consumer's client.
        order: of the consumer's messages.
        topics: what was subscribed to.
        subscription: its name.
        acks: the consumer's acknowledgements.
    """

    def __init__(
        self, context: ClientContext, order: ReceiveOrder, topics: Any, subscription: str, acks: Acknowledger
    ) -> None:
        self._context, self._order = context, order
        self._topics, self._subscription, self._acks = topics, subscription, acks
        self._names: list[str] | None = None
        self._known: dict[str, _Known] = {}
        self._looks = 0
        self._closed = False

    def begin(self) -> None:
        """Look soon: the consumer was opened, or the first chunked message was acknowledged."""
        self._looks = 0
        self._context.inquiries.watch(self, _SOON_SECONDS)

    def before(self, transition: Transition, /) -> None:
        """Look no more behind a close."""
        if transition in (Transition.CLOSE, Transition.UNSUBSCRIPTION):
            self.close()

    def abandon(self, transition: Transition, /) -> None:
        """Go on: it is still open."""
        if transition is Transition.UNSUBSCRIPTION:
            self._closed = False
            self.begin()

    def close(self) -> None:
        """Look no more."""
        self._closed = True

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # by the cursors alone
        """Look at the cursors; the scheduler's call.

        Returns:
            After how many seconds to look again; None if there are no chunked messages, for all that is known.
        """
        if self._closed or not self._acks.collector.may_have_chunks:
            return None
        with contextlib.suppress(PulsarExtError, pulsar.PulsarException):  # no admin API, or the topic is moving
            for topic in self._persistent_topics():
                if self._look(topic):
                    self._looks = 0  # there may be more behind the first hundred entries
        self._looks += 1
        if self._looks < _SOON_LOOKS:
            return _SOON_SECONDS
        return _LATER_SECONDS if self._acks.collector.has_chunks else None

    def finish(self, topic: str) -> bool:
        """Acknowledge the chunks on a topic that nobody can receive for sure; tell whether there were any.

        Raises:
            AdminError: the admin API refused or did not answer.
        """
        era, found = self._find(topic)
        return self._acknowledge(topic, found, found.useless, era)

    def _look(self, topic: str) -> bool:
        """Look at one cursor, and behind it if it has not moved since; tell whether anything was acknowledged."""
        admin = self._context.admin_api().within(_REQUEST_SECONDS)
        cursor = admin.internal_stats(topic).cursors.get(self._subscription)
        if cursor is None:
            return False
        mark, known = cursor.mark_delete_position, self._known.get(topic)
        if known is None or known.mark != mark:
            self._known[topic] = _Known(mark)
            return False
        era, found = self._find(topic)
        endless, known.endless = known.endless, frozenset(found.endless)
        return self._acknowledge(topic, found, (*found.useless, *(endless & known.endless)), era)

    def _find(self, topic: str) -> tuple[int, Leftovers]:
        """Find what no consumer can receive; with the era, as a seek would have it delivered again."""
        era = self._acks.era_of(topic, TopicName.parse(topic).partition_index)
        admin = self._context.admin_api().within(_REQUEST_SECONDS)
        return era, find_leftovers(admin, topic, self._subscription)

    def _acknowledge(self, topic: str, found: Leftovers, positions: Iterable[Position], era: int) -> bool:
        """Acknowledge chunks, once, and have a message received that they hid; tell whether there were any."""
        known = self._known.get(topic)
        fresh = sorted(one for one in positions if known is None or one not in known.acknowledged)
        if not fresh:
            return False
        partition = TopicName.parse(topic).partition_index
        self._acks.add_entries(topic, partition, [(one.ledger_id, one.entry_id) for one in fresh], era)
        self._acks.flush()
        if known is not None:
            known.acknowledged.update(fresh)
        _log.warning(
            "%d chunks on %s, from %s to %s, are of messages that were cut off or written twice. No consumer can "
            "receive them: they were acknowledged on %s.",
            len(fresh),
            topic,
            fresh[0],
            fresh[-1],
            self._subscription,
        )
        if found.hides_message:
            self._order.replace()
        return True

    def _persistent_topics(self) -> list[str]:
        """Give the topics and partitions; of a pattern those of which anything was acknowledged."""
        if not isinstance(self._topics, str | list):
            return [one.topic for one in self._acks.collector.by_topic if TopicName.parse(one.topic).is_persistent]
        if self._names is None:
            topics = [self._topics] if isinstance(self._topics, str) else self._topics
            partitions_of = self._context.opener.get_topic_partitions
            self._names = [
                name for topic in topics if TopicName.parse(topic).is_persistent for name in partitions_of(topic)
            ]
        return self._names
