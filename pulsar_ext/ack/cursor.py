"""Whether acknowledgements have arrived: the broker's cursor and its answers, and sending again what may be lost.

A connection may be dead for a minute before the C++ client notices, and all that it sent meanwhile is lost. A broker
serves a connection in order: once it has answered a request, everything that was sent before that has arrived.

The C++ client calls itself connected before the broker knows its consumer again, which takes as long as the topic needs
to be loaded. Acknowledgements that come before that are dropped without a word. A request is refused then: so one that
is answered was sent when the broker knew the consumer.

The broker is asked as soon as a connection may be another one. When it answers, what was sent before the question is
sent once more, and what is sent from then on arrives. A consumer that cannot be asked, of several topics or partitions,
sends again at fixed times instead. The cursor shows where runs begin, and after a reconnection whether it went back.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext.errors import PulsarExtError
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.receive.order import OutdatedError, Transition, refuse_unless

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from pulsar_ext._native.answer import Answer
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import InternalStats
    from pulsar_ext.receive.order import ReceiveOrder

    from .delivery import ConnectionNews, ConnectionWatch, SentAcks
    from .leaving import Entry
    from .topics import AcksByTopic, TopicAcks


_log = logging.getLogger("pulsar_ext.acks")

_LOOK_SECONDS = 2.0
_LOOK_DEADLINE_SECONDS = 1.0
"""The thread waits for it, and has other consumers to look after."""
_LOOK_AGAIN_SECONDS = 30.0
_SETTLE_SECONDS = 0.6
_RETURN_SECONDS = 2.0
"""How long the broker may take until it lists a consumer again that it has closed."""
_RETURN_LOOK_SECONDS = 0.2
_LOOKS = 3
"""How often a cursor is seen behind what was acknowledged before that is believed."""


class CursorMonitor:
    """Looks at the cursors of one consumer, on the thread of inquiries: acknowledgements go on meanwhile.

    Args:
        context: asks the admin API.
        order: of the consumer's messages.
        subscription: whose cursors.
        topics: what is acknowledged.
        lock: guards it.
        forget: forgets what was acknowledged on a topic.
    """

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        subscription: str,
        topics: AcksByTopic,
        lock: AbstractContextManager[Any],
        forget: Callable[[TopicAcks], None],
    ) -> None:
        self._context, self._order, self._subscription = context, order, subscription
        self._topics, self._lock, self._forget = topics, lock, forget
        self._settles: float | None = None
        self._renewals = 0
        self._looks = self._closed = False

    def renew(self) -> None:
        """Forget who the broker listed: another C++ consumer takes the place of the old one. The lock is held."""
        self._renewals += 1
        for topic in self._topics:
            topic.sessions, topic.is_held = None, False

    def look_after(self, sent: float) -> None:
        """Look when what is sent again at a time should show, in seconds of `time.monotonic()`; the lock is held."""
        self._settles = sent + _SETTLE_SECONDS
        for topic in self._topics:
            topic.expected = topic.reached  # what leaves from now on may be on its way whenever somebody looks

    def look_if_needed(self, now: float) -> None:
        """Have the broker's cursors looked at where that is needed; the lock is held."""
        if not self._looks and (
            self._is_settled(now) or any(_wants_base(topic, now) or topic.wants_sessions(now) for topic in self._topics)
        ):
            self._looks = True
            self._context.inquiries.watch(self)

    def tick(self, now: float) -> None:
        """Look at the broker's cursors: to begin runs, and after a reconnection; the scheduler's call."""
        try:
            self._look_at_sessions(now)
            with self._lock:
                settled = self._is_settled(now)
                if settled:
                    self._settles = None
                topics = [
                    (topic, behind)
                    for topic in self._topics
                    if (behind := settled and topic.expected is not None) or _wants_base(topic, now)
                ]
            for topic, behind in topics:
                if self._closed or not self._look(topic, now, behind=behind):
                    break
        finally:
            self._looks = False

    def close(self) -> None:
        """Look no more."""
        self._closed = True

    def _look(self, topic: TopicAcks, now: float, *, behind: bool) -> bool:
        """Look at one cursor, and follow it if it was moved back before what was acknowledged.

        Args:
            topic: whose.
            now: the time.
            behind: whether it should show by now what was sent again.

        Returns:
            Whether the admin API answered.
        """
        topic.looked, era = now, topic.tracker.era
        try:
            stats = self._context.admin_api().within(_LOOK_DEADLINE_SECONDS).internal_stats(topic.topic)
        except PulsarExtError:  # no admin API answers: everything still leaves, one by one
            topic.looked = now + _LOOK_AGAIN_SECONDS
            if behind:
                self._settles = now + _LOOK_SECONDS
            return False
        topic.behind = topic.behind + 1 if self._learn(topic, era, stats, behind=behind) else 0
        if topic.behind >= _LOOKS:
            topic.behind = 0
            self._follow(topic, era, stats.cursors[self._subscription].mark_delete_position)
        elif topic.behind:
            self._settles = time.monotonic() + _SETTLE_SECONDS  # what was sent again may be on its way
        return True

    def _look_at_sessions(self, now: float) -> None:
        """Look whether the broker closed consumers on a connection that it kept, and follow cursors that went back.

        It does that as an operator moves the cursor, and as the topic moves to another broker. What had left before has
        arrived then, and a cursor before that was moved back. A connection that was lost may have lost it: it is sent
        again, unless that is in doubt and the subscription has no backlog. So it is where no admin API answers.
        """
        with self._lock:
            topics = [topic for topic in self._topics if topic.wants_sessions(now)]
        answers = True
        for topic in topics:
            before, era, renewals, mark = topic.sessions, topic.tracker.era, self._renewals, None
            sessions: frozenset[tuple[str, str]] | None = None
            began, doubted, arrived = time.monotonic(), topic.is_doubted(now), False
            try:
                if answers:
                    admin = self._context.admin_api().within(_LOOK_DEADLINE_SECONDS)
                    stats = admin.stats(topic.topic, precise_backlog=doubted)
                    known = stats.subscriptions.get(self._subscription)
                    sessions = frozenset() if known is None else known.sessions
                    arrived = doubted and known is not None and not known.backlog_entries
                    if before is not None and is_closed_on_its_connection(before, sessions):
                        mark = self._mark_before(topic.reached, admin.internal_stats(topic.topic))
            except PulsarExtError:
                answers, sessions = False, None
            with self._lock:
                if renewals != self._renewals:
                    continue
                _take_sessions(topic, sessions, now, goes_back=mark is not None)
                if sessions is not None:
                    topic.looked_at(began, arrived=arrived)
            if mark is not None:
                self._follow(topic, era, mark)

    def _mark_before(self, position: Entry | None, stats: InternalStats) -> Position | None:
        """Give where the cursor is if that is before a position that was acknowledged."""
        info = stats.cursors.get(self._subscription)
        if info is None or position is None:
            return None
        mark = info.mark_delete_position
        return mark if Ledgers(stats.ledger_sizes()).between(mark, Position(*position)) > 0 else None

    def _learn(self, topic: TopicAcks, era: int, stats: InternalStats, *, behind: bool) -> bool:
        """Tell the tracker where the cursor is; True if it is before what it should show."""
        info = stats.cursors.get(self._subscription)
        if info is None:
            return False
        mark = info.mark_delete_position
        ledgers = Ledgers(stats.ledger_sizes())
        with self._lock:
            if topic.tracker.era != era:  # a seek came between: that was another cursor
                return False
            if behind and self._mark_before(topic.expected, stats) is not None:
                return True
            following = ledgers.next(mark)
            topic.tracker.looked(
                (mark.ledger_id, mark.entry_id),
                None if following is None else (following.ledger_id, following.entry_id),
                [
                    (ledger_id, entry)
                    for one in info.individually_deleted
                    for ledger_id, entry in _entries(one.after, one.last)
                ],
            )
        return False

    def _follow(self, topic: TopicAcks, era: int, mark: Position) -> None:
        """Take up again where the broker's cursor is, which was moved back.

        The broker lost a position when it was killed, or an operator moved the cursor back. The C++ client drops what
        is redelivered from there, as acknowledged earlier; another C++ consumer does not.
        """
        with (
            contextlib.suppress(pulsar.PulsarException, OutdatedError),
            self._order.passing(Transition.CURSOR_RESET, lambda: refuse_unless(lambda: topic.tracker.era == era)),
        ):
            _log.warning(
                "The cursor of %s on %s went back to %s, before what was acknowledged: its messages are delivered "
                "again.",
                self._subscription,
                topic.topic,
                mark,
            )
            self._forget(topic)
        topic.is_held = False

    def _is_settled(self, now: float) -> bool:
        return self._settles is not None and now >= self._settles


