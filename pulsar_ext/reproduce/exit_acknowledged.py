"""A program that ends without close() loses its last acknowledgements, and gets those messages again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._env import END, labels
from ._scenario import Counts, Scenario

if TYPE_CHECKING:
    from types import ModuleType

    from ._env import Env

__all__ = ["SCENARIO"]

_MESSAGES = 100
_SECONDS = 15.0
_RECEIVE_MILLIS = 20_000
_open: list[object] = []
"""What a program's main module holds to the end."""


def acknowledge_and_leave(pulsar: ModuleType, env: Env, topic: str, count: int) -> list[str]:
    """Receive and acknowledge so many messages and come to the end of the program."""
    client = env.client(pulsar)
    consumer = client.subscribe(topic, "s")
    _open.extend((client, consumer))
    received = []
    for _ in range(count):
        message = consumer.receive(_RECEIVE_MILLIS)
        received.append(message.data().decode())
        consumer.acknowledge(message)
    return received


def run(pulsar: ModuleType, env: Env) -> Counts:
    """Let a process end like that, and count what the next process gets again."""
    topic, sent = env.topic(), [f"message {number}" for number in range(_MESSAGES)]
    env.admin.create_subscription(topic, "s", "earliest")
    client = env.client(pulsar)
    try:
        producer = client.create_producer(topic)
        for label in sent:
            producer.send_async(label.encode(), None)
        producer.flush()
        outcome = env.apart(pulsar, acknowledge_and_leave, topic, len(sent), seconds=_SECONDS)
        producer.send(END.encode())
        again = list(labels(client.subscribe(topic, "s").receive))
    finally:
        client.close()
    return Counts.of(sent, (outcome.value or []) + again, ended=outcome.ended)


SCENARIO = Scenario(
    name="exit-acknowledged",
    claim="a program that ends without close() does not get again what it has acknowledged",
    reference="docs/reproduce.md#exit-acknowledged",
    run=run,
)
