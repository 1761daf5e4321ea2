"""Looking at each message before the application gets it, for as long as acknowledged ones may be delivered again."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext._native.results import POLL_MILLIS

from .filter import ScreenedSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from .order import ReceiveOrder, Transition
    from .source import Source

__all__ = ["Sieve"]

_AT_ONCE: Final = 100
"""How many messages come through a sieve at least, before it is seen that it has nothing to do any more."""


class Sieve(ScreenedSource):
    """Stands before the source of a consumer that looks at no message otherwise, from the first doubt on.

    Args:
        order: of the messages; it knows whether each has to be looked at now.
        source: gives the messages.
        drops: whether a C++ message is not for the application; it is called once for each, in their order.
    """

    _order: ReceiveOrder

    def __init__(self, order: ReceiveOrder, source: Source, drops: Callable[[Any], bool]) -> None:
        super().__init__(source, lambda inner: not drops(inner), order=order)

    def after(self, transition: Transition, /) -> None:
        """Drop what is kept: it is delivered again, or is not what was sought."""
        super().after(transition)
        self.unseen = self._unseen

    def renew(self, *_: Any) -> None:
        """Take from another C++ object; what is kept is delivered again."""
        super().renew()
        self.unseen = self._unseen
        """What was taken without a look, by who waited for it as the doubt began; anybody may append."""

    @property
    def is_at_work(self) -> bool:
        """Whether messages have to come from here: they are looked at, or some are kept."""
        return self._order.sieve is self or bool(self._unseen or self._ready)

    @property
    def fast(self) -> Any:
        """Return an iterator for those who look for a sieve after each message; it ends where it is of no more use."""
        return map(self.wait, repeat(POLL_MILLIS, _AT_ONCE)) if self.is_at_work else self._source.each

    def __next__(self) -> Any:
        return self.wait(POLL_MILLIS)

    def wait(self, millis: int) -> Any:
        """Wait for a message for the application.

        Raises:
            pulsar.Timeout: none came in time.
        """
        if not self.is_at_work:
            for inner in map(self._wait, (millis,)):
                if self._order.sieve is None:
                    return inner
                self._unseen.append(inner)
        return super().wait(millis)
