"""A program that ends without close() loses its last acknowledgements, and gets those messages again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._scenario import Counts, Scenario

if TYPE_CHECKING:
    from types import ModuleType

    from ._env import Env

__all__ = ["SCENARIO"]

_MESSAGES = 10
_PROGRAMS = [f"program-{number}" for number in range(10)]
"""One program may be lucky: acknowledgements are sent every 100 ms, and it may just have been time."""

_SECONDS = 15.0
_RECEIVE_MILLIS = 20_000
_open: list[object] = []
"""What a program's main module holds to the end."""


def acknowledge_and_leave(pulsar: ModuleType, env: Env, topic: str, subscription: str) -> int:
    """Receive everything, acknowledge it, and come to the end of the program."""
    client = env.client(pulsar)
    consumer = client.subscribe(topic, subscription)
    received = [consumer.receive(_RECEIVE_MILLIS) for _ in range(_MESSAGES)]
    _open.extend((client, consumer))
    for message in received:
        consumer.acknowledge(message)
    return len(received)


def run(pulsar: ModuleType, env: Env) -> Counts:
    """Let programs end like that, and count what the broker's cursors will have delivered again."""
    topic, client = env.topic(), env.client(pulsar)
    for name in _PROGRAMS:
        env.admin.create_subscription(topic, name, "earliest")
    try:
        producer = client.create_producer(topic)
        for number in range(_MESSAGES):
            producer.send(f"message {number}".encode())
    finally:
        client.close()
    outcomes = [env.apart(pulsar, acknowledge_and_leave, topic, name, seconds=_SECONDS) for name in _PROGRAMS]
    sent, delivered = _MESSAGES * len(_PROGRAMS), sum(outcome.value or 0 for outcome in outcomes)
    again = sum(env.left_over(topic, name)[0] for name in _PROGRAMS)
    ended = next((outcome.ended for outcome in outcomes if outcome.ended), "")
    return Counts(sent, delivered, lost=sent - delivered, duplicated=again, ended=ended)


SCENARIO = Scenario(
    name="exit-acknowledged",
    claim="a program that ends without close() does not get again what it has acknowledged",
    reference="docs/reproduce.md#exit-acknowledged",
    run=run,
)
