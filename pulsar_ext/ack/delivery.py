"""Decide when a group of acknowledgements is due, and what must be resent after a disconnection (pure).

The C++ client drops unsent acknowledgements when the connection is lost, and reports a connection before the broker
knows its consumer again. What was sent shortly before is therefore resent when the broker has answered a request. If
the broker cannot be asked, it is resent several times. Mirrors the retries of Java's
`PersistentAcknowledgmentsGroupingTracker`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self, cast

from pulsar_ext.errors import InvalidUse

from .groups import NOTHING, AckGroup, Entry, Singles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_ext._native.messages import InnerMessageId


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
        """Store sent acknowledgements."""
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
        """Remove the groups sent in a time window, and return them as one."""

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


_UNNOTICED_SECONDS: Final = 0.085
"""Polls further apart than this may have missed a disconnection and a reconnection."""
_RESEND_SECONDS: Final = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Delays after a reconnection at which doubtful acknowledgements are resent until the broker knows the consumer.

The C++ client reports a connection, and sends on it, before that."""
_ARRIVED_SECONDS: Final = 1.0
"""Time before an unnoticed disconnection after which acknowledgements have arrived: a short one is noticed at once."""
_BROKER_READY_SECONDS: Final = 3.0
"""Time within which the broker usually knows the consumer, if it cannot be probed."""
_CHUNKS_SECONDS: Final = (0.3, 3.0, 10.0, 30.0)
"""Delays after a reconnection at which incomplete chunked messages are requested.

After the first, they are requested only if nothing was acknowledged for a while: another consumer may have received
some of their chunks."""


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
    return now - then <= _UNNOTICED_SECONDS


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

    def may_have_changed(self, now: float) -> bool:
        """Return True if the connection may have been lost since the last poll."""
        return self.polled_at is None or not is_same_connection(self.polled_at, now)

    def check_connection(self, now: float, *, connected: bool) -> None:
        """Poll during a long operation; the next `poll()` handles a disconnection."""
        self.is_down = self.is_down or not connected
        if not self.may_have_changed(now):
            self.polled_at = now

    def is_unchanged(self, now: float, *, connected: bool) -> bool:
        """Poll while nothing is due; return True if nothing has changed, otherwise call `poll()`."""
        if connected is self.is_down or self.may_have_changed(now):
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
        slept = not starts and self.may_have_changed(now)
        if starts:  # the connection may have been opened just now
            self._resend_times, self.since = [now + _RESEND_SECONDS[0]], -math.inf
        previous, self.polled_at = self.polled_at or now, now
        doubtful = starts or slept or not connected or self.is_down or self._is_new
        due = connected and bool(self._chunks) and now >= self._chunks[0]
        first = due and len(self._chunks) == len(_CHUNKS_SECONDS)
        if due:
            del self._chunks[0]
        report = ConnectionReport(
            is_doubtful=doubtful, must_request_chunks=first, must_request_chunks_again=due and not first
        )
        if not connected:
            self.is_down = True
            return report
        if self.is_down or self._is_new:
            self._chunks = [now + seconds for seconds in _CHUNKS_SECONDS] if self.is_down else []
            self.is_down = self._is_new = False
            self._resend_times, self.since = [now + seconds for seconds in _RESEND_SECONDS], -math.inf
            return report._replace(is_reconnected=True, arrives_by=now + _BROKER_READY_SECONDS)
        if slept and not self._resend_times:  # on a busy machine a short disconnection may go unnoticed
            self._resend_times, self.since = [now + _RESEND_SECONDS[1]], previous - _ARRIVED_SECONDS
            return report._replace(arrives_by=self._resend_times[0])
        if self._resend_times and now >= self._resend_times[0]:
            self._resend_times = self._resend_times[1:] or [now + _RESEND_SECONDS[-1]] * can_ask
            return report._replace(must_resend=True)
        return report


_NATIVE_HOLD_MS: Final = 100
"""Time for which the C++ client's own grouping holds an acknowledgement."""
_NATIVE_GROUP_SIZE: Final = 1000
_MIN_HOLD_MS: Final = 25
INBOX_SIZE: Final = 256
"""Maximum number of messages in the inbox before their ids are read; more would not stay in the processor's cache."""
MAX_INBOX_SIZE: Final = 8 * INBOX_SIZE


@dataclass(frozen=True, slots=True)
class AckGrouping:
    """The grouping options of a consumer."""

    max_size: int
    hold_ms: int
    flushes_native: bool
    runs: bool
    passes_singles: bool

    @property
    def limit(self) -> int:
        """Maximum number of messages in the inbox."""
        return min(self.max_size, INBOX_SIZE)

    @classmethod
    def of(cls, time_ms: object, max_size: object, *, is_shared: bool) -> Self:
        """Convert the arguments of `Client.subscribe()`."""
        if time_ms is not None and (isinstance(time_ms, bool) or not isinstance(time_ms, int) or time_ms < 0):
            raise InvalidUse(f"ack_group_time_ms must be an int >= 0 (milliseconds), got {time_ms!r}")
        if max_size is not None and (isinstance(max_size, bool) or not isinstance(max_size, int) or max_size < 1):
            raise InvalidUse(f"max_ack_group_size must be an int >= 1, got {max_size!r}")
        wanted = _NATIVE_HOLD_MS if time_ms is None else time_ms
        # An interval or size below those of the C++ client's grouping requires a flush.
        flushes_native = wanted < _NATIVE_HOLD_MS or (max_size is not None and max_size < _NATIVE_GROUP_SIZE)
        hold = wanted if wanted < _NATIVE_HOLD_MS else max(wanted - _NATIVE_HOLD_MS, _MIN_HOLD_MS)
        # Entries become a position only if grouping was requested; see docs/acks.md.
        runs = not is_shared and not (time_ms is None and max_size is None)
        size = 1 if wanted == 0 else _NATIVE_GROUP_SIZE if max_size is None else max_size
        passes_singles = not runs and not flushes_native and hold == _MIN_HOLD_MS
        made = cls(size, hold, flushes_native, runs, passes_singles)
        return cast("Self", _KNOWN.setdefault(made, made))  # most consumers have equal options, and share one object


_KNOWN: Final[dict[AckGrouping, AckGrouping]] = {}


@dataclass(slots=True)
class GroupTimer:
    """Decide when a group of acknowledgements is due, by time or by size."""

    time_ms: int = 100
    max_size: int = 1000
    _since: float | None = field(default=None, init=False)

    def is_due(self, pending: int, now: float, polled_at: float | None = None) -> bool:
        """Return True if the group is due."""
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
