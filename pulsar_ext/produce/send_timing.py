"""The send timeout of a C++ producer whose connection ends again and again.

Each reconnection begins that time anew. So where a broker refuses a message, which ends the connection each time, no
message of the producer would ever time out. A producer that starts its partitions lazily is left out of that, because
its time runs from the beginning. The C++ producer asks its configuration at each reconnection, and the copies that the
C++ client makes of a configuration share what they hold. So a producer can be told so after it was opened.

On a partitioned topic that has a second meaning: partitions that are added meanwhile are started with their first
message, and a flush that meets this is over too early. So where a topic may have partitions, the producer is told so
only while its connection is unsteady.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["SendTiming", "run_on"]

_MOST_SECONDS, _LEAST_SECONDS = 2.0, 0.05
_SHARE: Final = 8


def run_on(configuration: Any) -> None:
    """Have the send timeout of the producer of a configuration run on at reconnections, from now on."""
    configuration.lazy_start_partitioned_producers(True)  # noqa: FBT003  # the binding takes it so


class SendTiming:
    """Has the send timeout run on while the connection of a producer is unsteady.

    Args:
        configuration: that the C++ producer was opened with.
        timeout_millis: its send timeout; more than 0.
    """

    __slots__ = ("_configuration", "_timeout", "_unsteady_until", "seconds")

    def __init__(self, configuration: Any, timeout_millis: int) -> None:
        self._configuration = configuration
        self._timeout = timeout_millis / 1000
        self._unsteady_until = 0.0
        self.seconds: Final = max(_LEAST_SECONDS, min(_MOST_SECONDS, self._timeout / _SHARE))
        """How often to look."""

    def look(self, now: float, *, connected: bool) -> None:
        """Take note of how the connection is at a monotonic time in seconds."""
        if not connected:
            if not self._unsteady_until:
                run_on(self._configuration)
            self._unsteady_until = now + 2 * self._timeout
        elif self._unsteady_until and now > self._unsteady_until:
            self.rest()

    def rest(self) -> None:
        """Take note that nothing is on its way: it is not looked at for a while."""
        if self._unsteady_until:
            self._unsteady_until = 0.0
            self._configuration.lazy_start_partitioned_producers(False)  # noqa: FBT003  # as above
