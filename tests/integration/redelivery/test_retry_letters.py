"""`reconsume_later()`: a message is redelivered as a letter, whole and once, until it becomes a dead letter."""

from __future__ import annotations

import re
import threading

import pytest
from acked import TYPES, send_batches, send_plain
from chunked import THREE_CHUNKS, drain, eventually, index_of, payload

import pulsar_ext as pulsar
from pulsar_ext.redelivery.letters import LetterProducers

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared
DELAY_MS = 100


@pytest.fixture
def backlog(admin):
    """Return a function that counts the backlog of a subscription on a topic and its retry topic."""

    def backlog(topic):
        return sum(
            admin.stats(one, precise_backlog=True).subscriptions["s"].backlog_entries
            for one in (topic, retry_of(topic))
        )

    return backlog


def retry_of(topic):
    return f"{topic}-s-RETRY"


def subscribe(client, topic, type_=SHARED, max_retries=2, **options):
    policy = pulsar.ConsumerDeadLetterPolicy(max_retries)
    return client.subscribe(topic, "s", type_, enable_retry=True, dead_letter_policy=policy, **options)


def send_each_kind(client, topic):
    """Send a batch of five, a chunked message and an unbatched one: 0 to 6."""
    send_batches(client, topic, 1)
    client.create_producer(topic, chunking_enabled=True).send(
        payload(5), properties={"kept": "yes"}, partition_key="key", ordering_key="order", event_timestamp=7
    )
    client.create_producer(topic).send(payload(6, 20))


