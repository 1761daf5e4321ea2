"""How acknowledgements are grouped, and when a group is due (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Self, cast

from pulsar_ext.errors import InvalidUse

__all__ = ["AT_HAND", "AT_HANDS", "AckGrouping", "GroupTimer"]


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
