"""Redelivery delays that depend on the redelivery count."""

from __future__ import annotations

import pytest
from acked import TYPES, send_batches, send_plain
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared
LONG_MS, TIMEOUT_MS = 600_000, 10_000


@pytest.fixture
def recording_backoff():
    """A backoff that records its calls: short delays, then a very long one from the second redelivery on.

    Each negatively acknowledged message redelivers its whole batch, so the delay must suffice for all of them.
    """
    counts = []

    def backoff(count):
        counts.append(count)
        return 1_500 if count < 2 else LONG_MS

    backoff.counts = counts
    return backoff


def send_each_kind(client, topic):
    """Send a batch of three, a chunked message and an unbatched one: 0 to 2, 5 and 6."""
    send_batches(client, topic, 1, size=3)
    client.create_producer(topic, chunking_enabled=True).send(payload(5))
    client.create_producer(topic).send(payload(6, 20))


@pytest.mark.core(slow="delays of a backoff")
@pytest.mark.parametrize("type_", TYPES[2:])
def test_nack_backoff_delays_redelivery(client, topic, recording_backoff, type_):
    """Batched, chunked and unbatched messages are redelivered twice soon, and then only after ten minutes."""
    consumer = client.subscribe(
        topic, "s", type_, negative_ack_redelivery_delay_ms=LONG_MS, negative_ack_redelivery_backoff=recording_backoff
    )
    send_each_kind(client, topic)
    for count in range(3):
        messages = drain(consumer.receive, 5, quiet_millis=100)
        assert sorted(map(index_of, messages)) == [0, 1, 2, 5, 6]
        for message in messages:
            consumer.negative_acknowledge(message)
        assert recording_backoff.counts[-5:] == [count] * 5
    assert drain(consumer.receive, quiet_millis=3_000) == []


@pytest.mark.parametrize("type_", TYPES[:2])
def test_exclusive_redelivery_uses_the_first_delay(client, topic, recording_backoff, type_):
    """On an Exclusive or Failover subscription the broker counts no redeliveries, so the first delay always applies."""
    consumer = client.subscribe(topic, "s", type_, negative_ack_redelivery_backoff=recording_backoff)
    send_plain(client, topic, 1)
    for _ in range(4):
        consumer.negative_acknowledge(consumer.receive(10_000))
    assert consumer.receive(10_000).data() == payload(0, 20)
    assert recording_backoff.counts == [0] * 4


def test_messages_are_redelivered_in_order_of_delays(client, topic):
    """A message with a shorter delay is redelivered first; an id counts as never redelivered."""
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


def test_failing_backoff_keeps_the_message_unchanged(client, topic):
    """An exception or an invalid delay of the application's function reaches the caller, and nothing is redelivered."""
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
def test_timeout_backoff_delays_redelivery(client, topic, admin, type_):
    """Unacknowledged messages are redelivered after the timeout and the delay; acknowledged ones are not."""
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


def test_nacked_message_does_not_time_out(client, topic):
    """A message with a long negative acknowledgement delay is not redelivered by the acknowledgement timeout."""
    consumer = client.subscribe(
        topic,
        "s",
        SHARED,
        unacked_messages_timeout_ms=TIMEOUT_MS,
        ack_timeout_redelivery_backoff=lambda _: 0,
        negative_ack_redelivery_delay_ms=LONG_MS,
    )
    send_plain(client, topic, 2)
    nacked, late = drain(consumer.receive, 2)
    consumer.negative_acknowledge(nacked)
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
def test_invalid_backoff_opens_nothing(client, topic, admin, options):
    """A backoff that cannot be called, or needs a timeout, raises before anything is opened."""
    with pytest.raises(pulsar.InvalidUse):
        client.subscribe(topic, "s", SHARED, **options)
    with pytest.raises(pulsar.AdminNotFound):
        admin.stats(topic)