class TestLetters:
    """Letters have everything that their message has."""

    @pytest.mark.core
    @pytest.mark.parametrize("type_", TYPES)
    @pytest.mark.through
    def test_message_becomes_dead_letter_after_its_retries(self, client, topic, backlog, type_):
        """Batched, chunked and unbatched messages are received 1 + 2 times, and then become dead letters."""
        consumer = subscribe(client, topic, type_)
        dead = client.subscribe(f"{topic}-s-DLQ", "d")
        send_each_kind(client, topic)
        for times in range(3):
            received = drain(consumer.receive, 7)
            assert sorted(index_of(message) for message in received) == list(range(7))
            for message in received:
                assert message.properties().get("RECONSUMETIMES", "0") == str(times)
                consumer.reconsume_later(message, DELAY_MS)
        letters = drain(dead.receive, 7)
        assert sorted(index_of(letter) for letter in letters) == list(range(7))
        assert {letter.properties()["RECONSUMETIMES"] for letter in letters} == {"3"}
        assert drain(consumer.receive) == []
        consumer.flush_acks(confirm=True)
        assert eventually(lambda: backlog(topic) == 0)

    @pytest.mark.core
    def test_letter_has_all_of_its_message(self, client, topic):
        """A letter has its message's payload, keys and event time; added properties win, and the first origin stays."""
        consumer = subscribe(client, topic)
        send_each_kind(client, topic)
        whole = next(message for message in drain(consumer.receive, 7) if index_of(message) == 5)
        origin = whole.message_id().to_text()
        consumer.reconsume_later(whole, DELAY_MS, {"why": "busy", "kept": "more"})
        for times in ("1", "2"):
            letter = consumer.receive(10_000)
            assert letter.data() == payload(5, THREE_CHUNKS)
            assert (letter.partition_key(), letter.ordering_key(), letter.event_timestamp()) == ("key", "order", 7)
            assert letter.properties() == {
                "kept": "more",
                "why": "busy",
                "REAL_TOPIC": topic,
                "REAL_SUBSCRIPTION": "s",
                "ORIGIN_MESSAGE_ID": origin,
                "ORIGIN_MESSAGE_IDY_TIME": origin,
                "RECONSUMETIMES": times,
                "DELAY_TIME": str(DELAY_MS),
            }
            assert letter.topic_name() == retry_of(topic)
            consumer.reconsume_later(letter, DELAY_MS)

    def test_partitions_and_several_topics_share_one_retry_topic(self, client, pulsar_topic_factory, broker):
        """Each message of a partitioned topic and another one is redelivered once, with its topic as a property."""
        parts = pulsar_topic_factory("parts", partitions=3, broker=broker)
        other = pulsar_topic_factory("other", broker=broker)
        consumer = subscribe(client, [parts, other])
        producer = client.create_producer(parts)
        for index in range(9):
            producer.send(payload(index, 20))
        send_plain(client, other, 3, start=9)
        for message in drain(consumer.receive, 12):
            consumer.reconsume_later(message, 0)
        letters = drain(consumer.receive, 12)
        assert {index_of(letter): letter.properties()["REAL_TOPIC"] for letter in letters} == {
            index: parts if index < 9 else other for index in range(12)
        }
        assert len(letters) == 12
        assert {letter.topic_name() for letter in letters} == {retry_of(min(parts, other))}

    def test_custom_letter_topics_are_used(self, client, topic):
        """Letters are sent to the named topics, and the dead letter topic gets its initial subscription."""
        policy = pulsar.ConsumerDeadLetterPolicy(1, topic + "-dead", "first")
        consumer = client.subscribe(
            topic, "s", SHARED, enable_retry=True, retry_letter_topic=topic + "-again", dead_letter_policy=policy
        )
        send_plain(client, topic, 1)
        consumer.reconsume_later(consumer.receive(10_000), 0)
        letter = consumer.receive(10_000)
        assert letter.topic_name() == topic + "-again"
        consumer.reconsume_later(letter, 0)
        assert index_of(client.subscribe(topic + "-dead", "first", SHARED).receive(10_000)) == 0

    def test_letter_keeps_its_schema(self, client, topic):
        """The letter of a JSON record has the same record."""

        class Row(pulsar.schema.Record):
            number = pulsar.schema.Integer()

        schema = pulsar.schema.JsonSchema(Row)
        consumer = subscribe(client, topic, schema=schema)
        client.create_producer(topic, schema=schema).send(Row(number=4))
        consumer.reconsume_later(consumer.receive(10_000), 0)
        assert consumer.receive(10_000).value().number == 4

    def test_retried_message_becomes_dead_letter_after_nacks(self, client, topic):
        """A retried message that is then negatively acknowledged too often keeps its origin as a dead letter."""
        consumer = subscribe(client, topic, max_retries=1, negative_ack_redelivery_delay_ms=100)
        dead = client.subscribe(f"{topic}-s-DLQ", "d")
        send_plain(client, topic, 1)
        first = consumer.receive(10_000)
        consumer.reconsume_later(first, 0)
        for _ in range(2):
            consumer.negative_acknowledge(consumer.receive(10_000))
        letter = dead.receive(10_000)
        assert letter.properties()["REAL_TOPIC"] == topic
        assert letter.properties()["ORIGIN_MESSAGE_ID"] == first.message_id().to_text()
        assert letter.properties()["RECONSUMETIMES"] == "1"

    @pytest.mark.core
    @pytest.mark.parametrize("type_", TYPES[:2])
    def test_reconsume_later_cumulative(self, client, topic, backlog, type_):
        """The message is redelivered, those before it are acknowledged, and those after it stay."""
        consumer = subscribe(client, topic, type_)
        send_plain(client, topic, 6)
        messages = drain(consumer.receive, 6)
        consumer.reconsume_later_cumulative(messages[3], 0)
        assert index_of(consumer.receive(10_000)) == 3
        consumer.flush_acks(confirm=True)
        assert eventually(lambda: backlog(topic) == 3)

    @pytest.mark.blocking_only("a listener gets the blocking consumer of its topic")
    def test_listener_may_reconsume_later(self, client, topic):
        """A listener can retry a message, which it then receives again."""
        delivered, done = [], threading.Event()

        def listen(consumer, message):
            delivered.append(message.properties().get("RECONSUMETIMES"))
            if len(delivered) < 3:
                consumer.reconsume_later(message, 0)
            else:
                consumer.acknowledge(message)
                done.set()

        consumer = subscribe(client, topic, message_listener=listen)
        send_plain(client, topic, 1)
        assert done.wait(20)
        assert delivered == [None, "1", "2"]
        consumer.close()


