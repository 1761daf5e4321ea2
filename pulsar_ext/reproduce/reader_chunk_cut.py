"""A reader skips the chunked message that waits in its queue when the connection ends."""

import time

from ._support import Client, Counts, Env, FaultProxy, label, labels, numbered


def run(pulsar: Client, env: Env) -> Counts:
    """Read one of several chunked messages, cut the connection while the others wait in the queue, and read on."""
    topic, sent = env.topic(), numbered(env.count(8, 3))
    with FaultProxy(env.service_url) as proxy, env.opened(pulsar, proxy) as client, env.opened(pulsar) as direct:
        producer = direct.create_producer(topic, chunking_enabled=True)
        for text in sent:
            producer.send(env.chunked(text))
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        read = [label(reader.read_next())]
        time.sleep(1)
        proxy.cut()
        time.sleep(1)
        read += labels(reader.read_next, millis=5000)
    return Counts.of(sent, read)
