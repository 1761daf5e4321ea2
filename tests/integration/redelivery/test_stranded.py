"""Chunked messages that a consumer received in part are delivered to the same consumer or to the next one."""

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
WAIT_SECONDS = 2.0


def _strand(proxy, broker, producer, topics):
    """Deliver the first chunks of each topic's message to a consumer that is then closed."""
    for round_, topic in enumerate(topics):
        client = official_client(broker, proxy.service_url)
        client.subscribe(topic, "s", SHARED)
        proxy.pause()  # buffers are filled, and then the broker delivers no more
        producer(topic).send(payload(round_, SIZE))
        proxy.cut()
        proxy.resume()
        with contextlib.suppress(official.NotConnected):  # its connection may be lost during the broker's answer
            client.close()


def _is_stranded(admin, topic):
    stats = admin.stats(topic, precise_backlog=True).subscriptions["s"]
    return stats.consumers and stats.backlog_entries > stats.held_messages


@pytest.fixture
def topics(topic):
    """Names of a topic for each round."""
    return [f"{topic}-{round_}" for round_ in range(ROUNDS)]


def _producer_factory(client):
    return lambda topic: client.create_producer(topic, chunking_enabled=True)


@pytest.mark.core(slow="a connection is lost")
def test_message_of_a_lost_consumer_goes_to_the_next(pulsar_fault_proxy, broker, client, topics):
    """After three consumers were lost while they received a message of a hundred chunks, the next ones receive it."""
    _strand(pulsar_fault_proxy(broker), broker, _producer_factory(client), topics[:3])
    consumers = [client.subscribe(topic, "s", SHARED) for topic in topics[:3]]
    assert [index_of(consumer.receive(20_000)) for consumer in consumers] == [0, 1, 2]


def test_log_names_consumers_that_prevent_a_restart(pulsar_fault_proxy, broker, client, admin, topics, caplog):
    """The log names other consumers that prevent a restart; after their close the message is received."""
    proxy = pulsar_fault_proxy(broker)
    other = official_client(broker)

    def is_stranded(topic):
        """Strand a message; return False if the other consumer receives it soon."""
        _strand(proxy, broker, _producer_factory(client), [topic])
        other.subscribe(topic, "s", SHARED)
        time.sleep(WAIT_SECONDS)
        return _is_stranded(admin, topic)

    topic = next(filter(is_stranded, topics))
    ours = client.subscribe(topic, "s", SHARED)
    try:
        assert eventually(lambda: any("other consumers prevent a restart" in text for text in caplog.messages))
    finally:
        other.close()
    assert index_of(ours.receive(60_000)) == 0


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover, SHARED])
def test_cut_connections_lose_no_chunked_message(
    pulsar_fault_proxy, pulsar_client_factory, broker, client, topic, type_
):
    """Each of six messages of a hundred chunks arrives although its connection is cut at a different time."""
    proxy = pulsar_fault_proxy(broker)
    consumer = pulsar_client_factory(broker, service_url=proxy.service_url).subscribe(topic, "s", type_)
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(payload(0))
    consumer.acknowledge(consumer.receive(10_000))
    received = set()

    def is_received(index):
        messages = consumer.receive_many(10, 200)
        received.update(map(index_of, messages))
        consumer.acknowledge_many(messages)
        return index in received

    for round_ in range(1, 7):
        producer.send(payload(round_, SIZE))
        time.sleep(round_ * STEP_SECONDS)
        proxy.cut()
        assert eventually(lambda index=round_: is_received(index))


def test_seek_during_chunks_delivers_whole_messages(client_factory, broker, client, topics):
    """Each of ten seeks to a message of a hundred chunks, at different times during its delivery, delivers it."""
    for round_, topic in enumerate(topics):
        consumer = client_factory(broker).subscribe(topic, "s", SHARED, start_message_id_inclusive=True)
        message_id = _producer_factory(client)(topic).send(payload(round_, SIZE))
        time.sleep(round_ * STEP_SECONDS)
        consumer.seek(message_id)
        assert index_of(consumer.receive(10_000)) == round_


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_redelivery_during_chunks_delivers_whole_messages(client_factory, broker, client, topics, type_):
    """Each of ten redeliveries, requested at different times during a message of a hundred chunks, delivers it."""
    for round_, topic in enumerate(topics):
        consumer = client_factory(broker).subscribe(topic, "s", type_)
        _producer_factory(client)(topic).send(payload(round_, SIZE))
        time.sleep(round_ * STEP_SECONDS)
        consumer.redeliver_unacknowledged_messages()
        assert index_of(consumer.receive(10_000)) == round_


@pytest.mark.parametrize("partitions", [0, 2])
def test_chunks_without_a_first_chunk_are_acknowledged(client, broker, admin, topic, partitions):
    """The other chunks of a message whose first chunk was acknowledged are acknowledged, and no other message's are."""
    part = topic
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
        part += "-partition-1"
    ids = [_producer_factory(client)(part).send(payload(index)) for index in range(3)]
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
def test_consumer_without_deliveries_is_reopened(broker, client, topic, caplog, type_):
    """A consumer to which the broker delivers nothing after a redelivery, due to a rate limit, is reopened."""
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
        assert eventually(lambda: any("did not deliver them" in text for text in caplog.messages), 40)
        http.delete(url).raise_for_status()
    assert sorted(consumer.receive(30_000).data() for _ in range(5)) == [b"%d" % index for index in range(5)]
