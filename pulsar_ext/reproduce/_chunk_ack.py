"""What the two scenarios about acknowledging chunked messages share: they differ in the form of the id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._scenario import Counts

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from ._env import Env

__all__ = ["acknowledge_by"]

_MESSAGES = 3
_RECEIVE_MILLIS = 20_000


def acknowledge_by(form: Callable[[Any], Any], pulsar: ModuleType, env: Env) -> Counts:
    """Receive chunked messages, acknowledge each by that form of its id, close, and look at the broker's cursor."""
    topic, client = env.topic(), env.client(pulsar)
    try:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, chunking_enabled=True)
        sent = [f"message {number}" for number in range(_MESSAGES)]
        received = []
        for label in sent:
            producer.send(env.chunked(label))
            message = consumer.receive(_RECEIVE_MILLIS)
            received.append(message.data().decode().rstrip())
            consumer.acknowledge(form(message.message_id()))
        # Pending acknowledgements are sent by the time it is closed.
        consumer.close()
    finally:
        client.close()
    stuck, entries = env.left_over(topic, "s")
    return Counts.of(sent, received, stuck=stuck, note=f"{entries} chunks unacknowledged" if entries else "")
