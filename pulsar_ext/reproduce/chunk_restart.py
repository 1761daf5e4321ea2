"""A chunked message that a Shared subscription's consumer left half received comes to nobody who subscribes next."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pulsar as official

from ._env import label
from ._scenario import Counts, Scenario

if TYPE_CHECKING:
    from types import ModuleType

    from ._env import Env

__all__ = ["SCENARIO"]

_RESTARTS, _CHUNKS = 10, 200
_STEP_SECONDS = 0.002
"""How much later each consumer closes than the one before: some of them in the midst of a message."""
_RECEIVE_MILLIS = 5_000


def run(pulsar: ModuleType, env: Env) -> Counts:
    """Ten times: subscribe, send a message of 200 chunks, and close; then subscribe again, and receive."""
    sent = [f"message {number}" for number in range(_RESTARTS)]
    received: list[str] = []
    topics = [env.topic() for _ in sent]
    with contextlib.closing(env.client(pulsar)) as sending:
        for number, (topic, text) in enumerate(zip(topics, sent, strict=True)):
            client = env.client(pulsar)
            client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
            sending.create_producer(topic, chunking_enabled=True).send(env.chunked(text, _CHUNKS))
            time.sleep(number * _STEP_SECONDS)
            client.close()
    with contextlib.closing(env.client(pulsar)) as restarted:
        consumers = [restarted.subscribe(topic, "s", pulsar.ConsumerType.Shared) for topic in topics]
        for consumer in consumers:
            with contextlib.suppress(official.Timeout):
                received.append(label(consumer.receive(_RECEIVE_MILLIS)))
    return Counts.of(sent, received)


SCENARIO = Scenario(
    name="chunk-restart",
    claim="a chunked message that a consumer of a Shared subscription left half received comes to the next consumer",
    reference="SharedConsumerAssignor",
    run=run,
    profile="small-chunks",
)
