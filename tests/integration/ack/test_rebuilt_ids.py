"""Acknowledging by ids without a partition: built from numbers, or of a producer of one partition."""

from __future__ import annotations

import pytest
from acked import send_batches
from chunked import drain, eventually

from pulsar_ext import MessageId

BOTH_CLIENTS = True


def id_from_numbers(message):
    """Return an id built from the message's numbers, without its partition."""
    ours = message.message_id()
    return MessageId(-1, ours.ledger_id(), ours.entry_id(), ours.batch_index())


def id_from_producer(message):
    """Return the id that a producer of the partition returns, serialized and deserialized."""
    return MessageId.deserialize(MessageId.from_dict({**message.message_id().to_dict(), "partition": -1}).serialize())


@pytest.mark.parametrize("rebuilt", [id_from_numbers, id_from_producer])
@pytest.mark.parametrize("alone", [True, False])
def test_ids_without_partition_complete_a_batch(client, pulsar_topic_factory, broker, admin, rebuilt, alone):
    """A batch acknowledged by a message and by ids without a partition but with a topic is complete."""
    topic = pulsar_topic_factory(partitions=2, broker=broker)
    partition = f"{topic}-partition-1"
    consumer = client.subscribe(partition if alone else topic, "s")
    send_batches(client, partition, 1, 3)
    first, *others = drain(consumer.receive, 3)
    consumer.acknowledge(first)
    for message in others:
        message_id = rebuilt(message)
        if not alone:
            message_id.topic_name(partition)
        consumer.acknowledge(message_id)
    consumer.flush_acks()
    assert eventually(lambda: admin.stats(partition).subscriptions["s"].backlog_entries == 0)
    consumer.close()
    assert drain(client.subscribe(partition if alone else topic, "s").receive) == []
