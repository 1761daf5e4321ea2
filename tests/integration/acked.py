"""Steps shared by the tests of acknowledgements."""

from __future__ import annotations

from chunked import acknowledged, payload

import pulsar_ext as pulsar

TYPES = [
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.KeyShared,
]


def send_batches(client, topic, batches=4, size=5):
    """Send `batches` entries of `size` messages each."""
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=size, batching_max_publish_delay_ms=5_000
    )
    for index in range(batches * size):
        producer.send_async(payload(index, 20), None)
    producer.flush()
    producer.close()


def send_plain(client, topic, count, start=0):
    """Send unbatched messages."""
    producer = client.create_producer(topic)
    for index in range(start, start + count):
        producer.send_async(payload(index, 20), None)
    producer.flush()


def cursor_of(admin, topic):
    """Return the entry ids that the cursor shows as acknowledged, in a topic of one ledger."""
    return {position.entry_id for position in acknowledged(admin, topic, "s")}


def with_dead_letters_after_two(client, topic, *initial_subscription):
    """Subscribe with a policy that makes a dead letter of a message after two negative acknowledgements."""
    return client.subscribe(
        topic,
        "s",
        pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, topic + "-dead", *initial_subscription),
    )
