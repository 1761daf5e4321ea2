"""The state machine that delivers a consumer's acknowledgements (pure): no socket, thread or clock.

It decides what is due, what counts as arrived, what is resent after a disconnection, and what is held back or dropped.
`acknowledger.py` and `cursor.py` carry out what it decides, and report what they have seen. All times of
acknowledgements are at its head, each with its reason. Mirrors the retries of Java's
`PersistentAcknowledgmentsGroupingTracker`.

A connection may be dead for a minute before the C++ client notices, and everything sent on it is lost. A broker serves
a connection in order: once it has answered a request, everything sent before that request has arrived.

The C++ client drops unsent acknowledgements when the connection is lost, and reports a connection before the broker has
loaded the topic and knows the consumer again. The broker silently drops acknowledgements that arrive before that, and
rejects requests. An answered request was therefore sent when the broker knew the consumer.

So the states of a consumer are:

- connected: `ConnectionWatch.is_stable`. What is sent arrives; answered probes show until when it has (`SentAcks`).
- unknown: the connection was lost, or may have been replaced between two polls. A probe is sent until it is answered.
- recovering: the broker knows the consumer since the answered probe. What was sent before is resent, and the cursors
  are checked when that should have arrived. Then it is connected again.

A consumer of several topics or partitions cannot be probed; it resends at fixed times instead. Two states belong to one
topic (`TopicDelivery`). It is held while its cursor may have been moved back. Resending is blocked while it may have
closed the connection: a broker does that for acknowledgements of an ended topic.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Generic, NamedTuple, TypeVar

import pulsar

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext.errors import InvalidUse

from .groups import NOTHING, AckGroup, Entry, Singles

# All times of acknowledgements, in seconds unless a name says otherwise.

# -- the connection ----------------------------------------------------------------------------------------------------

UNNOTICED_SECONDS: Final = 0.085
"""Shortest time of a disconnection with a reconnection: polls, or a request, that take longer may have missed one."""
IDLE_POLL_SECONDS: Final = 1.0
"""Longest poll interval while few messages are acknowledged."""
HELD_POLL_SECONDS: Final = 0.25
"""Longest poll interval while acknowledgements are held back."""
WATCH_SECONDS: Final = 2.0
"""Time after the last acknowledgement in which the connection is polled, so that the next one is not sent twice."""
NOTICED_SECONDS: Final = 65.0
"""Time after which the C++ client has noticed a dead connection: it sends a ping every 30 seconds."""

# -- groups ------------------------------------------------------------------------------------------------------------

NATIVE_HOLD_MS: Final = 100
"""Time for which the C++ client's own grouping holds an acknowledgement."""
NATIVE_SECONDS: Final = 0.11
"""That time with a margin: what was passed to the C++ client earlier was sent."""
GROUPED_SECONDS: Final = 0.5
"""That time with a margin for a busy machine: a request proves the arrival of what was passed this long before."""
MIN_HOLD_MS: Final = 25
"""Shortest time that a group is collected here, although the C++ client then holds it for its own time."""
PARTIAL_BATCH_SECONDS: Final = 1.0
"""Interval after which a partly acknowledged batch is sent; it may wait up to twice as long."""

# -- after a reconnection ----------------------------------------------------------------------------------------------

RESEND_SECONDS: Final = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Delays after a reconnection at which doubtful acknowledgements are resent until the broker knows the consumer.

The C++ client reports a connection, and sends on it, before that."""
ARRIVED_SECONDS: Final = 1.0
"""Time before an unnoticed disconnection after which acknowledgements have arrived: a short one is noticed at once."""
BROKER_READY_SECONDS: Final = 3.0
"""Time within which the broker usually knows the consumer, if it cannot be probed."""
CHUNKS_SECONDS: Final = (0.3, 3.0, 10.0, 30.0)
"""Delays after a reconnection at which incomplete chunked messages are requested.

