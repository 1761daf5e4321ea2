"""A seek whose connection ends before the answer returns as if it had succeeded."""

import time

import pulsar as official

from ._support import END, Client, Counts, Env, FaultProxy, cut_during, labels, numbered


def run(pulsar: Client, env: Env) -> Counts:
    """Acknowledge all messages, seek back, retry if that raises, and receive them again."""
    topic, sent = env.topic(), numbered(10)
    with FaultProxy(env.service_url) as proxy, env.opened(pulsar, proxy) as client, env.opened(pulsar) as direct:
        producer = direct.create_producer(topic)
        consumer = client.subscribe(topic, "s")
        for text in sent:
            producer.send(text.encode())
            consumer.acknowledge(consumer.receive())
        with cut_during(proxy):
            for _ in range(20):
                try:
                    consumer.seek(pulsar.MessageId.earliest)
                    break
                except official.PulsarException:
                    time.sleep(0.2)
        producer.send(END.encode())
        return Counts.of(sent, labels(consumer.receive))
