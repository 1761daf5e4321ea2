"""A chunked message that a Shared consumer received incompletely is never delivered to the next consumer."""

import contextlib
import time

import pulsar as official

from ._support import Client, Counts, Env, FaultProxy, label, numbered

_CONSUMERS, _CHUNKS = 4, 100


def run(pulsar: Client, env: Env) -> Counts:
    """Four times: disconnect a consumer that has the beginning of a message of 100 chunks, and receive with another."""
    sent, received = numbered(_CONSUMERS), []
    topics = [env.topic() for _ in sent]
    with env.opened(pulsar) as client, FaultProxy(env.service_url) as proxy:
        for topic, text in zip(topics, sent, strict=True):
            lost = env.client(pulsar, proxy.service_url)
            lost.subscribe(topic, "s", pulsar.ConsumerType.Shared)
            proxy.paused = True  # the broker delivers until the connection's buffers are full
            client.create_producer(topic, chunking_enabled=True).send(env.chunked(text, _CHUNKS))
            proxy.cut()
            proxy.paused = False
            with contextlib.suppress(official.NotConnected):  # the official client raises it sometimes
                lost.close()
        consumers = [client.subscribe(topic, "s", pulsar.ConsumerType.Shared) for topic in topics]
        deadline = time.monotonic() + 20.0
        for consumer in consumers:
            with contextlib.suppress(official.Timeout):
                remaining = max(deadline - time.monotonic(), 1.0)
                received.append(label(consumer.receive(int(1000 * remaining))))
    return Counts.of(sent, received)
