"""Acknowledging one message of a batch by its stored id acknowledges the whole batch."""

from ._support import END, RECEIVE_MILLIS, Client, Counts, Env, labels, numbered, send_batch


def run(pulsar: Client, env: Env) -> Counts:
    """Receive a batch, acknowledge its first message by stored bytes, and receive the rest on a new connection."""
    topic, sent = env.topic(), numbered(10)
    with env.opened(pulsar) as client:
        consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
        send_batch(client, topic, sent)
        first = consumer.receive(RECEIVE_MILLIS).message_id()
        consumer.acknowledge(pulsar.MessageId.deserialize(first.serialize()))
        consumer.close()
        client.create_producer(topic).send(END.encode())
        consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
        remaining = list(labels(consumer.receive))
    return Counts.of(sent[1:], remaining)