class TestErrors:
    """Invalid calls change nothing."""

    @pytest.mark.core
    @pytest.mark.parametrize("options", [
        {"delay_ms": -1},
        {"delay_ms": 1.5},
        {"delay_ms": True},
        {"delay_ms": 0, "properties": {"a": 1}},
        {"delay_ms": 0, "properties": ["a"]},
    ])  # fmt: skip
    def test_invalid_reconsume_arguments_raise(self, client, topic, backlog, options):
        """An invalid delay or invalid properties raise; nothing is sent or acknowledged."""
        consumer = subscribe(client, topic)
        send_plain(client, topic, 1)
        message = consumer.receive(10_000)
        with pytest.raises(pulsar.InvalidUse):
            consumer.reconsume_later(message, **options)
        consumer.flush_acks()
        assert drain(consumer.receive) == []
        assert backlog(topic) == 1

    def test_ids_foreign_messages_and_invalid_counts_raise(self, client, topic, pulsar_topic_factory, broker):
        """An id, a message of another consumer and an invalid retry count raise; nothing is sent."""
        other = pulsar_topic_factory("other", broker=broker)
        consumer, other_consumer = subscribe(client, topic), subscribe(client, other)
        send_plain(client, other, 1)
        client.create_producer(topic).send(b"", properties={"RECONSUMETIMES": "often"})
        message, other_message = consumer.receive(10_000), other_consumer.receive(10_000)
        for invalid in (message, message.message_id(), other_message, None):
            with pytest.raises(pulsar.InvalidUse):
                consumer.reconsume_later(invalid, 0)
        assert drain(consumer.receive) == []

    def test_unsuitable_consumers_raise(self, client, topic):
        """Consumers without `enable_retry` or closed, and a cumulative call on a Shared subscription, raise."""
        plain, shared = client.subscribe(topic, "p"), subscribe(client, topic)
        send_plain(client, topic, 1)
        message = plain.receive(10_000)
        with pytest.raises(pulsar.InvalidUse, match="enable_retry"):
            plain.reconsume_later(message, 0)
        with pytest.raises(pulsar.InvalidUse, match="enable_retry"):
            plain.reconsume_later_cumulative(message, 0)
        message = shared.receive(10_000)
        with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
            shared.reconsume_later_cumulative(message, 0)
        shared.close()
        with pytest.raises(pulsar.AlreadyClosed):
            shared.reconsume_later(message, 0)

    @pytest.mark.parametrize("options", [
        {"enable_retry": True, "topic": re.compile("persistent://public/default/a.*")},
        {"retry_letter_topic": "t"},
        {"enable_retry": True, "retry_letter_topic": ""},
        {"enable_retry": 1},
    ])  # fmt: skip
    def test_invalid_retry_subscriptions_open_nothing(self, client, topic, admin, options):
        """A pattern or invalid arguments raise before anything is opened."""
        with pytest.raises(pulsar.InvalidUse):
            client.subscribe(**{"topic": topic, "subscription_name": "s", "consumer_type": SHARED, **options})
        with pytest.raises(pulsar.AdminNotFound):
            admin.stats(topic)

    def test_failed_letter_acknowledges_nothing(self, client, topic, backlog, monkeypatch):
        """The error is raised, the message stays unacknowledged, and another call succeeds."""
        consumer = subscribe(client, topic)
        send_plain(client, topic, 1)
        message = consumer.receive(10_000)
        with monkeypatch.context() as patched:
            patched.setattr(LetterProducers, "send", fail)
            with pytest.raises(pulsar.PulsarException, match="not now"):
                consumer.reconsume_later(message, 0)
        consumer.flush_acks()
        assert backlog(topic) == 1
        consumer.reconsume_later(message, 0)
        assert consumer.receive(10_000).properties()["RECONSUMETIMES"] == "1"


def fail(*_, **__):
    raise pulsar.PulsarException("not now")
