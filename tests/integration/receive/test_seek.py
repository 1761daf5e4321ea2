"""Seeks while messages are in flight, during acknowledgements, and on one of several partitions."""

from __future__ import annotations

import threading
import time

import pytest
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar
from pulsar_ext import MessageId

BOTH_CLIENTS = True
CHUNKED = 12_000_000
"""Size in bytes whose chunks are in flight for some tenths of a second."""


def opened(client, topic, what):
    """Return a consumer or a reader, and its receive."""
    if what == "reader":
        reader = client.create_reader(topic, MessageId.earliest, start_message_id_inclusive=True)
        return reader, reader.read_next
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    return consumer, consumer.receive


@pytest.mark.parametrize("what", ["consumer", "reader"])
@pytest.mark.parametrize("how", ["id", "earliest", "time"])
def test_seek_finds_messages_whose_chunks_are_in_flight(client, topic, what, how):
    """Each seek right after a send of chunks finds the chunked message, whole, and then the next one."""
    producer = client.create_producer(topic, chunking_enabled=True)
    handle, receive = opened(client, topic, what)
    for index in range(3):
        before = int(time.time() * 1000) - 1
        sought = producer.send(payload(2 * index, CHUNKED))
        producer.send(payload(2 * index + 1, 20))
        handle.seek({"id": sought, "earliest": MessageId.earliest, "time": before}[how])
        first = 0 if how == "earliest" else 2 * index
        assert [index_of(receive(20_000)) for _ in range(first, 2 * index + 2)] == list(range(first, 2 * index + 2))


@pytest.mark.core
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_seek_on_one_partition_keeps_the_others(client, admin, topic, type_):
    """After a seek to an id of one of three partitions, unread messages of the others arrive, and all can be acked."""
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution)
    consumer = client.subscribe(topic, "s", type_, receiver_queue_size=40, start_message_id_inclusive=True)
    ids = [producer.send(payload(index, 20)) for index in range(120)]
    seen = [consumer.receive(10_000) for _ in range(24)]
    consumer.acknowledge_many(seen)
    sought = next(one for one in ids if one.partition() == 0)
    consumer.seek(sought)
    of_sought = {index for index, one in enumerate(ids) if one.partition() == 0}
    expected = of_sought | (set(range(120)) - {index_of(one) for one in seen})
    again = drain(consumer.receive, len(expected))
    for message in again:
        consumer.acknowledge(message)
    assert {index_of(one) for one in again} == expected
    consumer.flush_acks(confirm=True)
    parts = [f"{topic}-partition-{index}" for index in range(3)]
    assert eventually(lambda: all(admin.stats(one).subscriptions["s"].backlog_entries == 0 for one in parts))


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_acks_around_a_seek_empty_the_backlog(client, admin, topic, type_):
    """While one thread receives and acknowledges, another seeks: all messages arrive, and the backlog empties."""
    count = 300
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=7)
    producer.send_many([payload(index, 20) for index in range(count)])
    consumer = client.subscribe(topic, "s", type_, initial_position=pulsar.InitialPosition.Earliest)
    received, stop = [], threading.Event()

    def work():
        while not stop.is_set():
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                continue
            received.append(index_of(message))
            consumer.acknowledge(message)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            eventually(lambda: len(received) >= 20)
            before = len(received)
            consumer.seek(MessageId.earliest)
            assert eventually(lambda seen=before: set(received[seen:]) == set(range(count)))
        # Messages that arrived during the last seek are redelivered.
        assert eventually(lambda: admin.stats(topic).subscriptions["s"].backlog_entries == 0)
    finally:
        stop.set()
        thread.join()
    consumer.flush_acks(confirm=True)
    assert admin.stats(topic).subscriptions["s"].backlog_entries == 0


@pytest.mark.core
@pytest.mark.parametrize("queue", [1000, 10])
@pytest.mark.parametrize("inclusive", [False, True])
def test_seek_into_a_batch_begins_at_its_message(client, topic, inclusive, queue):
    """Earlier messages of the sought message's batch are not delivered by any receive, and count as acknowledged."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=10)
    sent = []
    for index in range(30):
        producer.send_async(payload(index, 20), lambda _, one: sent.append(one))
    producer.flush()
    consumer = client.subscribe(
        topic,
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=queue,
        start_message_id_inclusive=inclusive,
    )
    first = 14 if inclusive else 15
    for receive in (
        lambda: [consumer.receive(10_000)],
        lambda: consumer.receive_many(5, 10_000),
        consumer.batch_receive,
    ):
        consumer.seek(sent[14])
        messages = receive()
        messages += drain(consumer.receive, 30 - first - len(messages))
        assert [index_of(one) for one in messages] == list(range(first, 30))
    consumer.acknowledge_many(messages)
    consumer.flush_acks(confirm=True)


@pytest.mark.through
def test_reader_of_all_partitions_rejects_a_partitions_id(client, admin, topic):
    """The seek would drop unread messages of other partitions: it raises, and every message still arrives."""
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution)
    ids = [producer.send(payload(index, 20)) for index in range(30)]
    reader = client.create_reader(topic, MessageId.earliest)
    first = reader.read_next(10_000)
    with pytest.raises(pulsar.InvalidUse, match="Create it with the topic in a list"):
        reader.seek(ids[4])
    assert {index_of(one) for one in [first, *drain(reader.read_next, 29)]} == set(range(30))
    reader.seek(MessageId.earliest)
    assert {index_of(one) for one in drain(reader.read_next, 30)} == set(range(30))
    reader.seek(1)
    assert {index_of(one) for one in drain(reader.read_next, 30)} == set(range(30))


def test_reader_without_queue_reads_whole_batches(client, topic):
    """With `receiver_queue_size=0` all messages of three batches of ten arrive, in order."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=10)
    for index in range(30):
        producer.send_async(payload(index, 20), None)
    producer.flush()
    reader = client.create_reader(topic, MessageId.earliest, receiver_queue_size=0)
    assert [index_of(one) for one in drain(reader.read_next, 30)] == list(range(30))


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_consumer_without_queue_receives_whole_batches(client, admin, topic, type_):
    """With `receiver_queue_size=0` batched and single messages arrive in order, and can be acknowledged."""
    consumer = client.subscribe(topic, "s", type_, receiver_queue_size=0)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=10)
    alone = client.create_producer(topic)
    for index in range(40):
        if index % 20 == 0:
            producer.flush()
            alone.send(payload(index, 20))
        else:
            producer.send_async(payload(index, 20), None)
    producer.flush()
    received = []
    while len(received) < 40:
        message = consumer.receive(10_000)
        received.append(index_of(message))
        consumer.acknowledge(message)
    assert received == list(range(40))
    assert not drain(consumer.receive)
    consumer.flush_acks(confirm=True)
    assert eventually(lambda: admin.stats(topic).subscriptions["s"].backlog_entries == 0)


@pytest.mark.core
@pytest.mark.parametrize("what", ["consumer", "reader"])
def test_seek_after_close_raises(client, topic, what):
    """A seek after a close raises `AlreadyClosed`, and opens nothing."""
    sought = client.create_producer(topic).send(payload(0, 20))
    handle, _ = opened(client, topic, what)
    handle.close()
    for target in (sought, MessageId.earliest, 1):
        with pytest.raises(pulsar.AlreadyClosed):
            handle.seek(target)
