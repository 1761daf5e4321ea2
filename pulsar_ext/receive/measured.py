"""Statistics of a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pulsar_ext._runtime.statistics import consumer_stats

from .moving import Moving

if TYPE_CHECKING:
    from pulsar_ext._runtime.statistics import ConsumerStats

__all__ = ["Measured"]


class Measured(Moving):
    """What a consumer says of itself, and the broker of it."""

    def stats(self) -> ConsumerStats:
        """Give statistics of this consumer, which the admin API is asked for; mirrors Java's `Consumer.getStats`.

        Raises:
            AdminError: the admin API refused, or did not answer.
            pulsar.AlreadyClosed: it is closed.
        """
        self._context.callbacks.refuse("stats")
        self._refuse_closed()
        admin, consumer = self._context.admin_api(), cast("Any", self)
        return consumer_stats(
            [(topic, admin.stats(topic)) for topic in self._topics_read()],
            consumer.subscription_name(),
            consumer.consumer_name(),
            is_connected=consumer.is_connected(),
            pending_acks=consumer.pending_acks(),
        )
