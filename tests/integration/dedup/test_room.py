"""Effectively-once producers on a topic with a full backlog quota, and producers that were fenced."""

from __future__ import annotations

import threading

import pulsar as official
import pytest
from chunked import eventually
from reach import official_client
from stored import contents

import pulsar_ext as pulsar

LIMIT = 300_000
SETTINGS = {
    "batched": {"batching_enabled": True},
    "by key": {"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased},
    "unbatched": {"batching_enabled": False},
    "chunks": {"batching_enabled": False, "chunking_enabled": True},
}
of_each_kind = pytest.mark.parametrize("kind", SETTINGS)


@pytest.fixture
def namespace(broker, admin, pulsar_namespace_factory):
    """A namespace whose topics are deduplicated."""
    name = pulsar_namespace_factory(broker)
    admin.set_deduplication(name, value=True)
    return name


@pytest.fixture
def topic(namespace, client):
    """A topic of the namespace, with a subscription that reads nothing."""
    name = f"persistent://{namespace}/quota"
    client.subscribe(name, "s").close()
    return name


def is_full(client, topic):
    """Return whether the broker rejects another producer because of the quota, which it detects with a delay."""
    try:
        client.create_producer(topic).close()
    except pulsar.ProducerBlockedQuotaExceededException:
        return True
    return False


def fill(client, namespace, topic, producer, size=LIMIT // 3):
    """Send until the backlog exceeds a quota, so that the broker rejects the producer from then on."""
    for number in range(4):
        producer.send(b"%d:" % number + bytes(size), partition_key="k")
    admin = client.context.admin_api()
    admin.set_backlog_quota(namespace, limit_bytes=LIMIT, policy="producer_exception")
    assert eventually(lambda: is_full(client, topic))
    admin.unload(topic)


@pytest.mark.core(each="kind", slow="the broker unloads the topic")
@of_each_kind
def test_full_quota_delays_messages(client, admin, namespace, topic, kind):
    """Messages sent while the backlog quota is full are persisted later, each once and in order."""
    settings = SETTINGS[kind]
    size = 150_000 if "chunking_enabled" in settings else LIMIT // 3
    producer = client.create_producer(topic, producer_name="d", deduplication=True, send_timeout_millis=0, **settings)
    fill(client, namespace, topic, producer, size)
    results = []

    def send(numbers):
        for number in numbers:
            producer.send_async(
                b"%d:" % number + bytes(size), lambda *outcome: results.append(outcome), partition_key="k"
            )

    sending = threading.Thread(target=send, args=(range(4, 8),))  # chunked messages wait for one another
    sending.start()
    assert eventually(lambda: producer.sender.replacing or kind == "chunks")
    assert eventually(lambda: not producer.is_connected())
    assert not results
    admin.set_backlog_quota(namespace, limit_bytes=100 * LIMIT, policy="producer_exception")
    sending.join(20)
    producer.flush()
    producer.send(b"8:")
    assert [str(result) for result, _ in results] == [str(official.Result.Ok)] * 4
    assert [data.partition(b":")[0] for data in contents(client, topic)] == [b"%d" % number for number in range(9)]


@of_each_kind
def test_error_names_the_full_quota(client, admin, namespace, topic, kind):
    """A send fails with the quota's error if the quota stays full for the send timeout."""
    settings = {**SETTINGS[kind], "send_timeout_millis": 3000}
    producer = client.create_producer(topic, producer_name="d", deduplication=True, **settings)
    fill(client, namespace, topic, producer)
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        producer.send(bytes(150_000 if kind == "chunks" else 1))
    with pytest.raises(pulsar.ProducerBroken, match="ProducerBlockedQuotaExceededException") as broken:
        producer.send(b"more")
    admin.remove_backlog_quota(namespace)
    producer.close()
    again = client.create_producer(topic, producer_name="d", deduplication=True, **settings)
    assert again.last_sequence_id_published() == broken.value.last_published
    again.send(b"goes on")


@pytest.mark.parametrize("kind", ["batched", "chunks"])
def test_close_fails_messages_waiting_for_quota(client, namespace, topic, kind):
    """Closing a producer that waits for quota fails each waiting message, and returns."""
    settings = SETTINGS[kind]
    producer = client.create_producer(topic, producer_name="d", deduplication=True, send_timeout_millis=0, **settings)
    fill(client, namespace, topic, producer)
    results, reported = [], threading.Event()

    def record(result, _):
        results.append(str(result))
        reported.set()

    producer.send_async(bytes(150_000 if kind == "chunks" else 1), record)
    threading.Thread(target=producer.sender.push).start()
    assert eventually(lambda: not producer.is_connected())
    producer.close()
    assert reported.wait(20)
    assert results == [str(official.Result.AlreadyClosed)]


@pytest.mark.parametrize("kind", ["batched", "chunks"])
def test_fenced_producer_raises_producer_fenced(broker, client, topic, kind):
    """A send of a producer fenced by another one raises ProducerFenced."""
    producer = client.create_producer(
        topic,
        producer_name="d",
        deduplication=True,
        access_mode=pulsar.ProducerAccessMode.Exclusive,
        send_timeout_millis=3000,
        **SETTINGS[kind],
    )
    producer.send(b"first")
    other = official_client(broker)
    other.create_producer(topic, access_mode=official.ProducerAccessMode.ExclusiveWithFencing)
    with pytest.raises(pulsar.ProducerFenced):
        producer.send(bytes(150_000 if kind == "chunks" else 1))
    with pytest.raises(pulsar.ProducerBroken, match="ProducerFenced"):
        producer.send(b"more")
    other.close()
