"""A pause of receiving: messages stay where they are, and receives wait as if none came.

Mirrors `pause()` and `resume()` of Java's `Consumer`. Nobody takes messages out of the receiver queue, and the broker
sends no more than it has room for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext._native.results import POLL_MILLIS, Timeout
from pulsar_ext._runtime.condition import Condition

from .order import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext._native.seek_gate import SeekGate

    from .order import ReceiveOrder

__all__ = ["Pause"]


class Pause(Part):
    """Where the receives of one consumer wait while its order is paused.

    Args:
        order: of the consumer's messages, which knows whether it is paused.
        gate: what the C++ consumer is asked through.
        listens: whether that has a listener; the gate must not be asked what is refused without one.
    """

    __slots__ = ("_changed", "_gate", "_listens", "_order")

    def __init__(self, order: ReceiveOrder, gate: SeekGate, *, listens: bool) -> None:
        self._order, self._gate, self._listens = order, gate, listens
        self._changed: Condition | None = None
        """Made by the first pause, for few consumers are ever paused. Where two threads make it at once, who waits on
        one of them looks again by itself."""

    def begin(self, inner: Any) -> None:
        """Hand out nothing from now on, nor have a listener of the C++ consumer called."""
        if self._changed is None:
            self._changed = Condition()
        self._order.pause()
        if self._listens:
            self._gate.ask(inner.pause_message_listener)

    def end(self, inner: Any) -> None:
        """Hand out again."""
        self._order.resume()
        changed = self._changed
        if changed is not None:
            with changed:
                changed.notify_all()
        if self._listens and not self._order.is_silent:
            self._gate.ask(inner.resume_message_listener)

    def silence(self, inner: Any) -> None:
        """Have the listener not called from now on, whether receives wait or not."""
        self._gate.ask(inner.pause_message_listener)
        self._order.is_silent = True

    def unsilence(self, inner: Any) -> None:
        """Have it called again, unless receives wait."""
        self._order.is_silent = False
        if not (self._order.is_paused and self._listens):
            self._gate.ask(inner.resume_message_listener)

    def wait(self, millis: int = POLL_MILLIS) -> None:
        """Wait until it is over, for so many milliseconds at most.

        Raises:
            pulsar.Timeout: it is not.
        """
        changed = self._changed
        if changed is not None:
            with changed:
                if self._order.is_paused:
                    changed.wait(millis / 1000)
        if self._order.is_paused:
            raise Timeout("Pulsar error: TimeOut")

    def renew(self, inner: Any, ahead: Iterator[Any], /) -> None:
        """Pause the listener of another C++ consumer as well."""
        del ahead
        if self._order.is_silent or (self._order.is_paused and self._listens):
            self._gate.ask(inner.pause_message_listener)
