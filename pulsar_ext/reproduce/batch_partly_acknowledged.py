"""A batch that was acknowledged in part stays in the backlog though all the rest of it was acknowledged."""

from __future__ import annotations

import time

from ._support import END, RECEIVE_MILLIS, Client, Counts, Env, labels, send_batch

CLAIM = "a batch is done when several consumers, each with its way to acknowledge, have acknowledged all of it"
REFERENCE = "docs/acks.md#batches"
PROFILE = "batch-index-acks"

_MESSAGES, _BEFORE = 10, 4
_LEFT_SECONDS = 5.0


def run(pulsar: Client, env: Env) -> Counts:
    """Acknowledge four of a batch inside it, the other six by another consumer, and receive on a third connection."""
    topic, client = env.topic(), env.client(pulsar)
    sent = [f"message {number}" for number in range(_MESSAGES)]
    try:
        consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
        send_batch(client, topic, sent)
        for _ in range(_BEFORE):
            consumer.acknowledge(consumer.receive(RECEIVE_MILLIS))
        consumer.close()
        consumer = client.subscribe(topic, "s")
        received = []
        for _ in sent[_BEFORE:]:
            message = consumer.receive(RECEIVE_MILLIS)
            received.append(message.data().decode())
            consumer.acknowledge(message)
        time.sleep(_LEFT_SECONDS)
        stuck, _ = env.left_over(topic, "s")
        consumer.close()
        client.create_producer(topic).send(END.encode())
        received += labels(client.subscribe(topic, "s").receive)
    finally:
        client.close()
    return Counts.of(sent[_BEFORE:], received, stuck=stuck)
