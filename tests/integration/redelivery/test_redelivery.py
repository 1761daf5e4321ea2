"""Redelivery of unacknowledged messages."""

from __future__ import annotations

import pytest
from acked import TYPES, send_batches, send_plain, with_dead_letters_after_two
from chunked import THREE_CHUNKS, drain, eventually, index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared


class TestRedelivery:
    """Negative acknowledgements and dead letters of whole messages."""

    @pytest.mark.core
    @pytest.mark.parametrize("type_", TYPES)
    def test_chunked_and_batched_messages_are_redelivered(self, client, topic, type_):
        """Negatively acknowledged messages are redelivered; acknowledged entries are not."""
        consumer = client.subscribe(topic, "s", type_, negative_ack_redelivery_delay_ms=100)
        send_batches(client, topic, 1)
        client.create_producer(topic, chunking_enabled=True).send(payload(5))
        client.create_producer(topic).send(payload(6, 20))
        messages = {index_of(message): message for message in drain(consumer.receive, 7)}
        consumer.acknowledge(messages[6])
        consumer.negative_acknowledge(messages[2])
        consumer.negative_acknowledge(messages[5].message_id())
        again = drain(consumer.receive, 6, quiet_millis=600)
        assert {index_of(message) for message in again} == {0, 1, 2, 3, 4, 5}

    def test_steady_nacks_do_not_delay_redelivery(self, client, topic):
        """Messages are redelivered while others are negatively acknowledged every few milliseconds."""
        consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=100)
        send_plain(client, topic, 60)
        again = 0
        for message in drain(consumer.receive, 60):
            consumer.negative_acknowledge(message)
            again += len(consumer.receive_many(100, 10))
        assert again > 0

    @pytest.mark.core
    def test_dead_letter_is_one_whole_message(self, client, topic, admin):
        """A letter has a single message of a batch, or a whole chunked message, which is acknowledged."""
        consumer = with_dead_letters_after_two(client, topic, "letters")
        send_batches(client, topic, 1)
        client.create_producer(topic, chunking_enabled=True).send(payload(5), properties={"kept": "yes"})
        dead, letters = client.subscribe(topic + "-dead", "letters", SHARED), []

        def both_are_dead():
            for message in consumer.receive_many(100, 200):
                is_nacked = index_of(message) in (3, 5)
                (consumer.negative_acknowledge if is_nacked else consumer.acknowledge)(message)
            letters.extend(drain(dead.receive, 0, 50))
            return len(letters) >= 2

        assert eventually(both_are_dead)
        assert sorted(index_of(letter) for letter in letters) == [3, 5]
        whole = next(letter for letter in letters if index_of(letter) == 5)
        assert len(whole.data()) == THREE_CHUNKS
        assert whole.properties()["kept"] == "yes"
        assert eventually(lambda: not admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries)

    def test_dead_letters_need_no_receive(self, client, topic):
        """Messages beyond their redeliveries become dead letters without a call of `receive()`."""
        policy = pulsar.ConsumerDeadLetterPolicy(1, topic + "-dead")
        consumer = client.subscribe(topic, "s", SHARED, dead_letter_policy=policy)
        dead = client.subscribe(topic + "-dead", "letters")
        send_plain(client, topic, 3)
        for _ in range(2):
            drain(consumer.receive, 3)
            consumer.redeliver_unacknowledged_messages()
        assert [index_of(letter) for letter in drain(dead.receive, 3)] == [0, 1, 2]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(100)

    @pytest.mark.twin_on_demand
    def test_chunked_message_times_out_whole(self, client, topic):
        """After `unacked_messages_timeout_ms` a chunked message is redelivered whole on the same connection."""
        consumer = client.subscribe(topic, "s", SHARED, unacked_messages_timeout_ms=10_000)
        producer = client.create_producer(topic, chunking_enabled=True)
        producer.send(payload(0))
        producer.send(payload(1))
        first = drain(consumer.receive, 2)
        consumer.acknowledge(first[0])
        assert [index_of(message) for message in drain(consumer.receive, 1, quiet_millis=1_000)] == [1]
