"""A program that acknowledged all is killed and gets messages again: it cannot know which acknowledgements arrived."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from ._scenario import Counts, Scenario

if TYPE_CHECKING:
    from types import ModuleType

    from ._env import Env

__all__ = ["SCENARIO"]

_MESSAGES = 20
_PROGRAMS = [f"program-{number}" for number in range(5)]
"""One program may be lucky: acknowledgements are sent every 100 ms, and it may just have been time."""

_SECONDS = 20.0
_RECEIVE_MILLIS = 20_000


def acknowledge_and_die(pulsar: ModuleType, env: Env, topic: str, subscription: str) -> None:
    """Acknowledge everything, as surely as the client allows, and be killed the next moment."""
    consumer = env.client(pulsar).subscribe(topic, subscription)
    for _ in range(_MESSAGES):
        consumer.acknowledge(consumer.receive(_RECEIVE_MILLIS))
    if hasattr(consumer, "flush_acks"):
        consumer.flush_acks(confirm=True)
    os.kill(os.getpid(), signal.SIGKILL)


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
    for name in _PROGRAMS:
        env.apart(pulsar, acknowledge_and_die, topic, name, seconds=_SECONDS)
    sent = _MESSAGES * len(_PROGRAMS)
    return Counts(sent, sent, duplicated=sum(env.left_over(topic, name)[0] for name in _PROGRAMS))


SCENARIO = Scenario(
    name="ack-lost-on-crash",
    claim="a program that is killed does not get again what it has surely acknowledged",
    reference="docs/acks.md#with-a-receipt",
    run=run,
)
