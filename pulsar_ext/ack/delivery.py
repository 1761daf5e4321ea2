"""When a group of acknowledgements is due, and what a disconnection does to those that were sent (pure).

The C++ client drops acknowledgements that it has not sent when the connection is lost, and calls itself connected
before the broker knows its consumer again. So what was sent shortly before is sent once more when the broker has
answered, and where it cannot be asked several times. Mirrors the retries of Java's
`PersistentAcknowledgmentsGroupingTracker`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

from pulsar_ext.errors import InvalidUse

from .leaving import NOTHING, Entry, Leaving, Singles

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Sent(NamedTuple):
    """What left at one time."""

    time: float
    leaving: Leaving | Singles
    ids: Mapping[Entry, Any]
    is_repeated: bool


class SentAcks:
    """What left and has not surely arrived, to be sent again if the connection turns out to have been lost.

    Args:
        limit: how many entries are kept at most.
    """

    def __init__(self, limit: int = 50_000) -> None:
        self._limit = limit
        self._sent: deque[_Sent] = deque()
        self._count = 0
        self._taken_back: list[tuple[float, tuple[Entry, int, int]]] = []
        """Messages that are to be delivered again, and when that was said."""
        self.arrived: Entry | None = None
        """An entry, acknowledged lately, whose acknowledgement has arrived."""

    def __len__(self) -> int:
        """How many entries, parts of batches and positions it keeps."""
        return self._count

    def add(
        self, leaving: Leaving | Singles, now: float, ids: Mapping[Entry, Any], *, is_repeated: bool = False
    ) -> None:
        """Keep what left.

        Args:
            leaving: what left.
            now: when, in seconds of any steady clock.
            ids: by which ids that nobody can make.
            is_repeated: whether it had left before.
        """
        self._sent.append(_Sent(now, leaving, ids, is_repeated))
        self._count += len(leaving)
        while self._count > self._limit and len(self._sent) > 1:
            self._count -= len(self._sent.popleft().leaving)

    @property
    def oldest(self) -> float:
        """When the oldest left of what is kept; there is some."""
        return self._sent[0].time

    def expire(self, arrived: float) -> None:
        """Drop what left until a time: it has arrived."""
        while self._sent and self._sent[0].time <= arrived:
            left = self._sent.popleft().leaving
            self._count -= len(left)
            self.arrived = _last_entry(left) or self.arrived
        if self._taken_back:
            oldest = self._sent[0].time if self._sent else math.inf
            self._taken_back = [one for one in self._taken_back if one[0] >= oldest]

    def take_back(self, entry: Entry, index: int, size: int, now: float) -> None:
        """Keep no acknowledgement of a message that left until now: the message is to be delivered again.

        Args:
            entry: its entry.
            index: its place in its batch; -1 if it is not in a batch.
            size: number of messages in its batch; 0 if that is not known.
            now: the time.
        """
        if self._sent:
            self._taken_back.append((now, (entry, index, size)))

    @property
    def ids(self) -> dict[Entry, Any]:
        """By which ids the kept entries left."""
        return {entry: one for sent in self._sent for entry, one in sent.ids.items()}

    def take(self, since: float = -math.inf, before: float = math.inf) -> Leaving:
        """Give everything that left in a time, as one, and keep no more of it.

        Args:
            since: the beginning of that time; if it is given, what had left before stays: it was sent again already.
            before: its end.
        """

        def is_wanted(one: _Sent) -> bool:
            return since <= one.time < before and not (one.is_repeated and since > -math.inf)

        taken = list(filter(is_wanted, self._sent))
        if not taken:
            return NOTHING
        self._sent = deque(one for one in self._sent if not is_wanted(one))
        self._count -= sum(len(one.leaving) for one in taken)
        return self._as_one(taken)

    def since(self, time: float) -> Leaving:
        """Give everything that left since a time, as one; it is kept."""
        return self._as_one([one for one in self._sent if one.time >= time])

    def _as_one(self, some: list[_Sent]) -> Leaving:
        every = [self._left(one) for one in some]
        cumulative = max((one.cumulative for one in every if one.cumulative is not None), default=None)
        whole = tuple(entry for one in every for entry in one.whole)
        indexes = tuple(part for one in every for part in one.indexes)
        return NOTHING.merged(Leaving(cumulative, whole, indexes))

    def _left(self, one: _Sent) -> Leaving:
        """Give what left at one time, without what was taken back since."""
        left = one.leaving if isinstance(one.leaving, Leaving) else Leaving(whole=tuple(one.leaving.entries))
        since = [message for time, message in self._taken_back if time >= one.time]
        return left.without(since) if since else left


def _last_entry(left: Leaving | Singles) -> Entry | None:
    if not isinstance(left, Leaving):
        return left.ledger_id, left.entry_ids[-1]
    return left.whole[-1] if left.whole else left.cumulative


_SLEPT_SECONDS: Final = 0.085
"""Two looks further apart may have a disconnection and a reconnection between them."""
_AGAIN_SECONDS: Final = (0.3, 1.0, 3.0, 10.0, 30.0)
"""When what is doubtful is sent once more after a reconnection, as long as it is not known that the broker knows the
consumer: the C++ client calls itself connected, and sends what it has, before that."""
_ARRIVED_SECONDS: Final = 1.0
"""What left so long before a disconnection that nobody saw has arrived: a short one is noticed at once."""
_SETTLING_SECONDS: Final = 3.0
"""How long the broker usually takes to know it, where that cannot be asked."""
_CHUNKS_SECONDS: Final = (0.3, 3.0, 10.0, 30.0)
"""When half received chunked messages are asked for after a reconnection: first always, then if nothing was
acknowledged for a while, as another consumer may have got some of their chunks."""


class ConnectionNews(NamedTuple):
    """What a look at the connection asks for."""

    is_doubtful: bool = False
    """The connection may be another one than before."""
    is_other: bool = False
    """It was lost, and is there again."""
    sends_again: bool = False
    """What left lately has to be sent again."""
    settles: float | None = None
    """When that should have arrived, if nobody can be asked; None where it is the same connection."""
    asks_for_chunks: bool = False
    """Half received messages have to be asked for."""
    asks_again: bool = False
    """They have to be asked for once more, if nothing is being received."""


def is_same_connection(then: float, now: float) -> bool:
    """Whether a connection that is there at two times was not lost in between: to make another one takes longer."""
    return now - then <= _SLEPT_SECONDS


class ConnectionWatch:
    """Notices disconnections by looking at the connection again and again. Times are `time.monotonic()`, in seconds.

    Args:
        opened: when the broker surely knew the consumer on the present connection; None if that is not known.
    """

    def __init__(self, opened: float | None = None) -> None:
        self.looked = opened
        """When somebody looked the last time; None if nobody has for a while."""
        self.is_down = False
        self._again: list[float] = []
        self.since = -math.inf
        """Since when what left may have to be sent again, while it is not settled."""
        self._chunks: list[float] = []
        self._is_new = False

    @property
    def is_settled(self) -> bool:
        """Whether what leaves now surely arrives."""
        return not (self.is_down or self._is_new or self._again)

    @property
    def due(self) -> float:
        """When there is something to do, if nothing happens to the connection; infinite if there is nothing."""
        return min(self._again[:1] + self._chunks[:1], default=math.inf)

    def may_have_changed(self, now: float) -> bool:
        """Whether the connection may have been lost since the last look."""
        return self.looked is None or not is_same_connection(self.looked, now)

    def glance(self, now: float, *, connected: bool) -> None:
        """Look while something takes long; what is to be done about a disconnection is left to the next `look()`."""
        self.is_down = self.is_down or not connected
        if not self.may_have_changed(now):
            self.looked = now

    def stays(self, now: float, *, connected: bool) -> bool:
        """Look while nothing is due; tell whether it is as it was at the last look. If not, `look()` has to follow."""
        if connected is self.is_down or self.may_have_changed(now):
            self.is_down = self.is_down or not connected
            return False
        self.looked = now
        return True

    def rest(self) -> None:
        """Look no more for a while."""
        self.looked = None

    def settle(self) -> None:
        """Send nothing again: what leaves from now on arrives, or nothing has left that should."""
        self._again = []

    def renew(self) -> None:
        """Ask for no chunks after a disconnection before: another C++ consumer has half of nothing."""
        self._chunks, self._is_new, self.is_down = [], self._is_new or self.is_down, False

    def look(self, now: float, *, connected: bool, can_ask: bool = False) -> ConnectionNews:
        """Look at the connection.

        Args:
            now: the time.
            connected: whether there is one.
            can_ask: whether the broker is being asked, so that nothing is settled before it has answered.
        """
        began = self.looked is None
        slept = not began and self.may_have_changed(now)
        if began:  # the connection may be as new as this
            self._again, self.since = [now + _AGAIN_SECONDS[0]], -math.inf
        seen, self.looked = self.looked or now, now
        doubtful = began or slept or not connected or self.is_down or self._is_new
        asks = connected and bool(self._chunks) and now >= self._chunks[0]
        first = asks and len(self._chunks) == len(_CHUNKS_SECONDS)
        if asks:
            del self._chunks[0]
        news = ConnectionNews(is_doubtful=doubtful, asks_for_chunks=first, asks_again=asks and not first)
        if not connected:
            self.is_down = True
            return news
        if self.is_down or self._is_new:
            self._chunks = [now + seconds for seconds in _CHUNKS_SECONDS] if self.is_down else []
            self.is_down = self._is_new = False
            self._again, self.since = [now + seconds for seconds in _AGAIN_SECONDS], -math.inf
            return news._replace(is_other=True, settles=now + _SETTLING_SECONDS)
        if slept and not self._again:  # a machine this busy may have hidden a short disconnection
            self._again, self.since = [now + _AGAIN_SECONDS[1]], seen - _ARRIVED_SECONDS
            return news._replace(settles=self._again[0])
        if self._again and now >= self._again[0]:
            self._again = self._again[1:] or [now + _AGAIN_SECONDS[-1]] * can_ask
            return news._replace(sends_again=True)
        return news


_OFFICIAL_MILLIS: Final = 100
"""How long the C++ client's own grouping holds what was handed over."""
_OFFICIAL_SIZE: Final = 1000
_SHORTEST_HOLD_MILLIS: Final = 25
AT_HAND: Final = 256
"""So many messages are held at most until their ids are read: more of them would not stay in the processor's cache."""
AT_HANDS: Final = 8 * AT_HAND