def is_closed_on_its_connection(before: frozenset[tuple[str, str]], after: frozenset[tuple[str, str]]) -> bool:
    """Whether a consumer is another one on the same connection.

    Args:
        before: the consumers of a subscription, by address and beginning.
        after: those of a later time.
    """
    return not before <= after and {address for address, _ in before} <= {address for address, _ in after}


def _take_sessions(
    topic: TopicAcks, sessions: frozenset[tuple[str, str]] | None, now: float, *, goes_back: bool
) -> None:
    """Keep who is listed, and let leave what is held, unless a consumer is missing that may be about to come back."""
    if sessions is None:  # it goes on as behind a lost connection; whom to compare with stays known
        topic.is_held, topic.sessions_due = False, now + _LOOK_AGAIN_SECONDS
        return
    misses = len(sessions) < max(1, len(topic.sessions or ()))
    if misses:
        topic.sessions_due = now + (_RETURN_LOOK_SECONDS if topic.is_held else _LOOK_SECONDS)
    if not misses or goes_back or now > topic.held_since + _RETURN_SECONDS:
        topic.sessions, topic.is_held = sessions or topic.sessions, goes_back


def _wants_base(topic: TopicAcks, now: float) -> bool:
    return topic.tracker.wants_base and now - topic.looked > _LOOK_SECONDS


