"""What is to be consumed later comes again as a letter, whole and once, until it is a dead letter."""

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
    """Count what a subscription has left on a topic and its retry topic."""

    def backlog(topic):
        return sum(
            admin.stats(one, precise_backlog=True).subscriptions["s"].backlog_entries
            for one in (topic, retry_of(topic))
        )

    return backlog


def retry_of(topic):
    return f"{topic}-s-RETRY"


def subscribe(client, topic, type_=SHARED, most=2, **options):
    policy = pulsar.ConsumerDeadLetterPolicy(most)
    return client.subscribe(topic, "s", type_, enable_retry=True, dead_letter_policy=policy, **options)


def send_each_kind(client, topic):
    """Send a batch of five, a chunked message and a plain one: 0 to 6."""
    send_batches(client, topic, 1)
    client.create_producer(topic, chunking_enabled=True).send(
        payload(5), properties={"kept": "yes"}, partition_key="key", ordering_key="order", event_timestamp=7
    )
    client.create_producer(topic).send(payload(6, 20))


class TestLetters:
    """Letters carry what the message has."""

    @pytest.mark.core
    @pytest.mark.parametrize("type_", TYPES)
    @pytest.mark.through
    def test_each_message_comes_so_often_and_is_then_a_dead_letter(self, client, topic, backlog, type_):
        """Messages of a batch, a chunked and a plain one: each comes 1 + 2 times, and is then a dead letter."""
        consumer = subscribe(client, topic, type_)
        dead = client.subscribe(f"{topic}-s-DLQ", "d")
        send_each_kind(client, topic)
        for times in range(3):
            came = drain(consumer.receive, 7)
            assert sorted(index_of(message) for message in came) == list(range(7))
            for message in came:
                assert message.properties().get("RECONSUMETIMES", "0") == str(times)
                consumer.reconsume_later(message, DELAY_MS)
        letters = drain(dead.receive, 7)
        assert sorted(index_of(letter) for letter in letters) == list(range(7))
        assert {letter.properties()["RECONSUMETIMES"] for letter in letters} == {"3"}
        assert drain(consumer.receive) == []
        consumer.flush_acks(confirm=True)
        assert eventually(lambda: backlog(topic) == 0)

    @pytest.mark.core
    def test_a_letter_has_all_of_its_message(self, client, topic):
        """Properties, keys, time and payload are the message's, new properties win, and the origin stays the first."""
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
        """Of a partitioned topic and another one each message comes again once, and says which topic it is of."""
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

    def test_topics_of_other_names(self, client, topic):
        """Letters go where they are told to, and a dead letter topic gets the subscription that it is told."""
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

    def test_a_schema_goes_with_its_letters(self, client, topic):
        """A JSON record comes again as the same record, and so does a message without a value."""

        class Row(pulsar.schema.Record):
            number = pulsar.schema.Integer()

        schema = pulsar.schema.JsonSchema(Row)
        consumer = subscribe(client, topic, schema=schema)
        client.create_producer(topic, schema=schema).send(Row(number=4))
        consumer.reconsume_later(consumer.receive(10_000), 0)
        assert consumer.receive(10_000).value().number == 4

    def test_refused_and_later_lead_to_the_same_dead_letter_topic(self, client, topic):
        """A message that was consumed later and is then refused too often keeps its origin as a dead letter."""
        consumer = subscribe(client, topic, most=1, negative_ack_redelivery_delay_ms=100)
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
    def test_cumulatively(self, client, topic, backlog, type_):
        """The message comes again, and those before it do not; those behind it stay."""
        consumer = subscribe(client, topic, type_)
        send_plain(client, topic, 6)
        messages = drain(consumer.receive, 6)
        consumer.reconsume_later_cumulative(messages[3], 0)
        assert index_of(consumer.receive(10_000)) == 3
        consumer.flush_acks(confirm=True)
        assert eventually(lambda: backlog(topic) == 3)

    @pytest.mark.blocking_only("a listener's consumer is the blocking one's of that topic alone")
    def test_a_listener_may_consume_later(self, client, topic):
        """A listener has a message come again, which it hears as well."""
        heard, done = [], threading.Event()

        def listen(consumer, message):
            heard.append(message.properties().get("RECONSUMETIMES"))
            if len(heard) < 3:
                consumer.reconsume_later(message, 0)
            else:
                consumer.acknowledge(message)
                done.set()

        consumer = subscribe(client, topic, message_listener=listen)
        send_plain(client, topic, 1)
        assert done.wait(20)
        assert heard == [None, "1", "2"]
        consumer.close()


class TestRefusals:
    """What cannot be done changes nothing."""

    @pytest.mark.core
    @pytest.mark.parametrize("options", [
        {"delay_ms": -1},
        {"delay_ms": 1.5},
        {"delay_ms": True},
        {"delay_ms": 0, "properties": {"a": 1}},
        {"delay_ms": 0, "properties": ["a"]},
    ])  # fmt: skip
    def test_bad_arguments(self, client, topic, backlog, options):
        """A delay or properties that a letter cannot have: nothing is sent, and the message is not acknowledged."""
        consumer = subscribe(client, topic)
        send_plain(client, topic, 1)
        message = consumer.receive(10_000)
        with pytest.raises(pulsar.InvalidUse):
            consumer.reconsume_later(message, **options)
        consumer.flush_acks()
        assert drain(consumer.receive) == []
        assert backlog(topic) == 1

    def test_ids_other_topics_and_counts_that_are_none(self, client, topic, pulsar_topic_factory, broker):
        """An id has no data, another consumer's message is not this one's, and a count has to be one."""
        other = pulsar_topic_factory("other", broker=broker)
        consumer, stranger = subscribe(client, topic), subscribe(client, other)
        send_plain(client, other, 1)
        client.create_producer(topic).send(b"", properties={"RECONSUMETIMES": "often"})
        message, strange = consumer.receive(10_000), stranger.receive(10_000)
        for wrong in (message, message.message_id(), strange, None):
            with pytest.raises(pulsar.InvalidUse):
                consumer.reconsume_later(wrong, 0)
        assert drain(consumer.receive) == []

    def test_consumers_that_cannot(self, client, topic):
        """One without `enable_retry`, a cumulative call on a Shared subscription, and a closed one refuse."""
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
    def test_subscriptions_that_cannot(self, client, topic, admin, options):
        """A pattern has no retry topic, and the arguments have to fit: nothing is opened."""
        with pytest.raises(pulsar.InvalidUse):
            client.subscribe(**{"topic": topic, "subscription_name": "s", "consumer_type": SHARED, **options})
        with pytest.raises(pulsar.AdminNotFound):
            admin.stats(topic)

    def test_a_letter_that_is_not_persisted_acknowledges_nothing(self, client, topic, backlog, monkeypatch):
        """The error is raised, the message stays, and the next try succeeds."""
        consumer = subscribe(client, topic)
        send_plain(client, topic, 1)
        message = consumer.receive(10_000)
        with monkeypatch.context() as patched:
            patched.setattr(LetterProducers, "send", refuse)
            with pytest.raises(pulsar.PulsarException, match="not now"):
                consumer.reconsume_later(message, 0)
        consumer.flush_acks()
        assert backlog(topic) == 1
        consumer.reconsume_later(message, 0)
        assert consumer.receive(10_000).properties()["RECONSUMETIMES"] == "1"


def refuse(*_, **__):
    raise pulsar.PulsarException("not now")
