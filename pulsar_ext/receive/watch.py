"""What looks at the broker's side of one consumer or reader now and then, from its opening until it is closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from .order import Part, Transition

if TYPE_CHECKING:
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import PulsarAdmin

    from .order import ReceiveOrder

__all__ = ["Watch"]


class Watch(Part, ABC):
    """Looks on the thread of inquiries, and no more once what it looks at is closed.

    Args:
        context: of the client.
        order: of the messages.
        topics: what is read.
    """

    _PATIENCE_SECONDS: ClassVar[float]
    """How long an answer of the admin API may take."""
    __slots__ = ("__weakref__", "_closed", "_context", "_order", "_topics")

    def __init__(self, context: ClientContext, order: ReceiveOrder, topics: Any) -> None:
        self._context, self._order, self._topics = context, order, topics
        self._closed = False

    @abstractmethod
    def begin(self) -> None:
        """Look soon."""

    @abstractmethod
    def tick(self, now: float) -> float | None:
        """Look; the scheduler's call."""

    def before(self, transition: Transition, /) -> None:
        """Look no more after a close."""
        if transition in (Transition.CLOSE, Transition.UNSUBSCRIPTION):
            self.close()

    def abandon(self, transition: Transition, /) -> None:
        """Go on: it is still open."""
        if transition is Transition.UNSUBSCRIPTION:
            self._closed = False
            self.begin()

    def close(self) -> None:
        """Look no more."""
        self._closed = True

    def _admin(self) -> PulsarAdmin:
        return self._context.admin_api().within(self._PATIENCE_SECONDS)