def _entries(after: Position, last: Position) -> list[Entry]:
    """Give the entries of a range, as far as its own bounds tell them."""
    first = after.entry_id + 1 if after.ledger_id == last.ledger_id else 0
    return [(last.ledger_id, entry) for entry in range(first, last.entry_id + 1)]


_ASK_SECONDS: Final = 1.0
_ASK_BUSY_SECONDS: Final = 0.25
"""The same where many have not surely arrived: all of them leave again if the connection may have been lost."""
_MANY: Final = 1_000
_ANSWER_SECONDS: Final = 0.5
"""How long an answer is waited for until it is looked for again."""
_GROUPED_SECONDS: Final = 0.5
"""How long the C++ client may keep an acknowledgement before it sends it: it sends them every 100 ms."""
_NOTICED_SECONDS: Final = 65.0
"""By then the C++ client has noticed a dead connection: it looks every 30 seconds whether an answer came to a ping."""
_REFUSED_SECONDS: Final = (0.1, 0.2, 0.4, 0.8)
"""After how long the broker is asked again that does not know the consumer yet; the C++ client logs each time."""
_UNSUPPORTED: Final = (pulsar.Result.OperationNotSupported, pulsar.Result.UnsupportedVersionError)


class ArrivalProof:
    """Asks the broker of one consumer. Times are `time.monotonic()`, in seconds.

    Args:
        begin: begins an asynchronous call of the C++ client, and gives what takes its answer.
        can_ask: whether the consumer can be asked, for all that is known.
    """

    def __init__(self, begin: Callable[[Callable[[Answer], object]], Answer], *, can_ask: bool = True) -> None:
        self._begin = begin
        self._answer: Answer | None = None
        self._asked = self._proven = self._earliest = -math.inf
        self._refused = 0
        self.can_ask = can_ask
        """Whether the consumer can be asked, for all that is known: one of several topics or partitions cannot, and one
        of a topic that is not persistent is refused."""
        self.known: float | None = None
        """When a request was sent that was answered since the last doubt: the broker has known the consumer since."""

    def doubt(self, earliest: float) -> None:
        """Conclude nothing from a request that is on its way: it may be answered on another connection.

        Args:
            earliest: when the broker may know the consumer again.
        """
        self._answer = self.known = None
        self._refused, self._earliest = 0, earliest

    def look(self, inner: Any, now: float, sent: Sequence[SentAcks], *, is_settled: bool) -> float:
        """Ask, or take the answer.

        Args:
            inner: the C++ consumer. Where it cannot be asked, the time says it in the end.
            now: the time.
            sent: what may not have arrived; it is not asked before that can be proven.
            is_settled: whether the broker surely knows the consumer; otherwise it is asked soon.

        Returns:
            Until when what left has arrived, if no connection was lost since.
        """
        result = None if self._answer is None else self._answer.result
        if result is not None:
            self._answer = None
            if result == pulsar.Result.Ok:
                self.known, self._refused = self._asked, 0
                if is_settled:
                    self._proven = self._asked - _GROUPED_SECONDS
            else:
                self._refused += 1
            self.can_ask = result not in _UNSUPPORTED
        elif self._answer is None and self.can_ask and now >= self._next(sent, is_settled=is_settled):
            self._asked, self._answer = now, self._begin(inner.get_last_message_id_async)
        return max(self._proven, now - _NOTICED_SECONDS)

    def due(self, now: float, sent: Sequence[SentAcks], *, is_settled: bool) -> float:
        """Give when to look again; the arguments are those of `look()`."""
        if self._answer is not None:
            return now + _ANSWER_SECONDS if is_settled else now
        return self._next(sent, is_settled=is_settled) if self.can_ask else now + _NOTICED_SECONDS

    def _next(self, sent: Sequence[SentAcks], *, is_settled: bool) -> float:
        """Give when to ask."""
        if is_settled and sent:
            pause = _ASK_SECONDS if sum(map(len, sent)) < _MANY else _ASK_BUSY_SECONDS
            return max(self._asked + pause, min(one.oldest for one in sent) + _GROUPED_SECONDS)
        if not self._refused:
            return self._earliest
        return self._asked + _REFUSED_SECONDS[min(self._refused, len(_REFUSED_SECONDS)) - 1]


