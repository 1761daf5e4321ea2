"""Looking for partitions that were added, where an interceptor wants to hear of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulsar

if TYPE_CHECKING:
    from pulsar_ext._runtime.context import ClientContext

    from .chain import Chain

__all__ = ["PartitionWatch", "look_after"]

_LOOK_SECONDS = 60.0
"""As often as the official client looks for them."""


class PartitionWatch:
    """Counts the partitions of topics from time to time.

    Args:
        context: of the client.
        chain: the interceptors.
        topics: their names.
    """

    def __init__(self, context: ClientContext, chain: Chain[Any], topics: list[str]) -> None:
        self._context, self._chain, self._topics = context, chain, topics
        self._known: dict[str, int] = {}
        self._closed = False

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # it looks whenever it is called
        """Look, and tell the interceptors; give after how many seconds to look again, None for never."""
        if self._closed or self._chain.shown is None:
            return None
        for topic in self._topics:
            try:
                count = len(self._context.opener.get_topic_partitions(topic))
            except pulsar.PulsarException:  # the broker is away, and is asked again
                continue
            known, self._known[topic] = self._known.get(topic, count), count
            if count > known:  # fewer: the client is connected to another cluster
                self._chain.partitions_changed(topic, count)
        return _LOOK_SECONDS

    def close(self) -> None:
        """Look no more."""
        self._closed = True


def look_after(context: ClientContext, chain: Chain[Any], topics: Any) -> None:
    """Close interceptors with their client, and tell them of partitions that are added, if one wants to know.

    Args:
        context: of the client.
        chain: the interceptors.
        topics: what is opened: a topic, a list, or a pattern, which has no partitions.
    """
    context.chains.add(chain)
    if chain.hears("on_partitions_change") and isinstance(topics, str | list):
        watch = chain.watch = PartitionWatch(context, chain, [topics] if isinstance(topics, str) else topics)
        context.inquiries.watch(watch)
