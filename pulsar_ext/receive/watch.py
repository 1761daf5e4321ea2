"""Monitors of one consumer's or reader's state at the broker, from its opening until it is closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.admin import PulsarAdmin

from .order import Part, ReceiveOrder, Transition, TransitionSubscriber
from .seeks import Topics


class Watch(TransitionSubscriber, ABC):
    """Polls on the inquiry thread until the consumer or reader is closed."""

    _PATIENCE_SECONDS: ClassVar[float]
    """Timeout of a request to the admin API."""
    __slots__ = ("__weakref__", "_closed", "_context", "_order", "_topics")
    part = Part.MONITOR

    def __init__(self, context: ClientContext, order: ReceiveOrder, topics: Topics) -> None:
        self._context, self._order, self._topics = context, order, topics
        self._closed = False

    @abstractmethod
    def begin(self) -> None:
        """Begin polling soon."""

    @abstractmethod
    def tick(self, now: float) -> float | None:
        """Poll once; called by the scheduler."""

    def on_before(self, transition: Transition, /) -> None:
        """Stop polling before a close or an unsubscription."""
        if transition in (Transition.CLOSE, Transition.UNSUBSCRIPTION):
            self.close()

    def on_abandon(self, transition: Transition, /) -> None:
        """Continue after a failed unsubscription."""
        if transition is Transition.UNSUBSCRIPTION:
            self._closed = False
            self.begin()

    def close(self) -> None:
        """Stop polling."""
        self._closed = True

    def _admin(self) -> PulsarAdmin:
        return self._context.admin_api().within(self._PATIENCE_SECONDS)
