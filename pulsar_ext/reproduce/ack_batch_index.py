"""Acknowledging one message of a batch by its stored id acknowledges the whole batch."""

from __future__ import annotations

from ._support import END, RECEIVE_MILLIS, Client, Counts, Env, labels, send_batch

CLAIM = "acknowledging one message of a batch by its stored id leaves the others"
REFERENCE = "docs/acks.md#batches"
PROFILE = "batch-index-acks"

_MESSAGES = 10


def run(pulsar: Client, env: Env) -> Counts:
    """Receive a batch, acknowledge its first message by stored bytes, and receive the rest on a new connection."""
    topic, client = env.topic(), env.client(pulsar)
    sent = [f"message {number}" for number in range(_MESSAGES)]
    try:
        consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
        send_batch(client, topic, sent)
        first = consumer.receive(RECEIVE_MILLIS).message_id()
        consumer.acknowledge(pulsar.MessageId.deserialize(first.serialize()))
        consumer.close()
        client.create_producer(topic).send(END.encode())
        consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
        remaining = list(labels(consumer.receive))
    finally:
        client.close()
    return Counts.of(sent[1:], remaining)
