"""After a lost connection, a reader with an inclusive start reads the last message of a batch again."""

import time

from ._support import Client, Counts, Env, FaultProxy, label, labels, numbered, send_batch


def run(pulsar: Client, env: Env) -> Counts:
    """Read a batch from its second message on, cut the connection at its end, and read until nothing arrives."""
    topic, sent = env.topic(), numbered(5)
    with FaultProxy(env.service_url) as proxy, env.opened(pulsar, proxy) as client, env.opened(pulsar) as direct:
        send_batch(direct, topic, sent)
        first = direct.create_reader(topic, pulsar.MessageId.earliest)
        start = [first.read_next().message_id() for _ in range(2)][-1]
        reader = client.create_reader(topic, start, start_message_id_inclusive=True)
        read = [label(reader.read_next()) for _ in sent[1:]]
        proxy.cut()
        time.sleep(1)
        read += labels(reader.read_next, millis=3000)
    return Counts.of(sent[1:], read)
