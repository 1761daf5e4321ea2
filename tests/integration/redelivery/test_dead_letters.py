"""Messages that exceed their redeliveries become whole dead letters."""

from __future__ import annotations

import time

import pytest
from chunked import eventually

import pulsar_ext as pulsar

BOTH_CLIENTS = True


@pytest.mark.core
@pytest.mark.through
def test_chunked_message_becomes_a_whole_dead_letter(program):
    """A chunked dead letter, which ends the process of the C++ client, arrives whole here."""
    done = program(
        """
        client = connect()
        consumer = client.subscribe(
            topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, topic + "-dead"),
        )
        dead = client.subscribe(topic + "-dead", "d")
        client.create_producer(topic, chunking_enabled=True).send(b"x" * 250_000)
        consumer.negative_acknowledge(consumer.receive(20_000))
        consumer.negative_acknowledge(consumer.receive(20_000))
        print(len(dead.receive(20_000).data()))
        client.close()
        """
    )
    assert done.returncode == 0, done.stderr
    assert "250000" in done.stdout.split()


@pytest.mark.core
@pytest.mark.parametrize(
    "options",
    [
        {"unacked_messages_timeout_ms": 60_000},  # screens every message
        {"negative_ack_redelivery_delay_ms": 2500},
        {"batch_index_ack_enabled": True},
    ],
)
def test_nacked_message_of_a_batch_becomes_a_dead_letter(client, topic, options):
    """Only the negatively acknowledged message becomes a letter; the others of its batch are acknowledged."""
    policy = pulsar.ConsumerDeadLetterPolicy(2, topic + "-dead")
    options = {"negative_ack_redelivery_delay_ms": 100, **options}
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, dead_letter_policy=policy, **options)
    dead = client.subscribe(topic + "-dead", "d")
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for content in (b"0", b"1", b"refused", b"3", b"4"):
        producer.send_async(content, None)
    producer.flush()
    counts = []
    while 2 not in counts and len(counts) < 8:  # on a busy machine the broker may redeliver more often
        message = consumer.receive(20_000)
        if message.data() == b"refused":
            counts.append(message.redelivery_count())
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    assert counts[-1] == 2
    assert dead.receive(20_000).data() == b"refused"


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
def test_batch_receive_includes_screened_messages(client, topic, type_):
    """Messages screened ahead with a dead letter policy begin the first received batch."""
    consumer = client.subscribe(topic, "s", type_, dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(3))
    producer = client.create_producer(topic)
    for index in range(10):
        producer.send(b"%d" % index, partition_key="one")
    time.sleep(0.5)  # the consumer screens ahead
    received = []
    for index in range(10, 30):
        received += consumer.batch_receive()
        producer.send(b"%d" % index, partition_key="one")
    assert eventually(lambda: received.extend(consumer.batch_receive()) or len(received) >= 30)
    assert [message.data() for message in received] == [b"%d" % index for index in range(30)]