@dataclass(frozen=True, slots=True)
class AckGrouping:
    """How a consumer's acknowledgements are grouped.

    Args:
        max_size: how many wait at most.
        hold_ms: how long one waits here at most; the C++ client's own grouping may add up to 100 ms.
        forces: whether a group is flushed out of the C++ client.
        runs: whether runs of entries without a gap leave as one position.
        passes: whether single messages may go to the C++ client at once, which then groups as was asked for.
    """

    max_size: int
    hold_ms: int
    forces: bool
    runs: bool
    passes: bool

    @property
    def limit(self) -> int:
        """How many may be in the inbox."""
        return min(self.max_size, AT_HAND)

    @classmethod
    def of(cls, time_ms: object, max_size: object, *, splits: bool) -> Self:
        """Read the arguments of `Client.subscribe()`.

        Args:
            time_ms: how long an acknowledgement may wait; None for the default of 100.
            max_size: how many wait at most; None for the default of 1000.
            splits: whether the subscription is Shared or Key_Shared.

        Raises:
            InvalidUse: the time is not an int of 0 or more, or the size not one of 1 or more.
        """
        if time_ms is not None and (isinstance(time_ms, bool) or not isinstance(time_ms, int) or time_ms < 0):
            raise InvalidUse(f"ack_group_time_ms is an int of milliseconds, 0 or more, not {time_ms!r}.")
        if max_size is not None and (isinstance(max_size, bool) or not isinstance(max_size, int) or max_size < 1):
            raise InvalidUse(f"max_ack_group_size is an int, 1 or more, not {max_size!r}.")
        wanted = _OFFICIAL_MILLIS if time_ms is None else time_ms
        # What may not wait as long as the C++ client's grouping does has to be flushed out of it.
        forces = wanted < _OFFICIAL_MILLIS or (max_size is not None and max_size < _OFFICIAL_SIZE)
        hold = wanted if wanted < _OFFICIAL_MILLIS else max(wanted - _OFFICIAL_MILLIS, _SHORTEST_HOLD_MILLIS)
        # Single acknowledgements become a position only where grouping was asked for: see docs/acks.md.
        runs = not splits and not (time_ms is None and max_size is None)
        size = 1 if wanted == 0 else _OFFICIAL_SIZE if max_size is None else max_size
        passes = not runs and not forces and hold == _SHORTEST_HOLD_MILLIS
        made = cls(size, hold, forces, runs, passes)
        return cast("Self", _KNOWN.setdefault(made, made))  # most consumers have the same, and share it


