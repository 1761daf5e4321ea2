"""Steps that the tests of prefetching share."""

from __future__ import annotations

from operator import length_hint

from chunked import drain, eventually, index_of, payload

COUNT = 1_000


def fill(client, topic, count=COUNT, start=0, size=1_000):
    """Send `count` messages in batches of `size`, or without batching if it is 1."""
    batches = {"batching_enabled": True, "batching_max_messages": size, "batching_max_publish_delay_ms": 5_000}
    producer = client.create_producer(topic, block_if_queue_full=True, **(batches if size > 1 else {}))
    for index in range(start, start + count):
        producer.send_async(payload(index, 20), None)
    producer.flush()
    producer.close()


def fetch_ahead(consumer):
    """Fetch once, as iterating at full speed does continuously."""
    assert eventually(lambda: consumer._prefetch.fetch(400))


def prefetched_count(consumer):
    """Return the number of prefetched messages."""
    return length_hint(consumer._prefetch._prefetched)


def rest_of(consumer, quiet_millis=500):
    """Return the numbers of all messages that still arrive."""
    return [index_of(message) for message in drain(consumer.receive, quiet_millis=quiet_millis)]
