"""The producers of one consumer's letters: whatever was received is sent on, whole, as it was encoded."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pulsar
from pulsar.schema import BytesSchema

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.schemas import passing_bytes
from pulsar_ext.schema.key_value import KeyValueSchema

if TYPE_CHECKING:
    from pulsar_ext._runtime.context import ClientContext

__all__ = ["LetterProducers"]


class LetterProducers:
    """One producer for each topic that letters go to, opened with the first letter.

    It sends in chunks what is too large, and a chunked letter is whole though its connection ends amid it.

    Args:
        context: of the consumer's client, which opens and closes them.
        schema: the consumer's, which the topics get.
    """

    def __init__(self, context: ClientContext, schema: Any) -> None:
        self._context = context
        # Letters are bytes already; of keys and values there is no schema that leaves a key as it is.
        self._passing = BytesSchema() if isinstance(schema, KeyValueSchema) else passing_bytes(schema)
        self._producers: dict[str, Any] = {}
        self._lock = Lock()
        self._closed = False

    def send(
        self, topic: str, inner: Any, properties: dict[str, str], *, delay_ms: int = 0, subscription: str | None = None
    ) -> None:
        """Send a C++ message to a topic, and wait until it is persisted.

        Args:
            topic: where it goes.
            inner: what was received.
            properties: the letter's.
            delay_ms: after how many milliseconds a Shared or Key_Shared subscription gets it.
            subscription: what the topic shall have as its first letter comes; None for nothing.

        Raises:
            pulsar.PulsarException: it was not persisted, or nobody knows whether it was.
        """
        producer = self._producer(topic, subscription)
        try:
            producer.send(
                None if inner.has_null_value() else inner.data(),
                properties=properties,
                partition_key=inner.partition_key() or None,
                ordering_key=inner.ordering_key() or None,
                event_timestamp=inner.event_timestamp() or None,
                deliver_after=timedelta(milliseconds=delay_ms) if delay_ms else None,
            )
        except BaseException:
            with self._lock:
                if producer.sender.closed and self._producers.get(topic) is producer:
                    del self._producers[topic]  # the next letter opens another one
            raise

    def send_dead(
        self, topic: str, inner: Any, properties: dict[str, str], of: str, initial_subscription: str | None
    ) -> None:
        """Send a C++ message to a dead letter topic, as `send()`, and tell of it.

        Args:
            topic: where it goes.
            inner: what was received.
            properties: the letter's.
            of: the subscription that it was received on.
            initial_subscription: what the topic shall have as its first letter comes; None for nothing.
        """
        self.send(topic, inner, properties, subscription=initial_subscription)
        self._context.tell("dead letter", inner.topic_name(), of, 1)

    def close(self) -> None:
        """Send no more letters."""
        with self._lock:
            self._closed = True
            producers = list(self._producers.values())
            self._producers.clear()
        for producer in producers:
            with contextlib.suppress(pulsar.PulsarException):
                producer.close()

    def _producer(self, topic: str, subscription: str | None) -> Any:
        known = self._producers.get(topic)
        if known is not None:
            return known
        opener = self._context.opener
        if subscription:
            with contextlib.suppress(pulsar.ConsumerBusy):  # it has a consumer of its own type: it is there
                opener.subscribe(
                    topic,
                    subscription,
                    pulsar.ConsumerType.Shared,
                    initial_position=pulsar.InitialPosition.Earliest,
                ).close()
        opened = opener.create_producer(topic, schema=self._passing, chunking_enabled=True, max_pending_messages=0)
        with self._lock:
            if not self._closed:
                known = self._producers.setdefault(topic, opened)
        if known is not opened:  # another thread was faster, or the consumer was closed
            opened.close()
        if known is None:
            raise pulsar.AlreadyClosed("Pulsar error: AlreadyClosed: the consumer of the letter's message is closed.")
        return known
