"""What a consumer acknowledges on one topic, or one partition: what waits, what left, what is to be confirmed."""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.ids.topic_name import TopicName

from .in_flight import SentAcks
from .leaving import Leaving, whole_without
from .native_sender import NativeSender
from .remembered import Remembered
from .tracker import AckTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .leaving import Entry, Singles
    from .unacked import Unacked

__all__ = ["AcksByTopic", "TopicAcks", "logging_refusals"]

_log = logging.getLogger("pulsar_ext.acks")

_MAX_UNCONFIRMED = 20_000
"""How many entries a confirmed flush surely checks: what left before these has long arrived."""
_CUT_SECONDS = 1.0
"""A connection that is lost this soon behind what was sent again may have been lost by that."""
_DOUBT_SECONDS = 2.0
"""How long it is not sent again then, unless it was looked whether it has arrived."""


class TopicAcks:
    """One topic, or one partition, that a consumer acknowledges on.

    Args:
        topic: its full name.
        partition: its index, -1 if none.
        named: whether the C++ consumer needs the topic with each id.
        tracker: what has not left.
        unacked: what was received and has not left, of all topics; None if nobody waits for it.
    """

    def __init__(
        self, topic: str, partition: int, *, named: bool, tracker: AckTracker, unacked: Unacked[Any] | None = None
    ) -> None:
        self.topic, self.tracker, self._unacked = topic, tracker, unacked
        self.has_cursor = TopicName.parse(topic).is_persistent
        """Whether the broker keeps what was acknowledged, so that it can be asked; not on a non-persistent topic."""
        self.sender = NativeSender(topic if named else None, partition)
        self.sent = SentAcks()
        self.remembered: Remembered | None = None
        """What may be delivered again though it was acknowledged; None while the connection is surely the same."""
        self.again: tuple[float, float] | None = None
        """What left since and before when has to be sent again; None if nothing has."""
        self.live: dict[Entry, Any] = {}
        self.firsts: dict[Entry, Entry] = {}
        self._unconfirmed: dict[Entry, tuple[int, int] | None] = {}
        self._passed: deque[Singles] = deque()
        self._passed_count = 0
        self.reached: Entry | None = None
        """The highest position that left."""
        self.expected: Entry | None = None
        """The highest position that the cursor has to show when it is looked at behind a reconnection."""
        self.sessions: frozenset[tuple[str, str]] | None = None
        """The subscription's consumers as the broker listed them, by address and beginning; None if not looked at."""
        self.is_held = False
        """Whether nothing leaves until the cursor was looked at, which an operator may have moved back."""
        self.held_since = 0.0
        self.doubted_until = 0.0
        """Until when nothing is sent again: a broker drops a connection for what it got, where a topic has ended."""
        self.sent_again = 0.0
        self.sessions_due = 0.0
        """From when on to look who the broker lists."""
        self.looked = 0.0
        self.behind = 0

    def note_passed(self, singles: Singles, now: float) -> None:
        """Keep what was given to the C++ consumer, message by message, for a while."""
        self.sent.add(singles, now, {})
        if self.remembered is not None:
            self.remembered.add(singles)
        if self._unacked is not None:
            self._unacked.acknowledge(self.topic, Leaving(whole=tuple(singles.entries)))
        if not self.has_cursor:
            return
        self._passed.append(singles)
        self._passed_count += len(singles)
        while self._passed_count - len(self._passed[0]) > _MAX_UNCONFIRMED:
            self._passed_count -= len(self._passed.popleft())

    def unconfirmed(self) -> dict[Entry, tuple[int, int] | None]:
        """Give what left and was not confirmed yet: of a batch the number of its messages, and the bit set of some."""
        for singles in self._passed:
            self._unconfirmed.update(dict.fromkeys(singles.entries))
        self._forget_passed()
        if (count := len(self._unconfirmed)) > 2 * _MAX_UNCONFIRMED:
            # All at once: taking the first out of a dictionary, one by one, gets slower with each.
            self._unconfirmed = dict(islice(self._unconfirmed.items(), count - _MAX_UNCONFIRMED, None))
        return self._unconfirmed

    def confirmed(self, entry: Entry, part: tuple[int, int] | None) -> None:
        """Note that the broker shows what left; more of the same batch may have left since."""
        if self._unconfirmed.get(entry, ()) == part:
            self._unconfirmed.pop(entry, None)

    def leave(self, inner: Any, now: float, glance: Callable[[], None], *, force: bool) -> bool:
        """Give the C++ consumer what leaves, with `force` flushed out of it; tell whether anything did.

        It is kept for a while. `glance` looks at the connection; it is called again and again where many leave.
        """
        if self.is_held:
            return False
        leaving = self.tracker.leave()
        if leaving:
            with logging_refusals(self, len(leaving)):
                self._hand_over(inner, leaving, now, glance)
            self.tracker.left()
        if force and (leaving or self.sent):
            self.sender.flush(inner)
        return bool(leaving)

    def _hand_over(self, inner: Any, leaving: Leaving, now: float, glance: Callable[[], None]) -> None:
        live = self.live
        self.sent.add(leaving, now, live)
        if self.remembered is not None:
            self.remembered.add(leaving)
        self.sender.send(inner, leaving, live, glance)
        self.live = {}  # all that waits has left
        if self._unacked is not None:
            self._unacked.acknowledge(self.topic, leaving)
        if not self.has_cursor:
            self.firsts.clear()
            return
        unconfirmed = self.unconfirmed()
        if leaving.cumulative is not None:
            self.reached = max(leaving.cumulative, self.reached or leaving.cumulative)
            upto = leaving.cumulative
            for entry in [entry for entry in unconfirmed if entry <= upto]:
                del unconfirmed[entry]
            unconfirmed[upto] = None
            self.firsts = {entry: first for entry, first in self.firsts.items() if entry > upto}
        # No more than are kept: a million would take longer than the connection may go without a look.
        unconfirmed.update(dict.fromkeys(leaving.whole[-_MAX_UNCONFIRMED:]))
        for entry in leaving.whole if self.firsts else ():
            if (first := self.firsts.pop(entry, None)) is not None:
                unconfirmed[first] = None
        for entry, size, bits in leaving.indexes:
            unconfirmed[entry] = (size, bits)

    def wants_sessions(self, now: float) -> bool:
        """Whether it has to be looked at who the broker lists: something waits for that, or it is not known yet."""
        wants = self.is_held or self.is_doubted(now) or (self.reached is not None and self.sessions is None)
        return wants and now >= self.sessions_due

    def hold(self, now: float) -> None:
        """Let nothing leave until the cursor was looked at, where a position left and that can be told from a reset."""
        self.is_held = self.reached is not None and self.sessions is not None
        if self.is_held:
            self.held_since = self.sessions_due = now

    def doubt(self, now: float) -> None:
        """Send nothing again for a while behind a reconnection, if the connection may have been lost by just that."""
        if self.sent and now - self.sent_again < _CUT_SECONDS:
            self.doubted_until, self.sessions_due = now + _DOUBT_SECONDS, now

    def is_doubted(self, now: float) -> bool:
        """Whether nothing is sent again until it was looked whether it has arrived."""
        return now < self.doubted_until

    def looked_at(self, began: float, *, arrived: bool) -> None:
        """Note a look that began at a time, and whether the broker has everything that left until then."""
        self.doubted_until = 0.0
        if arrived:
            self.sent.expire(began)

    def hand_over_again(self, inner: Any, now: float, glance: Callable[[], None]) -> None:
        """Give it once more what may have been lost with a connection, once nothing keeps it from that."""
        if self.again is None or self.is_held or self.is_doubted(now):
            return
        live = self.sent.ids
        again, self.again = self.sent.take(*self.again), None
        if again:
            self.sent_again = now
            self.sent.add(again, now, live, is_repeated=True)
            self.sender.send(inner, again, live, glance)

    def hand_over_missing(self, inner: Any, missing: Leaving, glance: Callable[[], None]) -> None:
        """Give it once more what the broker does not show."""
        self.sender.send(inner, missing, self.sent.ids, glance)

    def remember(self, since: float) -> None:
        """Remember what left since a time, and leaves from now on: messages may be delivered again all the same."""
        before = self.remembered
        if before is None or since < before.since:
            self.remembered = Remembered(since, self.sent.arrived if before is None else before.arrived)
            self.remembered.add(self.sent.since(since))

    def came_again(self, entry: Entry, index: int) -> bool:
        """Whether a message was acknowledged, and is delivered again because that was lost with a connection."""
        remembered = self.remembered
        if remembered is None or remembered.shows_reset(entry):
            return False
        return remembered.has(entry, index) or self.tracker.holds(entry, index)

    def take_back(self, entry: Entry, index: int, size: int, now: float) -> None:
        """Forget an acknowledgement: the message is to be delivered again; the arguments are `SentAcks.take_back`'s."""
        self.tracker.take_back(entry, index, size)
        self.sent.take_back(entry, index, size, now)
        if self.remembered is not None:
            self.remembered.take_back(entry, index, size)
        unconfirmed = self.unconfirmed()
        if entry in unconfirmed:
            size, bits = unconfirmed.pop(entry) or (size, (1 << size) - 1)
            if bits := bits & whole_without(index, size):
                unconfirmed[entry] = size, bits

    def forget_sent(self) -> None:
        """Send nothing again that has left, and drop nothing that is delivered again: a seek moves the cursor."""
        self.sent.take()
        self.remembered = None

    def forget(self) -> None:
        """Forget everything: the cursor was moved elsewhere."""
        self.tracker.clear()
        self.sender.forget()
        self.forget_sent()
        self.live.clear()
        self.firsts.clear()
        self._forget_passed()
        self._unconfirmed.clear()
        self.again = self.reached = self.expected = None
        self.is_held = False

    def _forget_passed(self) -> None:
        self._passed.clear()
        self._passed_count = 0


