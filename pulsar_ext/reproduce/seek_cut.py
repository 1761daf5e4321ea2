"""A seek whose connection ends before the answer returns as if it had succeeded."""

from __future__ import annotations

import time

import pulsar as official

from ._support import END, Client, Counts, Env, FaultProxy, cut_during, labels

CLAIM = "a seek that returns was done, also if the connection ended during it"
REFERENCE = "docs/reproduce.md#seek-cut"

_MESSAGES = 10
_TRIES = 20
_AGAIN_SECONDS = 0.2


def run(pulsar: Client, env: Env) -> Counts:
    """Acknowledge all messages, seek back, retry if that raises, and receive them again."""
    topic, direct = env.topic(), env.client(pulsar)
    sent = [f"message {number}" for number in range(_MESSAGES)]
    with FaultProxy.to(env.service_url) as proxy:
        client = env.client(pulsar, proxy.service_url)
        try:
            producer = direct.create_producer(topic)
            consumer = client.subscribe(topic, "s")
            for label in sent:
                producer.send(label.encode())
                consumer.acknowledge(consumer.receive())
            with cut_during(proxy):
                for _ in range(_TRIES):
                    try:
                        consumer.seek(pulsar.MessageId.earliest)
                        break
                    except official.PulsarException:
                        time.sleep(_AGAIN_SECONDS)
            producer.send(END.encode())
            return Counts.of(sent, labels(consumer.receive))
        finally:
            client.close()
            direct.close()
