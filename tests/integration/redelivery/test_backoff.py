"""How long a message waits for its redelivery goes by how often it was redelivered."""

from __future__ import annotations

import pytest
from acked import TYPES, send_batches, send_plain
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared
LONG_MS, TIMEOUT_MS = 600_000, 10_000


@pytest.fixture
def asked():
    """A backoff that writes down what it is asked for: short, but for good once a message came a third time.

    Each refused message of a batch has the batch come again: the time is for all of them to be refused.
    """
    counts = []

    def backoff(count):
        counts.append(count)
        return 1_500 if count < 2 else LONG_MS

    backoff.counts = counts
    return backoff


def send_each_kind(client, topic):
    """Send a batch of three, a chunked message and a plain one: 0 to 2, 5 and 6."""
    send_batches(client, topic, 1, size=3)
    client.create_producer(topic, chunking_enabled=True).send(payload(5))
    client.create_producer(topic).send(payload(6, 20))


@pytest.mark.core
@pytest.mark.parametrize("type_", TYPES[2:])
def test_a_refused_message_comes_as_often_as_the_backoff_lets_it(client, topic, asked, type_):
    """Twice soon, and then not before ten minutes are over: batches, chunked messages and plain ones."""
    consumer = client.subscribe(
        topic, "s", type_, negative_ack_redelivery_delay_ms=LONG_MS, negative_ack_redelivery_backoff=asked
    )
    send_each_kind(client, topic)
    for count in range(3):
        messages = drain(consumer.receive, 5, quiet_millis=100)
        assert sorted(map(index_of, messages)) == [0, 1, 2, 5, 6]
        for message in messages:
            consumer.negative_acknowledge(message)
        assert asked.counts[-5:] == [count] * 5
    assert drain(consumer.receive, quiet_millis=3_000) == []


@pytest.mark.parametrize("type_", TYPES[:2])
def test_where_everything_comes_again_nobody_counts(client, topic, asked, type_):
    """On an Exclusive or Failover subscription the broker counts no redeliveries: the first delay is for all."""
    consumer = client.subscribe(topic, "s", type_, negative_ack_redelivery_backoff=asked)
    send_plain(client, topic, 1)
    for _ in range(4):
        consumer.negative_acknowledge(consumer.receive(10_000))
    assert consumer.receive(10_000).data() == payload(0, 20)
    assert asked.counts == [0] * 4


def test_messages_come_in_the_order_of_their_delays(client, topic):
    """Who is refused later but waits shorter comes first; an id counts as one that was never redelivered."""
    consumer = client.subscribe(
        topic, "s", SHARED, negative_ack_redelivery_backoff=pulsar.MultiplierRedeliveryBackoff(200, LONG_MS, 20)
    )
    send_plain(client, topic, 2)
    first, second = drain(consumer.receive, 2)
    consumer.negative_acknowledge(first)
    again = consumer.receive(10_000)
    assert (index_of(again), again.redelivery_count()) == (0, 1)
    consumer.negative_acknowledge(again)  # 4 s
    consumer.negative_acknowledge(second.message_id())  # 200 ms
    assert [index_of(message) for message in drain(consumer.receive, 2)] == [1, 0]


def test_a_backoff_that_fails_refuses_nothing(client, topic):
    """What the application's function raises reaches the caller, and so does an answer that is no delay."""
    answers = [KeyError("nothing"), -1, 100]

    def backoff(_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_backoff=backoff)
    send_plain(client, topic, 1)
    message = consumer.receive(10_000)
    with pytest.raises(KeyError):
        consumer.negative_acknowledge(message)
    with pytest.raises(pulsar.InvalidUse, match="milliseconds"):
        consumer.negative_acknowledge(message)
    assert drain(consumer.receive) == []
    consumer.negative_acknowledge(message)
    assert index_of(consumer.receive(10_000)) == 0


@pytest.mark.parametrize("type_", [SHARED, pulsar.ConsumerType.Exclusive])
@pytest.mark.twin_on_demand
def test_a_late_message_comes_as_often_as_the_backoff_lets_it(client, topic, admin, type_):
    """What is not acknowledged in time comes again, what is acknowledged does not, and the delay is the count's own."""
    counts = []

    def backoff(count):
        counts.append(count)
        return 0 if count < 1 else LONG_MS

    consumer = client.subscribe(
        topic, "s", type_, unacked_messages_timeout_ms=TIMEOUT_MS, ack_timeout_redelivery_backoff=backoff
    )
    send_each_kind(client, topic)
    for message in drain(consumer.receive, 5):
        if index_of(message) == 6:
            consumer.acknowledge(message)
    again = {index_of(message): message for message in (consumer.receive(30_000) for _ in range(4))}
    assert sorted(again) == [0, 1, 2, 5]
    assert counts[:5] == [0] * 5
    if type_ is SHARED:
        assert {message.redelivery_count() for message in again.values()} == {1}
        assert drain(consumer.receive, quiet_millis=TIMEOUT_MS + 3_000) == []
    for message in again.values():
        consumer.acknowledge(message)
    consumer.flush_acks(confirm=True)
    assert eventually(lambda: not admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries)


def test_what_is_refused_is_not_late_as_well(client, topic):
    """A message that is refused for long is not asked for again because it was not acknowledged in time."""
    consumer = client.subscribe(
        topic,
        "s",
        SHARED,
        unacked_messages_timeout_ms=TIMEOUT_MS,
        ack_timeout_redelivery_backoff=lambda _: 0,
        negative_ack_redelivery_delay_ms=LONG_MS,
    )
    send_plain(client, topic, 2)
    refused, late = drain(consumer.receive, 2)
    consumer.negative_acknowledge(refused)
    assert index_of(consumer.receive(30_000)) == index_of(late)
    assert drain(consumer.receive, quiet_millis=2_000) == []


@pytest.mark.core
@pytest.mark.parametrize(
    "options",
    [
        {"negative_ack_redelivery_backoff": 100},
        {"ack_timeout_redelivery_backoff": 100, "unacked_messages_timeout_ms": TIMEOUT_MS},
        {"ack_timeout_redelivery_backoff": lambda _: 100},
    ],
)
def test_a_backoff_that_cannot_be(client, topic, admin, options):
    """What cannot be called, and a backoff of a timeout without a timeout: nothing is opened."""
    with pytest.raises(pulsar.InvalidUse):
        client.subscribe(topic, "s", SHARED, **options)
    with pytest.raises(pulsar.AdminNotFound):
        admin.stats(topic)
