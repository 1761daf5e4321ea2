"""One refused message of a batch takes the whole batch to the dead letter topic."""

from __future__ import annotations

import pulsar as official

from ._support import END, Client, Counts, Env, label, labels, send_batch

CLAIM = "a dead letter is the one message that was refused too often, not its batch"
REFERENCE = "docs/acks.md#redelivery-and-dead-letters"

_MESSAGES = 10
_REFUSED = "message 3"
_QUIET_MILLIS = 4_000


def run(pulsar: Client, env: Env) -> Counts:
    """Refuse the same message of a batch each time, acknowledge the others, and read the dead letter topic."""
    topic, client = env.topic(), env.client(pulsar)
    dead = f"{topic}-dead"
    try:
        consumer = client.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, dead),
        )
        letters = client.subscribe(dead, "letters")
        send_batch(client, topic, [f"message {number}" for number in range(_MESSAGES)])
        while True:
            try:
                message = consumer.receive(_QUIET_MILLIS)
            except official.Timeout:
                break
            if label(message) == _REFUSED:
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)
        client.create_producer(dead).send(END.encode())
        found = list(labels(letters.receive))
    finally:
        client.close()
    # Whatever else is among the letters was acknowledged by the application, and is handled twice.
    return Counts(sent=1, delivered=int(_REFUSED in found), lost=int(_REFUSED not in found), duplicated=len(found) - 1)
