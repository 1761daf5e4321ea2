"""A chunked message whose producer loses its connection while sending it is confirmed, but never delivered."""

import contextlib
import time

import pulsar as official

from ._support import Client, Counts, Env, FaultProxy

_CUTS, _CHUNKS = 10, 50


def run(pulsar: Client, env: Env) -> Counts:
    """Ten times: send 50 chunks, cut the connection after a growing delay, and wait until they are confirmed."""
    topic, confirmed = env.topic(), []
    with FaultProxy(env.service_url) as proxy:
        client = env.client(pulsar, proxy.service_url)
        for number in range(_CUTS):
            producer = client.create_producer(topic, chunking_enabled=True)
            text = f"message {number}"
            producer.send_async(
                env.chunked(text, _CHUNKS),
                lambda result, _, text=text: confirmed.append(text) if result == official.Result.Ok else None,
            )
            time.sleep(number * 0.003)
            proxy.cut()
            with contextlib.suppress(official.PulsarException):
                producer.flush()
        with contextlib.suppress(official.PulsarException):
            client.close()
    return Counts.of(confirmed, set(env.stored(topic)))  # at least once
