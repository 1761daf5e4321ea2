"""Acknowledgements during a disconnection are lost, although the client reconnects."""

from __future__ import annotations

import time

from ._support import RECEIVE_MILLIS, Client, Counts, Env, FaultProxy

CLAIM = "messages acknowledged during a disconnection are acknowledged after the reconnection"
REFERENCE = "docs/acks.md#disconnections"

_MESSAGES = 20
_DOWN_SECONDS, _BACK_SECONDS = 0.5, 5.0


def run(pulsar: Client, env: Env) -> Counts:
    """Receive, disconnect, acknowledge, reconnect, and read the broker's cursor."""
    topic, direct = env.topic(), env.client(pulsar)
    with FaultProxy.to(env.service_url) as proxy:
        client = env.client(pulsar, proxy.service_url)
        try:
            consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
            producer = direct.create_producer(topic)
            for number in range(_MESSAGES):
                producer.send(f"message {number}".encode())
            received = [consumer.receive(RECEIVE_MILLIS) for _ in range(_MESSAGES)]
            proxy.refuse()
            proxy.cut()
            for message in received:
                consumer.acknowledge(message)
            time.sleep(_DOWN_SECONDS)
            proxy.accept()
            time.sleep(_BACK_SECONDS)
            remaining, _ = env.left_over(topic, "s")
        finally:
            client.close()
            direct.close()
    return Counts(_MESSAGES, _MESSAGES, duplicated=remaining)