After the first, they are requested only if nothing was acknowledged for a while: another consumer may have received
some of their chunks."""
RESEND_FAILURE_SECONDS: Final = 1.0
"""A connection lost this soon after acknowledgements were resent may have been lost because of them."""
RESEND_BLOCK_SECONDS: Final = 2.0
"""Time for which they are not resent then, unless a check shows whether they have arrived."""
KNOWN_SECONDS: Final = 2.0
"""Longest time that a replacement of the native consumer waits until acknowledgements have arrived."""

# -- probes of the broker ----------------------------------------------------------------------------------------------

PROBE_SECONDS: Final = 1.0
PROBE_BUSY_SECONDS: Final = 0.25
"""Probe interval with many unconfirmed acknowledgements: all of them are resent after a lost connection."""
FIRST_PROBE_SECONDS: Final = 0.1
"""Time after a lost connection within which the broker usually knows the consumer again."""
PROBE_RETRY_SECONDS: Final = (0.1, 0.2, 0.4, 0.8)
"""Probe intervals while the broker does not know the consumer yet; the C++ client logs each failure."""
ANSWER_SECONDS: Final = 0.5
"""Interval at which an outstanding answer is checked."""

# -- checks of the cursor ----------------------------------------------------------------------------------------------

CHECK_SECONDS: Final = 2.0
"""Interval of the checks that a run, or a missing consumer, waits for."""
HELD_CHECK_SECONDS: Final = 0.2
"""That interval while acknowledgements are held back."""
ARRIVAL_SECONDS: Final = 0.6
"""Time after which resent acknowledgements have arrived: `GROUPED_SECONDS`, and the way to the broker."""
RETRY_SECONDS: Final = 30.0
"""Time without checks after the admin API did not answer."""
RETURN_SECONDS: Final = 2.0
"""Longest time that the broker takes to list a consumer again that it has closed."""

# -- confirmed flushes -------------------------------------------------------------------------------------------------

FIRST_WAIT_SECONDS: Final = 0.005
LONGEST_WAIT_SECONDS: Final = 0.25
"""First and longest interval between two checks; it doubles."""
CONFIRM_RESEND_SECONDS: Final = 0.5
"""Time without progress after which a flush resends what the cursors do not show. The broker needs some seconds for a
million acknowledgements, but shows more of them at each check."""


class _Sent(NamedTuple):
    """Acknowledgements sent at one time."""

    time: float
    group: AckGroup | Singles
    ids: Mapping[Entry, InnerMessageId]
    is_repeated: bool


class SentAcks:
    """Store sent acknowledgements that may not have arrived, to resend them after a disconnection."""

    def __init__(self, limit: int = 50_000) -> None:
        self._limit = limit
        self._sent: deque[_Sent] = deque()
        self._count = 0
        self._withdrawn: list[tuple[float, tuple[Entry, int, int]]] = []
        """Messages that are to be redelivered, each after the time of its withdrawal."""
        self.arrived: Entry | None = None
        """A recently acknowledged entry whose acknowledgement has arrived."""

    def __len__(self) -> int:
        """Return the number of stored entries, parts of batches and positions."""
        return self._count

    def add(
        self, group: AckGroup | Singles, now: float, ids: Mapping[Entry, InnerMessageId], *, is_repeated: bool = False
    ) -> None:
        """Store sent acknowledgements, with native ids that cannot be rebuilt."""
        self._sent.append(_Sent(now, group, ids, is_repeated))
        self._count += len(group)
        while self._count > self._limit and len(self._sent) > 1:
            self._count -= len(self._sent.popleft().group)

    @property
    def oldest(self) -> float:
        """Time of the oldest stored group; there must be one."""
        return self._sent[0].time

    def expire(self, arrived: float) -> None:
        """Drop groups sent up to a time: they have arrived."""
        while self._sent and self._sent[0].time <= arrived:
            group = self._sent.popleft().group
            self._count -= len(group)
            self.arrived = _last_entry(group) or self.arrived
        if self._withdrawn:
            oldest = self._sent[0].time if self._sent else math.inf
            self._withdrawn = [one for one in self._withdrawn if one[0] >= oldest]

    def withdraw(self, entry: Entry, index: int, size: int, now: float) -> None:
        """Withdraw earlier acknowledgements of a message that is to be redelivered; see `AckGroup.without()`."""
        if self._sent:
            self._withdrawn.append((now, (entry, index, size)))

    @property
    def ids(self) -> dict[Entry, InnerMessageId]:
        """Native ids that cannot be rebuilt, by entry."""
        return {entry: one for sent in self._sent for entry, one in sent.ids.items()}

    def take(self, since: float = -math.inf, before: float = math.inf) -> AckGroup:
        """Remove the groups sent in a time window, and return them as one; after a `since`, repeated groups stay."""

        def is_wanted(one: _Sent) -> bool:
            return since <= one.time < before and not (one.is_repeated and since > -math.inf)

        taken = list(filter(is_wanted, self._sent))
        if not taken:
            return NOTHING
        self._sent = deque(one for one in self._sent if not is_wanted(one))
        self._count -= sum(len(one.group) for one in taken)
        return self._as_one(taken)

    def since(self, time: float) -> AckGroup:
        """Return the groups sent since a time as one, without removing them."""
        return self._as_one([one for one in self._sent if one.time >= time])

    def _as_one(self, entries: list[_Sent]) -> AckGroup:
        groups = [self._remaining(one) for one in entries]
        cumulative = max((one.cumulative for one in groups if one.cumulative is not None), default=None)
        whole = tuple(entry for one in groups for entry in one.whole)
        indexes = tuple(part for one in groups for part in one.indexes)
        return NOTHING.merged(AckGroup(cumulative, whole, indexes))

    def _remaining(self, one: _Sent) -> AckGroup:
        """Return a group without the messages withdrawn since it was sent."""
        group = one.group if isinstance(one.group, AckGroup) else AckGroup(whole=tuple(one.group.entries))
        since = [message for time, message in self._withdrawn if time >= one.time]
        return group.without(since) if since else group


def _last_entry(group: AckGroup | Singles) -> Entry | None:
    if not isinstance(group, AckGroup):
        return group.ledger_id, group.entry_ids[-1]
    return group.whole[-1] if group.whole else group.cumulative


class ConnectionReport(NamedTuple):
    """Result of a poll of the connection."""

    is_doubtful: bool = False
    """The connection may have been replaced since the last poll."""
    is_reconnected: bool = False
    """The connection was lost and is open again."""
    must_resend: bool = False
    """Recent acknowledgements must be resent."""
    arrives_by: float | None = None
    """Time at which they should have arrived, if the broker cannot be probed; None if the connection is unchanged."""
    must_request_chunks: bool = False
    """Incomplete chunked messages must be requested."""
    must_request_chunks_again: bool = False
    """They must be requested again if no message is being received."""


def is_same_connection(then: float, now: float) -> bool:
    """Return True if a connection seen at both times was not lost in between: a reconnection takes longer."""
    return now - then <= UNNOTICED_SECONDS


class ConnectionWatch:
    """Detect disconnections by polling the connection. Times are in `time.monotonic()` seconds."""

    def __init__(self, opened: float | None = None) -> None:
        self.polled_at = opened
        """Time of the last poll; None while polling is paused."""
        self.is_down = False
        self._resend_times: list[float] = []
        self.since = -math.inf
        """Time from which acknowledgements may have to be resent, until the watch is stable."""
        self._chunks: list[float] = []
        self._is_new = False

    @property
    def is_stable(self) -> bool:
        """True if acknowledgements sent now surely arrive."""
        return not (self.is_down or self._is_new or self._resend_times)

    @property
    def due(self) -> float:
        """Time of the next action if the connection does not change; infinite without one."""
        return min(self._resend_times[:1] + self._chunks[:1], default=math.inf)

    def _may_have_changed(self, now: float) -> bool:
        """Return True if the connection may have been lost since the last poll."""
        return self.polled_at is None or not is_same_connection(self.polled_at, now)

    def check_connection(self, now: float, *, connected: bool) -> None:
        """Poll during a long operation; the next `poll()` handles a disconnection."""
        self.is_down = self.is_down or not connected
        if not self._may_have_changed(now):
            self.polled_at = now

    def is_unchanged(self, now: float, *, connected: bool) -> bool:
        """Poll while nothing is due; return True if nothing has changed, otherwise call `poll()`."""
        if connected is self.is_down or self._may_have_changed(now):
            self.is_down = self.is_down or not connected
            return False
        self.polled_at = now
        return True

    def pause(self) -> None:
        """Pause polling."""
        self.polled_at = None

    def mark_stable(self) -> None:
        """Resend nothing: everything sent from now on arrives."""
        self._resend_times = []

    def native_replaced(self) -> None:
        """Request no chunks for earlier disconnections: a new native consumer holds no incomplete chunked message."""
        self._chunks, self._is_new, self.is_down = [], self._is_new or self.is_down, False

    def poll(self, now: float, *, connected: bool, can_ask: bool = False) -> ConnectionReport:
        """Poll the connection."""
        starts = self.polled_at is None
        slept = not starts and self._may_have_changed(now)
        if starts:  # the connection may have been opened just now
            self._resend_times, self.since = [now + RESEND_SECONDS[0]], -math.inf
        previous, self.polled_at = self.polled_at or now, now
        doubtful = starts or slept or not connected or self.is_down or self._is_new
        due = connected and bool(self._chunks) and now >= self._chunks[0]
        first = due and len(self._chunks) == len(CHUNKS_SECONDS)
        if due:
            del self._chunks[0]
        report = ConnectionReport(
            is_doubtful=doubtful, must_request_chunks=first, must_request_chunks_again=due and not first
        )
        if not connected:
            self.is_down = True
            return report
        if self.is_down or self._is_new:
            self._chunks = [now + seconds for seconds in CHUNKS_SECONDS] if self.is_down else []
            self.is_down = self._is_new = False
            self._resend_times, self.since = [now + seconds for seconds in RESEND_SECONDS], -math.inf
            return report._replace(is_reconnected=True, arrives_by=now + BROKER_READY_SECONDS)
        if slept and not self._resend_times:  # on a busy machine a short disconnection may go unnoticed
            self._resend_times, self.since = [now + RESEND_SECONDS[1]], previous - ARRIVED_SECONDS
            return report._replace(arrives_by=self._resend_times[0])
        if self._resend_times and now >= self._resend_times[0]:
            self._resend_times = self._resend_times[1:] or [now + RESEND_SECONDS[-1]] * can_ask
            return report._replace(must_resend=True)
        return report


class TopicDelivery:
    """Acknowledgements sent on one topic or partition that may not have arrived, and the known state of its cursor."""

    def __init__(self) -> None:
        self.sent = SentAcks()
        self.resend_window: tuple[float, float] | None = None
        """The `(since, before)` window of acknowledgements to resend; None if there is nothing to resend."""
        self.highest_sent: Entry | None = None
        """The highest position that was sent."""
        self.expected_mark: Entry | None = None
        """The highest position that the cursor must show at the next check after a reconnection."""
        self.sessions: frozenset[tuple[str, str]] | None = None
        """The subscription's consumers on the broker, by address and start time; None if unknown."""
        self.is_held = False
        """True while nothing is sent because an operator may have moved the cursor back."""
        self.held_since = 0.0
        self.resend_blocked_until = 0.0
        """Time until which nothing is resent: a broker closes the connection for acknowledgements of an ended topic."""
        self.resent_at = 0.0
        self.sessions_due = 0.0
        """Time from which the broker's list of consumers is checked."""
        self.checked_at = 0.0
        self.lag_count = 0

    def needs_sessions(self, now: float) -> bool:
        """Return True if the broker's list of consumers is needed: sending depends on it, or it is unknown."""
        wants = self.is_held or self.is_screening(now) or (self.highest_sent is not None and self.sessions is None)
        return wants and now >= self.sessions_due

    def hold(self, now: float) -> None:
        """Send nothing until the cursor was checked, if a position was sent and a cursor reset can be detected."""
        self.is_held = self.highest_sent is not None and self.sessions is not None
        if self.is_held:
            self.held_since = self.sessions_due = now

    def block_resend(self, now: float) -> None:
        """Resend nothing for a while after a reconnection if resending may have closed the last connection."""
        if self.sent and now - self.resent_at < RESEND_FAILURE_SECONDS:
            self.resend_blocked_until, self.sessions_due = now + RESEND_BLOCK_SECONDS, now

    def is_screening(self, now: float) -> bool:
        """Return True while nothing is resent before a check whether it has arrived."""
        return now < self.resend_blocked_until

    def set_checked(self, began: float, *, arrived: bool) -> None:
        """Record a check that began at a time; `arrived` if the broker has everything sent before."""
        self.resend_blocked_until = 0.0
        if arrived:
            self.sent.expire(began)

    def update_sessions(self, sessions: frozenset[tuple[str, str]] | None, now: float, *, moved_back: bool) -> None:
        """Store the listed consumers, and stop holding back unless a missing consumer may be about to return."""
        if sessions is None:  # continue as after a lost connection; the last known list stays
            self.is_held, self.sessions_due = False, now + RETRY_SECONDS
            return
        is_missing = len(sessions) < max(1, len(self.sessions or ()))
        if is_missing:
            self.sessions_due = now + (HELD_CHECK_SECONDS if self.is_held else CHECK_SECONDS)
        if not is_missing or moved_back or now > self.held_since + RETURN_SECONDS:
            self.sessions, self.is_held = sessions or self.sessions, moved_back

    def take_lost(self, now: float) -> tuple[AckGroup, dict[Entry, InnerMessageId]] | None:
        """Return what a disconnection may have lost and is to be resent now, with native ids, if there is anything."""
        if self.resend_window is None or self.is_held or self.is_screening(now):
            return None
        live = self.sent.ids
        lost, self.resend_window = self.sent.take(*self.resend_window), None
        if not lost:
            return None
        self.resent_at = now
        self.sent.add(lost, now, live, is_repeated=True)
        return lost, live


