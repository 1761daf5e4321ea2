"""When a group of acknowledgements is due (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["GroupTimer"]


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

    def left(self) -> None:
        """Begin the next group."""
        self._since = None
