"""A reader with a receiver queue of one message that starts after a message reads nothing."""

from ._support import Client, Counts, Env, labels, numbered


def run(pulsar: Client, env: Env) -> Counts:
    """Send messages that are not batched, and read those after the first one."""
    topic, sent = env.topic(), numbered(5)
    with env.opened(pulsar) as client:
        producer = client.create_producer(topic)
        ids = [producer.send(text.encode()) for text in sent]
        reader = client.create_reader(topic, ids[0], receiver_queue_size=1)
        return Counts.of(sent[1:], labels(reader.read_next, millis=3000))