_MANY: Final = 1_000
_UNSUPPORTED: Final = (pulsar.Result.OperationNotSupported, pulsar.Result.UnsupportedVersionError)


class ArrivalProof:
    """Prove by requests that acknowledgements of one consumer have arrived. Times are in `time.monotonic()` seconds."""

    def __init__(self, *, can_ask: bool = True) -> None:
        self.is_asking = False
        """True while a request has no answer."""
        self._asked_at = self._proven_until = self._earliest = -math.inf
        self._failures = 0
        self.can_ask = can_ask
        """False for a consumer of several topics or partitions, and of a non-persistent topic, whose request fails."""
        self.known_since: float | None = None
        """Time of the first answered request since the last doubt; the broker has known the consumer since."""

    def doubt(self, earliest: float) -> None:
        """Ignore a request in flight, and send none before `earliest`: the connection may have been replaced."""
        self.is_asking, self.known_since = False, None
        self._failures, self._earliest = 0, earliest

    def poll(
        self, now: float, sent: Sequence[SentAcks], result: pulsar.Result | None = None, *, is_stable: bool
    ) -> bool:
        """Read the answer of the request in flight, if there is one; return True if a request is to be sent now.

        `sent` may not have arrived; no request is sent before it can prove their arrival. Until `is_stable`, the broker
        is not known to have the consumer, and a request is sent soon.
        """
        if self.is_asking and result is not None:
            self.is_asking = False
            if result == pulsar.Result.Ok:
                self.known_since, self._failures = self._asked_at, 0
                if is_stable:
                    self._proven_until = self._asked_at - GROUPED_SECONDS
            else:
                self._failures += 1
            self.can_ask = result not in _UNSUPPORTED
        elif not self.is_asking and self.can_ask and now >= self._next(sent, is_stable=is_stable):
            self._asked_at, self.is_asking = now, True
            return True
        return False

    def arrived(self, now: float) -> float:
        """Return the time before which everything sent has arrived, unless a connection was lost since.

        Without probes, acknowledgements count as arrived after a fixed time.
        """
        return max(self._proven_until, now - NOTICED_SECONDS)

    def due(self, now: float, sent: Sequence[SentAcks], *, is_stable: bool) -> float:
        """Return the time of the next call of `poll()`, with the same arguments."""
        if self.is_asking:
            return now + ANSWER_SECONDS if is_stable else now
        return self._next(sent, is_stable=is_stable) if self.can_ask else now + NOTICED_SECONDS

    def _next(self, sent: Sequence[SentAcks], *, is_stable: bool) -> float:
        """Return the time of the next request."""
        if is_stable and sent:
            pause = PROBE_SECONDS if sum(map(len, sent)) < _MANY else PROBE_BUSY_SECONDS
            return max(self._asked_at + pause, min(one.oldest for one in sent) + GROUPED_SECONDS)
        if not self._failures:
            return self._earliest
        return self._asked_at + PROBE_RETRY_SECONDS[min(self._failures, len(PROBE_RETRY_SECONDS)) - 1]


