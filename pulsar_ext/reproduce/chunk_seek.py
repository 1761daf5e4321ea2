"""A seek to a chunked message by an id rebuilt from numbers skips that message."""

from ._support import END, Client, Counts, Env, labels, rebuilt, send_all


def run(pulsar: Client, env: Env) -> Counts:
    """Send a chunked message and two plain ones, seek to the first by its numbers, and receive."""
    topic = env.topic()
    with env.opened(pulsar) as client:
        consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
        producer = client.create_producer(topic, chunking_enabled=True)
        sent = ["chunked", "second", "third"]
        message_id = producer.send(env.chunked(sent[0]))
        send_all(producer, (*sent[1:], END))
        consumer.seek(rebuilt(pulsar, message_id))
        return Counts.of(sent, labels(consumer.receive))
