"""What looks at the broker's side of one consumer now and then, from its opening until it is closed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.errors import AdminNotFound, AdminUnauthorized
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.receive.watch import Watch

if TYPE_CHECKING:
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ack.grouping import Acknowledger
    from pulsar_ext.receive.order import ReceiveOrder

__all__ = ["NOT_TO_BE_SEEN", "ConsumerWatch"]

NOT_TO_BE_SEEN: Final = (AdminNotFound, AdminUnauthorized)
"""What the admin API says of one of several topics that is gone, or not ours to see: the others are looked at."""
_APART_SECONDS: Final = 0.1


class ConsumerWatch(Watch):
    """Looks at a subscription.

    Args:
        context: of the consumer's client.
        order: of the consumer's messages.
        topics: what was subscribed to.
        subscription: its name.
        acks: the consumer's acknowledgements.
    """

    __slots__ = ("_acks", "_looks", "_subscription")

    def __init__(
        self, context: ClientContext, order: ReceiveOrder, topics: Any, subscription: str, acks: Acknowledger
    ) -> None:
        super().__init__(context, order, topics)
        self._subscription, self._acks = subscription, acks
        self._looks = 0

    def _look_in(self, seconds: float) -> None:
        """Look in so many seconds, at one of the times at which others look as well: the thread wakes once for all."""
        due = time.monotonic() + seconds
        self._context.inquiries.watch(self, seconds + -due % _APART_SECONDS)

    def _names(self) -> list[str]:
        """Give the names of the topics that are persistent; of a pattern those of which anything was acknowledged."""
        if isinstance(self._topics, str):
            names = [self._topics]
        elif isinstance(self._topics, list):
            names = self._topics
        else:
            names = [one.topic for one in self._acks.collector.by_topic]
        return [name for name in names if TopicName.parse(name).is_persistent]
