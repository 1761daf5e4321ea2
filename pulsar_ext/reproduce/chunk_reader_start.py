"""A reader that starts at a chunked message by an id rebuilt from numbers skips that message."""

from ._support import END, Client, Counts, Env, labels, rebuilt


def run(pulsar: Client, env: Env) -> Counts:
    """Send a plain and a chunked message, start a reader at the last one by its numbers, and read."""
    topic = env.topic()
    with env.opened(pulsar) as client:
        producer = client.create_producer(topic, chunking_enabled=True)
        producer.send(b"before")
        message_id = producer.send(env.chunked("last"))
        reader = client.create_reader(topic, rebuilt(pulsar, message_id), start_message_id_inclusive=True)
        producer.send(END.encode())
        return Counts.of(["last"], labels(reader.read_next))
