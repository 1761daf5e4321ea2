"""What the two scenarios about skipping share: the official way is the broker's own skip, which counts entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulsar as official

from ._env import END, label
from ._scenario import Counts

if TYPE_CHECKING:
    from types import ModuleType

    from ._env import Env

__all__ = ["skip_and_receive"]

_RECEIVE_MILLIS = 20_000


def skip_and_receive(
    pulsar: ModuleType, env: Env, contents: list[bytes], count: int, **producer_options: Any
) -> Counts:
    """Send messages, skip the first of them, receive and acknowledge the rest, and look at the broker's cursor."""
    topic, client = env.topic(), env.client(pulsar)
    try:
        consumer = client.subscribe(topic, "s")
        consumer.close()
        producer = client.create_producer(topic, **producer_options)
        for content in contents:
            producer.send_async(content, lambda *_: None)
        producer.flush()
        if pulsar is official:
            env.admin.skip_entries(topic, "s", count)  # no client of any language has a skip of its own
        else:
            client.skip_messages(topic, "s", count)
        producer.send(END.encode())
        consumer, received = client.subscribe(topic, "s"), []
        while (message := consumer.receive(_RECEIVE_MILLIS)) and label(message) != END:
            received.append(label(message))
            consumer.acknowledge(message)
        consumer.acknowledge(message)
        # Pending acknowledgements are sent by the time it is closed.
        consumer.close()
    finally:
        client.close()
    stuck, entries = env.left_over(topic, "s")
    note = f"{entries} entries stay in the backlog" if entries else ""
    return Counts.of([content.decode().rstrip() for content in contents[count:]], received, stuck=stuck, note=note)