_KNOWN_SECONDS: Final = 0.1
"""How long the broker usually takes at most, behind a lost connection, until it knows the consumer again."""


class SendingAgain:
    """Of one consumer; its acknowledgements' lock is held. Times are `time.monotonic()`, in seconds.

    Args:
        watch: notices that the connection may be another one.
        proof: asks the broker.
        topics: what was acknowledged.
        monitor: looks where the cursors are, once what was sent again should have arrived.
        glance: looks at the connection, while many leave.
    """

    def __init__(
        self,
        watch: ConnectionWatch,
        proof: ArrivalProof,
        topics: AcksByTopic,
        monitor: CursorMonitor,
        glance: Callable[[], None],
    ) -> None:
        self._watch, self._proof, self._topics, self._monitor, self._glance = watch, proof, topics, monitor, glance
        self._settles: float | None = None
        """When the cursors are to be looked at if the broker turns out not to be asked; None if they are not to be."""

    def look(self, inner: Any, now: float, *, connected: bool, waits: bool) -> ConnectionNews:
        """Look at the connection, and send again what it may have lost.

        Args:
            inner: the C++ consumer.
            now: the time.
            connected: whether there is a connection.
            waits: whether anything has been acknowledged that is to leave.

        Returns:
            What the look at the connection found.
        """
        news = self._watch.look(now, connected=connected, can_ask=self._proof.can_ask)
        if news.is_doubtful:
            self._proof.doubt(now + _KNOWN_SECONDS if news.is_other or not connected else now)
        if news.settles is not None:  # the connection is, or may be, another one
            for topic in self._topics:
                topic.hold(now)
                if news.is_other:
                    topic.doubt(now)
            self._settles = news.settles if self._proof.can_ask else None
            self._monitor.look_after(news.settles if self._settles is None else math.inf)
        if news.sends_again:
            self._mark(math.inf)
        if connected:
            self._ask(inner, now, waits=waits)
            self._hand_over(inner, now)
        return news

    def due(self, now: float) -> float:
        """Give when to look again, if nothing happens to the connection."""
        settled, sent = self._watch.is_settled, self._sent
        asks = sent or (self._settles is not None and not settled)
        return min(self._watch.due, self._proof.due(now, sent, is_settled=settled) if asks else math.inf)

    def end(self, inner: Any, now: float) -> None:
        """Send again what has to be, though the broker has not answered: the C++ consumer is being closed."""
        if not self._watch.is_settled:
            self._mark(math.inf)
            self._hand_over(inner, now)

    @property
    def _sent(self) -> list[SentAcks]:
        return [topic.sent for topic in self._topics if topic.sent]

    def _ask(self, inner: Any, now: float, *, waits: bool) -> None:
        """Ask the broker, or take its answer, and drop what has arrived."""
        settled, sent = self._watch.is_settled, self._sent
        if not sent and (settled or not (waits or self._settles is not None)):
            return
        arrived = self._proof.look(inner, now, sent, is_settled=settled)
        if not settled and self._proof.known is not None:
            self._watch.settle()
            self._mark(self._proof.known)
        elif not self._proof.can_ask and self._settles is not None:  # so it turned out just now
            self._monitor.look_after(self._settles)
            self._settles = None
        if self._watch.is_settled:
            for topic in self._topics:
                if topic.again is None:
                    topic.sent.expire(arrived)

    def _mark(self, before: float) -> None:
        """Have what may be lost of what left before a time sent again, as soon as nothing keeps it from that."""
        for topic in self._topics:
            since, until = topic.again or (self._watch.since, before)
            topic.again = min(since, self._watch.since), max(until, before)

    def _hand_over(self, inner: Any, now: float) -> None:
        """Send again what can be, and have the cursors looked at when all is."""
        for topic in self._topics:
            topic.hand_over_again(inner, now, self._glance)
        done = self._watch.is_settled and all(topic.again is None for topic in self._topics)
        if done and self._settles is not None:
            self._monitor.look_after(now)
            self._settles = None
