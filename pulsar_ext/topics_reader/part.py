"""The reader of one topic or partition among several: it says when something has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext.key_shared.reader import RangeReader
from pulsar_ext.reader import Reader
from pulsar_ext.receive.source import Arrivals

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PartReader", "RangePartReader"]


class PartReader(Reader):
    """A reader that is asked without waiting, and says when asking again is worth while."""

    __slots__ = ()  # two classes with slots of their own have no common heir; the official class has a dict

    arrivals: Arrivals
    """Of the C++ reader that it stands on now."""
    hear: Callable[[PartReader], object]
    """Is called then; set once it is open."""

    def _wait_of(self, inner: Any) -> Any:
        wait, receive_async = self._receives_of(inner)
        if self._flow is not None:
            wait, self._flow.waits = self._flow.counting(wait), self._has_nothing
        self.arrivals = Arrivals(wait, receive_async, self._say)
        return self.arrivals

    def _has_nothing(self) -> bool:
        return self.waits

    def _say(self) -> None:
        if self._flow is not None:
            self._flow.received += 1
        self.hear(self)

    @property
    def waits(self) -> bool:
        """Whether it says when something has come, and there is nothing until then."""
        return self.arrivals.is_owed() and not self.arrivals.holds

    def _has_native_message_(self) -> bool:
        """Ask if the native reader has a message to read, unless one has arrived already."""
        return self.arrivals.holds or super()._has_native_message_()


class RangePartReader(RangeReader, PartReader):
    """The same, of key ranges."""

    __slots__ = ()
