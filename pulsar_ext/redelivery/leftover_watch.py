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
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext.chunks.leftovers import begun_at_a_time, find_leftovers
from pulsar_ext.errors import PulsarExtError
from pulsar_ext.ids.position import Ledgers
from pulsar_ext.ids.topic_name import TopicName

from .consumer_watch import NOT_TO_BE_SEEN, ConsumerWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext.admin import InternalStats, PulsarAdmin
    from pulsar_ext.chunks.leftovers import Leftovers
    from pulsar_ext.ids.position import Position

__all__ = ["LeftoverWatch"]

_log = logging.getLogger("pulsar_ext")

_SOON_SECONDS: Final = 5.0
_SOON_LOOKS: Final = 3
"""So many looks come soon behind the first chunked message, or behind the opening."""
_LATER_SECONDS: Final = 15.0
_ASK_AGAIN_SECONDS: Final = 15.0
"""How long a message that was dropped may take, once it is redelivered, until it is acknowledged."""


@dataclass
class _Known:
    """What was seen of one topic, as long as the cursor stands still."""

    mark: Position
    endless: frozenset[Position] = frozenset()
    acknowledged: set[Position] = field(default_factory=set)
    dropped: dict[Position, float] = field(default_factory=dict)
    """The messages that may have been dropped, by their first chunks, and when each was asked for."""
    counted: bool = False
    """Whether it was looked how many messages are begun at a time."""


class LeftoverWatch(ConsumerWatch):
    """Looks after the chunks that nobody can receive, of one consumer; the arguments are those of `ConsumerWatch`."""

    _PATIENCE_SECONDS = 3.0
    __slots__ = ("_known", "most_pending", "redeliver")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.most_pending = 0
        """How many chunked messages the C++ consumer has begun at most; 0 for any number."""
        self.redeliver: Callable[[str, list[Position]], None] = lambda *_: None
        """Has entries of a topic redelivered."""
        self._known: dict[str, _Known] = {}
        """Of the topics whose cursor was not at the end."""

    def begin(self) -> None:
        """Look soon: the consumer was opened, or the first chunked message was acknowledged."""
        self._looks = 0
        self._look_in(_SOON_SECONDS)

    def tick(self, now: float) -> float | None:
        """Look at the cursors; the scheduler's call.

        Returns:
            After how many seconds to look again; None if there are no chunked messages, for all that is known.
        """
        if self._closed or not self._acks.collector.may_have_chunks:
            return None
        is_done = False
        with contextlib.suppress(PulsarExtError, pulsar.PulsarException):  # no admin API, or the topic is moving
            for topic in self._entry_topics():
                with contextlib.suppress(*NOT_TO_BE_SEEN):
                    if self._look(topic, now):
                        self._looks = 0  # there may be more behind the first hundred entries
            is_done = not self._known
        self._looks += 1
        if self._looks < _SOON_LOOKS and not is_done:
            return _SOON_SECONDS
        return _LATER_SECONDS if self._acks.collector.has_chunks else None

    def finish(self, topic: str) -> bool:
        """Acknowledge the chunks on a topic that nobody can receive for sure; tell whether there were any.

        Raises:
            AdminError: the admin API refused or did not answer.
        """
        era, admin = self._era(topic), self._admin()
        found = find_leftovers(admin, topic, self._subscription, admin.internal_stats(topic))
        return self._acknowledge(topic, found, found.useless, era)

    def _look(self, topic: str, now: float) -> bool:
        """Look at one cursor, and behind it if it has not moved since; tell whether anything was done."""
        # Many consumers of a client have nothing to look at, and one answer is enough for all of a topic.
        ask = partial(_at_the_end, self._admin, topic)
        if self._subscription in self._context.recent.ask(("at the end", topic), ask):
            self._known.pop(topic, None)
            return False
        era, admin = self._era(topic), self._admin()
        stats = admin.internal_stats(topic)
        cursor = stats.cursors.get(self._subscription)
        if cursor is None:
            return False
        mark, known = cursor.mark_delete_position, self._known.get(topic)
        if known is None or known.mark != mark:
            self._known[topic] = _Known(mark, dropped={} if known is None else known.dropped)
            return False
        found = find_leftovers(admin, topic, self._subscription, stats)
        endless, known.endless = known.endless, frozenset(found.endless)
        asks = self._ask_for_dropped(topic, known, stats, found, now)
        return self._acknowledge(topic, found, (*found.useless, *(endless & known.endless)), era) or asks

    def _ask_for_dropped(self, topic: str, known: _Known, stats: InternalStats, found: Leftovers, now: float) -> bool:
        """Have messages redelivered that the C++ consumer dropped for others; tell whether there were any.

        It has begun no more than some at a time, and drops the oldest. Those that are not acknowledged are asked for
        again, so many at a time that none is dropped.
        """
        if not (self.most_pending and found.whole):
            known.dropped = {}
            return False
        if not known.counted:
            known.counted = True
            if begun_at_a_time(self._admin(), topic, stats, known.mark) > self.most_pending:
                known.dropped = {chunks[0]: -math.inf for chunks in found.whole} | known.dropped
        known.dropped = {chunks[0]: known.dropped[chunks[0]] for chunks in found.whole if chunks[0] in known.dropped}
        late = [one for one in found.whole if now >= known.dropped.get(one[0], math.inf) + _ASK_AGAIN_SECONDS]
        wanted = late[: self.most_pending]
        if wanted:
            known.dropped |= {chunks[0]: now for chunks in wanted}
            _log.warning(
                "More chunked messages on %s were begun at a time than max_pending_chunked_message=%d, and some were "
                "dropped: %d that are not acknowledged are redelivered. A higher number keeps them from being dropped.",
                topic,
                self.most_pending,
                len(wanted),
            )
            self.redeliver(topic, [position for chunks in wanted for position in chunks])
        return bool(wanted)

    def _era(self, topic: str) -> int:
        """Give the era before a look: a seek since then would have what is found delivered again."""
        return self._acks.era_of(topic, TopicName.parse(topic).partition_index)

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
        self._context.tell("closed hole", topic, self._subscription, len(fresh))
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

    def _entry_topics(self) -> list[str]:
        """Give the topics, and of topics with partitions each of these; a pattern's are known by their partitions."""
        if not isinstance(self._topics, str | list):
            return self._names()
        partitions_of, recent = self._context.opener.get_topic_partitions, self._context.recent
        # Asked each time: a topic may have more by now.
        return [
            part for name in self._names() for part in recent.ask(("partitions", name), partial(partitions_of, name))
        ]


def _at_the_end(admin: Callable[[], PulsarAdmin], topic: str) -> frozenset[str]:
    """Give the subscriptions of a topic behind whose cursors there is nothing."""
    stats = admin().internal_stats(topic)
    ledgers = Ledgers(stats.ledger_sizes())
    return frozenset(
        name for name, cursor in stats.cursors.items() if ledgers.next(cursor.mark_delete_position) is None
    )
