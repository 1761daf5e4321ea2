"""Acknowledging by ids that do not say their partition: of numbers, or of a producer of one partition alone."""

from __future__ import annotations

import pytest
from acked import send_batches
from chunked import drain, eventually

from pulsar_ext import MessageId

BOTH_CLIENTS = True


def numbers(message):
    """An id of the message's numbers, but for its partition."""
    ours = message.message_id()
    return MessageId(-1, ours.ledger_id(), ours.entry_id(), ours.batch_index())


def sent(message):
    """The id that a producer of the partition alone gives, stored and read again."""
    return MessageId.deserialize(MessageId.from_dict({**message.message_id().to_dict(), "partition": -1}).serialize())


@pytest.mark.parametrize("rebuilt", [numbers, sent])
@pytest.mark.parametrize("alone", [True, False])
def test_an_id_without_its_partition_counts_with_those_that_have_it(
    client, pulsar_topic_factory, broker, admin, rebuilt, alone
):
    """A batch acknowledged by a message and by such ids, which know their topic, is done and does not come again."""
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