D = TypeVar("D", bound=TopicDelivery)


class Delivery(Generic[D]):
    """The delivery of one consumer's acknowledgements; `topics` is its view of all topics with any."""

    def __init__(self, topics: Iterable[D], *, opened: float | None = None, can_probe: bool = True) -> None:
        self.topics = topics
        self.watch, self.proof = ConnectionWatch(opened), ArrivalProof(can_ask=can_probe)
        self.cursor_check_at: float | None = None
        """Time of the check whether the cursors were moved back; None without one."""
        self._ready_at: float | None = None
        """Time of that check if the consumer turns out not to support probing; None without one."""

    def poll(
        self, now: float, *, connected: bool, has_pending: bool, result: pulsar.Result | None
    ) -> tuple[ConnectionReport, bool]:
        """Poll the connection; return its report, and whether a probe is to be sent now.

        `result` is that of the probe in flight, if it was answered. `lost()` is to be called afterwards if connected.
        """
        report = self.watch.poll(now, connected=connected, can_ask=self.proof.can_ask)
        if report.is_doubtful:
            self.proof.doubt(now + FIRST_PROBE_SECONDS if report.is_reconnected or not connected else now)
        if report.arrives_by is not None:  # the connection is, or may be, another one
            for topic in self.topics:
                topic.hold(now)
                if report.is_reconnected:
                    topic.block_resend(now)
            self._ready_at = report.arrives_by if self.proof.can_ask else None
            self.schedule_cursor_check(report.arrives_by if self._ready_at is None else math.inf)
        if report.must_resend:
            self.mark_for_resend()
        return report, connected and self._probes(now, result, has_pending=has_pending)

    def lost(self, now: float) -> Iterator[tuple[D, AckGroup, dict[Entry, InnerMessageId]]]:
        """Yield what is to be resent now, and schedule the check of the cursors after the last one."""
        for topic in self.topics:
            if (lost := topic.take_lost(now)) is not None:
                yield topic, *lost
        if self._ready_at is not None and self.is_recovered:
            self.schedule_cursor_check(now)
            self._ready_at = None

    @property
    def is_recovered(self) -> bool:
        """True if what is sent arrives, and nothing is to be resent."""
        return self.watch.is_stable and all(topic.resend_window is None for topic in self.topics)

    def due(self, now: float) -> float:
        """Return the time of the next poll if the connection does not change."""
        stable, sent = self.watch.is_stable, self._sent
        needs_answer = sent or (self._ready_at is not None and not stable)
        return min(self.watch.due, self.proof.due(now, sent, is_stable=stable) if needs_answer else math.inf)

    def native_replaced(self) -> None:
        """Drop the lists of consumers: another native consumer replaces this one."""
        for topic in self.topics:
            topic.sessions, topic.is_held = None, False
        self.watch.native_replaced()

    def schedule_cursor_check(self, sent: float) -> None:
        """Check the cursors when acknowledgements resent at `sent` have arrived."""
        self.cursor_check_at = sent + ARRIVAL_SECONDS
        for topic in self.topics:
            topic.expected_mark = topic.highest_sent  # what is sent from now on may be in flight at every check

    def is_cursor_check_due(self, now: float) -> bool:
        """Return True if the cursors must show by now what was resent."""
        return self.cursor_check_at is not None and now >= self.cursor_check_at

    @property
    def _sent(self) -> list[SentAcks]:
        return [topic.sent for topic in self.topics if topic.sent]

    def _probes(self, now: float, result: pulsar.Result | None, *, has_pending: bool) -> bool:
        """Read the answer of a probe, drop acknowledgements that have arrived; return True if one is to be sent."""
        stable, sent = self.watch.is_stable, self._sent
        if not sent and (stable or not (has_pending or self._ready_at is not None)):
            return False
        probes = self.proof.poll(now, sent, result, is_stable=stable)
        if not stable and self.proof.known_since is not None:
            self.watch.mark_stable()
            self.mark_for_resend(self.proof.known_since)
        elif not self.proof.can_ask and self._ready_at is not None:  # the last answer showed it
            self.schedule_cursor_check(self._ready_at)
            self._ready_at = None
        if self.watch.is_stable:
            for topic in self.topics:
                if topic.resend_window is None:
                    topic.sent.expire(self.proof.arrived(now))
        return probes

    def mark_for_resend(self, before: float = math.inf) -> None:
        """Mark the acknowledgements sent before a time that may be lost for resending."""
        for topic in self.topics:
            since, until = topic.resend_window or (self.watch.since, before)
            topic.resend_window = min(since, self.watch.since), max(until, before)