_KNOWN: Final[dict[AckGrouping, AckGrouping]] = {}


@dataclass(slots=True)
class GroupTimer:
    """When a group of acknowledgements is due: by time, or by size.

    Args:
        time_ms: how long the first of a group may wait; 0 lets nothing wait.
        max_size: how many wait at most.
    """

    time_ms: int = 100
    max_size: int = 1000
    _since: float | None = field(default=None, init=False)

    def is_due(self, pending: int, now: float, looked: float | None = None) -> bool:
        """Whether acknowledgements leave at a time.

        Args:
            pending: how many wait.
            now: the time, in seconds of any steady clock.
            looked: when this was asked the last time; None if nobody has asked for long. What waits and did not wait
                then may have come right after it.
        """
        if not pending:
            self._since = None
            return False
        if self.time_ms == 0 or pending >= self.max_size:
            return True
        if self._since is None:
            self._since = now if looked is None else looked
        return now >= self._since + self.time_ms / 1000

    def wait(self, now: float) -> float:
        """After how many seconds to ask again, so that nothing waits for too long."""
        return (now if self._since is None else self._since) + self.time_ms / 1000 - now

    @property
    def due(self) -> float:
        """When the group is due that waits; infinite if nothing waits."""
        return math.inf if self._since is None else self._since + self.time_ms / 1000

    def left(self) -> None:
        """Begin the next group."""
        self._since = None
