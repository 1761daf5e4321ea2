"""Statistics of a consumer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from pulsar_ext._runtime.statistics import consumer_stats
from pulsar_ext.ids.topic_name import TopicName

from .moving import Moving

if TYPE_CHECKING:
    from pulsar_ext._runtime.statistics import ConsumerStats

__all__ = ["Measured"]


class Measured(Moving):
    """What a consumer says of itself, and the broker of it."""

    def subscribed_to(self) -> str:
        """Give what was subscribed to: a topic's full name, several joined by commas, or the text of a pattern.

        Where there are several topics, `topic()` is the official client's: a name of its own for each consumer.
        """
        topics = self._topics
        if isinstance(topics, re.Pattern):
            return str(topics.pattern)
        return ",".join(str(TopicName.parse(one)) for one in ([topics] if isinstance(topics, str) else topics))

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
