"""Acknowledgements during a disconnection are lost, although the client reconnects."""

import time

from ._support import RECEIVE_MILLIS, Client, Counts, Env, FaultProxy, numbered, send_all

_MESSAGES = 20
_DOWN_SECONDS, _BACK_SECONDS = 0.5, 5.0


def run(pulsar: Client, env: Env) -> Counts:
    """Receive, disconnect, acknowledge, reconnect, and read the broker's cursor."""
    topic = env.topic()
    with FaultProxy(env.service_url) as proxy, env.opened(pulsar, proxy) as client, env.opened(pulsar) as direct:
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        send_all(direct.create_producer(topic), numbered(_MESSAGES))
        received = [consumer.receive(RECEIVE_MILLIS) for _ in range(_MESSAGES)]
        proxy.refusing = True
        proxy.cut()
        for message in received:
            consumer.acknowledge(message)
        time.sleep(_DOWN_SECONDS)
        proxy.refusing = False
        time.sleep(_BACK_SECONDS)
        remaining, _ = env.left_over(topic, "s")
    return Counts(_MESSAGES, _MESSAGES, duplicated=remaining)
