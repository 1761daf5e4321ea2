"""Chunked messages that a consumer left half received: they come, to the same consumer or to the next one."""

from __future__ import annotations

import contextlib
import time

import httpx2
import pulsar as official
import pytest
from chunked import drain, eventually, index_of, payload
from reach import official_client

import pulsar_ext as pulsar

SHARED = pulsar.ConsumerType.Shared
ROUNDS, SIZE = 10, 10_000_000
STEP_SECONDS = 0.002
SETTLE_SECONDS = 2.0


def _strand(proxy, broker, producer, topics):
    """Have a consumer of each topic get the beginning of its message, and end."""
    for round_, topic in enumerate(topics):
        client = official_client(broker, proxy.service_url)
        client.subscribe(topic, "s", SHARED)
        proxy.pause()  # the connection takes so much, and the broker delivers no more
        producer(topic).send(payload(round_, SIZE))
        proxy.cut()
        proxy.resume()
        with contextlib.suppress(official.NotConnected):  # its connection may end amid the broker's answer
            client.close()


def _is_stranded(admin, topic):
    stats = admin.stats(topic, precise_backlog=True).subscriptions["s"]
    return stats.consumers and stats.backlog_entries > stats.held_messages


@pytest.fixture
def topics(topic):
    """A topic for each round."""
    return [f"{topic}-{round_}" for round_ in range(ROUNDS)]


def _producing(client):
    return lambda topic: client.create_producer(topic, chunking_enabled=True)


@pytest.mark.core(slow="a connection is lost")
def test_what_a_lost_consumer_had_half_comes_to_the_next_one(pulsar_fault_proxy, broker, client, topics):
    """Three consumers are lost amid a message of a hundred chunks; each next one gets it, whole."""
    _strand(pulsar_fault_proxy(broker), broker, _producing(client), topics[:3])
    consumers = [client.subscribe(topic, "s", SHARED) for topic in topics[:3]]
    assert [index_of(consumer.receive(20_000)) for consumer in consumers] == [0, 1, 2]


def test_other_consumers_are_named_as_what_keeps_a_message(pulsar_fault_proxy, broker, client, admin, topics, caplog):
    """While another consumer keeps the broker from beginning anew, the log says so; when it has left, it comes."""
    proxy = pulsar_fault_proxy(broker)
    other = official_client(broker)

    def is_stranded(topic):
        """Whether the message was half sent as the first consumer ended; else the other one gets it in a moment."""
        _strand(proxy, broker, _producing(client), [topic])
        other.subscribe(topic, "s", SHARED)
        time.sleep(SETTLE_SECONDS)
        return _is_stranded(admin, topic)

    topic = next(filter(is_stranded, topics))
    ours = client.subscribe(topic, "s", SHARED)
    try:
        assert eventually(lambda: any("other consumers keep it" in text for text in caplog.messages))
    finally:
        other.close()
    assert index_of(ours.receive(60_000)) == 0


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover, SHARED])
def test_what_a_lost_connection_halved_comes_whole(
    pulsar_fault_proxy, pulsar_client_factory, broker, client, topic, type_
):
    """Connections are cut six times sooner and later amid a message of a hundred chunks; every message comes."""
    proxy = pulsar_fault_proxy(broker)
    consumer = pulsar_client_factory(broker, service_url=proxy.service_url).subscribe(topic, "s", type_)
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(payload(0))
    consumer.acknowledge(consumer.receive(10_000))
    came = set()

    def comes(index):
        messages = consumer.receive_many(10, 200)
        came.update(map(index_of, messages))
        consumer.acknowledge_many(messages)
        return index in came

    for round_ in range(1, 7):
        producer.send(payload(round_, SIZE))
        time.sleep(round_ * STEP_SECONDS)
        proxy.cut()
        assert eventually(lambda index=round_: comes(index))


def test_what_a_seek_halved_on_a_shared_subscription_comes_whole(client_factory, broker, client, topics):
    """Ten seeks to a message of a hundred chunks, sooner and later amid it, bring each of them."""
    for round_, topic in enumerate(topics):
        consumer = client_factory(broker).subscribe(topic, "s", SHARED, start_message_id_inclusive=True)
        message_id = _producing(client)(topic).send(payload(round_, SIZE))
        time.sleep(round_ * STEP_SECONDS)
        consumer.seek(message_id)
        assert index_of(consumer.receive(10_000)) == round_


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_what_a_redelivery_halved_comes_whole(client_factory, broker, client, topics, type_):
    """Ten redeliveries that are asked for sooner and later amid a message of a hundred chunks bring each of them."""
    for round_, topic in enumerate(topics):
        consumer = client_factory(broker).subscribe(topic, "s", type_)
        _producing(client)(topic).send(payload(round_, SIZE))
        time.sleep(round_ * STEP_SECONDS)
        consumer.redeliver_unacknowledged_messages()
        assert index_of(consumer.receive(10_000)) == round_


@pytest.mark.parametrize("partitions", [0, 2])
def test_chunks_without_their_beginning_leave_the_backlog(client, broker, admin, topic, partitions):
    """Of a message whose first chunk alone is acknowledged the others are too, and of no other message a chunk is."""
    part = topic
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
        part += "-partition-1"
    ids = [_producing(client)(part).send(payload(index)) for index in range(3)]
    plain = official_client(broker)
    exclusive = plain.subscribe(part, "s", initial_position=pulsar.InitialPosition.Earliest)
    first = ids[1].first_chunk_message_id()
    exclusive.acknowledge(official.MessageId(-1, first.ledger_id(), first.entry_id(), -1))
    assert eventually(lambda: admin.stats(part, precise_backlog=True).subscriptions["s"].backlog_entries == 8)
    plain.close()
    consumer = client.subscribe(topic, "s", SHARED)
    assert {index_of(message) for message in drain(consumer.receive, 2)} == {0, 2}
    assert eventually(lambda: admin.stats(part, precise_backlog=True).subscriptions["s"].backlog_entries == 6)


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_one_that_is_given_nothing_is_opened_anew(broker, client, topic, caplog, type_):
    """A broker that delivers nothing behind a redelivery, for a rate it was set, is asked by another C++ consumer."""
    consumer = client.subscribe(topic, "s", type_, negative_ack_redelivery_delay_ms=100)
    producer = client.create_producer(topic)
    for index in range(5):
        producer.send(b"%d" % index)
    messages = [consumer.receive(10_000) for _ in range(5)]
    namespace = "/".join(topic.removeprefix("persistent://").split("/")[:2])
    url = f"{broker.admin_url}/admin/v2/namespaces/{namespace}/subscriptionDispatchRate"
    rate = {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": 1, "ratePeriodInSecond": 3600}
    with httpx2.Client(**broker.access.http_options()) as http:
        http.post(url, json=rate).raise_for_status()
        consumer.negative_acknowledge(messages[0])
        assert eventually(lambda: any("opened anew" in text for text in caplog.messages), 40)
        http.delete(url).raise_for_status()
    assert sorted(consumer.receive(30_000).data() for _ in range(5)) == [b"%d" % index for index in range(5)]