class AcksByTopic:
    """What a consumer acknowledges, apart for each topic or partition.

    Args:
        topics: what was subscribed to.
        runs: whether runs of entries without a gap leave as one position.
        keeps_indexes: whether the broker keeps acknowledgements inside batches.
    """

    __slots__ = ("_keeps_indexes", "_known", "_runs", "_several", "_topics", "remembers", "unacked")

    def __init__(self, topics: Any, *, runs: bool, keeps_indexes: bool) -> None:
        self._topics = topics
        self._several = not isinstance(topics, str)
        self._runs, self._keeps_indexes = runs, keeps_indexes
        self._known: dict[str | int, TopicAcks] = {}
        self.unacked: Unacked[Any] | None = None
        """What was received and is waited for; it is set before anything is acknowledged."""
        self.remembers = False
        """Whether messages may be delivered again that were acknowledged."""

    def __iter__(self) -> Iterator[TopicAcks]:
        return iter(self._known.values())

    def __len__(self) -> int:
        """How many topics and partitions something was acknowledged on."""
        return len(self._known)

    def of(self, topic: str | None, partition: int) -> TopicAcks:
        """Give those of a topic.

        Args:
            topic: the full name of the topic or the partition; None where there is only one and its partitions.
            partition: its index, -1 if none. An id that was made of numbers has none, nor has one of a producer of this
                partition alone, whatever its topic is.
        """
        known = self.known(topic, partition)
        return self._new(topic, partition) if known is None else known

    def known(self, topic: str | None, partition: int) -> TopicAcks | None:
        """Give those of a topic, as `of()`; None if there are none."""
        if partition < 0 and not self._several and topic is not None:
            partition = TopicName.parse(topic).partition_index
        return self._known.get(topic if self._several and topic is not None else partition)

    def of_message(self, inner: Any, inner_id: Any) -> TopicAcks | None:
        """Give those of a C++ message's topic; None if nothing was acknowledged there."""
        if self._several:
            return self._known.get(inner.topic_name())
        return self._known.get(inner_id.partition()) or self.known(inner.topic_name(), inner_id.partition())

    def _new(self, topic: str | None, partition: int) -> TopicAcks:
        name = TopicName.parse(self._topics if topic is None else topic)
        if partition < 0 and name.is_partition:
            return self.of(topic, name.partition_index)
        if topic is None:
            topic = str(name if partition < 0 or name.is_partition else name.partition(partition))
        runs = self._runs and TopicName.parse(topic).is_persistent  # else there is no cursor to begin one at
        tracker = AckTracker(runs=runs, keeps_indexes=self._keeps_indexes)
        acks = TopicAcks(topic, partition, named=self._several or partition >= 0, tracker=tracker, unacked=self.unacked)
        if self.remembers:
            acks.remember(math.inf)
        self._known[topic if self._several else partition] = acks
        return acks


@contextlib.contextmanager
def logging_refusals(topic: TopicAcks, count: int) -> Iterator[None]:
    """Log acknowledgements that the C++ consumer refuses, as for a message of a topic that is not its own."""
    try:
        yield
    except pulsar.AlreadyClosed:
        raise
    except pulsar.PulsarException as error:
        _log.error("%d acknowledgements on %s were refused: %s", count, topic.topic, error)
