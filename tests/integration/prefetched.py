"""Steps that the tests of prefetching share."""

from __future__ import annotations

from operator import length_hint

from chunked import drain, eventually, index_of, payload

COUNT = 1_000


def fill(client, topic, count=COUNT, start=0, size=1_000):
    """Send messages in batches of a size, or without."""
    batches = {"batching_enabled": True, "batching_max_messages": size, "batching_max_publish_delay_ms": 5_000}
    producer = client.create_producer(topic, block_if_queue_full=True, **(batches if size > 1 else {}))
    for index in range(start, start + count):
        producer.send_async(payload(index, 20), None)
    producer.flush()
    producer.close()


def fetch_ahead(consumer):
    """Do once what iterating at full speed does all the time."""
    assert eventually(consumer._prefetch.fetch)


def is_ahead(consumer):
    """How many messages are ahead."""
    return length_hint(consumer._prefetch._kept)


def rest_of(consumer, quiet_millis=500):
    """The numbers of all messages that still come."""
    return [index_of(message) for message in drain(consumer.receive, quiet_millis=quiet_millis)]
