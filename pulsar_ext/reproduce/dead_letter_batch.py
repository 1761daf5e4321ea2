"""A negatively acknowledged message sends its whole batch to the dead letter topic."""

import pulsar as official

from ._support import END, Client, Counts, Env, label, labels, numbered, send_batch

_REJECTED = "message 3"


def run(pulsar: Client, env: Env) -> Counts:
    """Negatively acknowledge one message of a batch each time, acknowledge the others, and read the dead letters."""
    topic = env.topic()
    dead = f"{topic}-dead"
    with env.opened(pulsar) as client:
        consumer = client.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, dead),
        )
        letters = client.subscribe(dead, "letters")
        send_batch(client, topic, numbered(10))
        while True:
            try:
                message = consumer.receive(4_000)
            except official.Timeout:
                break
            if label(message) == _REJECTED:
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)
        client.create_producer(dead).send(END.encode())
        found = list(labels(letters.receive))
    # All other dead letters were acknowledged by the application, so they are processed twice.
    return Counts(
        sent=1, delivered=int(_REJECTED in found), lost=int(_REJECTED not in found), duplicated=len(found) - 1
    )