_NATIVE_GROUP_SIZE: Final = 1000
INBOX_SIZE: Final = 256
"""Maximum number of messages in the inbox before their ids are read; more would not stay in the processor's cache."""
MAX_INBOX_SIZE: Final = 8 * INBOX_SIZE


@dataclass(frozen=True, slots=True)
class AckGrouping:
    """The grouping options of a consumer."""

    max_size: int
    """Maximum number of pending acknowledgements."""
    hold_ms: int
    """Longest time an acknowledgement is pending; the C++ client's own grouping may add up to 100 ms."""
    flushes_native: bool
    """True if groups are flushed out of the C++ client."""
    runs: bool
    """True if entries without a hole are acknowledged as one position."""
    passes_singles: bool
    """True if single messages may be passed to the C++ client at once, whose grouping is sufficient."""

    @property
    def limit(self) -> int:
        """Maximum number of messages in the inbox."""
        return min(self.max_size, INBOX_SIZE)

    @classmethod
    def of(cls, time_ms: object, max_size: object, *, is_shared: bool) -> AckGrouping:
        """Convert the arguments of `Client.subscribe()`."""
        if time_ms is not None and (isinstance(time_ms, bool) or not isinstance(time_ms, int) or time_ms < 0):
            raise InvalidUse(f"ack_group_time_ms must be an int >= 0 (milliseconds), got {time_ms!r}")
        if max_size is not None and (isinstance(max_size, bool) or not isinstance(max_size, int) or max_size < 1):
            raise InvalidUse(f"max_ack_group_size must be an int >= 1, got {max_size!r}")
        wanted = NATIVE_HOLD_MS if time_ms is None else time_ms
        # An interval or size below those of the C++ client's grouping requires a flush.
        flushes_native = wanted < NATIVE_HOLD_MS or (max_size is not None and max_size < _NATIVE_GROUP_SIZE)
        hold = wanted if wanted < NATIVE_HOLD_MS else max(wanted - NATIVE_HOLD_MS, MIN_HOLD_MS)
        # Entries become a position only if grouping was requested; see docs/acks.md.
        runs = not is_shared and not (time_ms is None and max_size is None)
        size = 1 if wanted == 0 else _NATIVE_GROUP_SIZE if max_size is None else max_size
        passes_singles = not runs and not flushes_native and hold == MIN_HOLD_MS
        return _grouping(size, hold, flushes_native, runs, passes_singles)


_grouping: Final = cache(AckGrouping)
"""Returns one object for equal options, which most consumers have."""


@dataclass(slots=True)
class GroupTimer:
    """Decide when a group of acknowledgements is due, by time or by size."""

    time_ms: int = 100
    max_size: int = 1000
    _since: float | None = field(default=None, init=False)

    def is_due(self, pending: int, now: float, polled_at: float | None = None) -> bool:
        """Return True if the group is due.

        `polled_at` is the time of the last call, None after a pause: a pending acknowledgement that was not pending
        then may have come right after it.
        """
        if not pending:
            self._since = None
            return False
        if self.time_ms == 0 or pending >= self.max_size:
            return True
        if self._since is None:
            self._since = now if polled_at is None else polled_at
        return now >= self._since + self.time_ms / 1000

    def wait(self, now: float) -> float:
        """Return the seconds until the group is due."""
        return (now if self._since is None else self._since) + self.time_ms / 1000 - now

    @property
    def due(self) -> float:
        """Time at which the group is due; infinite without pending acknowledgements."""
        return math.inf if self._since is None else self._since + self.time_ms / 1000

    def restart(self) -> None:
        """Begin the next group."""
        self._since = None
