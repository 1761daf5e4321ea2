"""A chunked message that a Shared subscription's consumer left half received comes to nobody who subscribes next."""

from __future__ import annotations

import contextlib
import time

import pulsar as official

from ._support import Client, Counts, Env, FaultProxy, label

CLAIM = "a chunked message that a consumer of a Shared subscription left half received comes to the next consumer"
REFERENCE = "SharedConsumerAssignor"
PROFILE = "small-chunks"

_CONSUMERS, _CHUNKS = 4, 100
_RECEIVE_SECONDS = 20.0


def run(pulsar: Client, env: Env) -> Counts:
    """Four times: a consumer is lost that has the beginning of a message of 100 chunks; then another one receives."""
    sent = [f"message {number}" for number in range(_CONSUMERS)]
    received: list[str] = []
    topics = [env.topic() for _ in sent]
    with contextlib.closing(env.client(pulsar)) as client, FaultProxy.to(env.service_url) as proxy:
        for topic, text in zip(topics, sent, strict=True):
            lost = env.client(pulsar, proxy.service_url)
            lost.subscribe(topic, "s", pulsar.ConsumerType.Shared)
            proxy.pause()  # the connection takes so much, and the broker delivers no more
            client.create_producer(topic, chunking_enabled=True).send(env.chunked(text, _CHUNKS))
            proxy.cut()
            proxy.resume()
            with contextlib.suppress(official.NotConnected):  # of the official client, now and then
                lost.close()
        consumers = [client.subscribe(topic, "s", pulsar.ConsumerType.Shared) for topic in topics]
        deadline = time.monotonic() + _RECEIVE_SECONDS
        for consumer in consumers:
            with contextlib.suppress(official.Timeout):
                left = max(deadline - time.monotonic(), 1.0)
                received.append(label(consumer.receive(int(1000 * left))))
    return Counts.of(sent, received)
