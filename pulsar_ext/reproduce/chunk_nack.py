"""A negatively acknowledged chunked message on a Shared subscription is never redelivered on that connection."""

import pulsar as official

from ._support import Client, Counts, Env, label

_RECEIVE_MILLIS = 8_000


def run(pulsar: Client, env: Env) -> Counts:
    """Negatively acknowledge chunked messages, and acknowledge redelivered ones on the same connection."""
    topic, sent = env.topic(), ["first", "second"]
    received = []
    with env.opened(pulsar) as client:
        consumer = client.subscribe(
            topic, "s", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100
        )
        producer = client.create_producer(topic, chunking_enabled=True)
        for text in sent:
            producer.send(env.chunked(text))
        for _ in sent:
            consumer.negative_acknowledge(consumer.receive(_RECEIVE_MILLIS))
        for _ in sent:
            try:
                message = consumer.receive(_RECEIVE_MILLIS)
            except official.Timeout:
                break
            received.append(label(message))
            consumer.acknowledge(message)
        consumer.close()
    stuck, _ = env.left_over(topic, "s")
    # A message that was not redelivered is not lost: another connection receives it from the backlog.
    return Counts(
        sent=len(sent), delivered=len(set(received)), duplicated=len(received) - len(set(received)), stuck=stuck
    )
