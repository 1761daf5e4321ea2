"""Tasks that receive no message for some time: they continue to the proven end, or raise; needs no Spark session."""

from __future__ import annotations

import threading
import time

import httpx2
import pytest
from chunked import eventually, index_of, payload, send_incomplete_message
from reach import Reach, official_client
from spark_topics import fill, keep_everything
from stored import compact

pytest.importorskip("pyspark")

from pulsar_ext.errors import IncompleteChunkedMessage
from pulsar_ext.spark.errors import NotDelivered
from pulsar_ext.spark.offsets import plan_splits
from pulsar_ext.spark.options import READ, parse_options
from pulsar_ext.spark.planning import batch_segments
from pulsar_ext.spark.segment_reader import read_segments

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")]

KEYS = 2000
SILENT_SECONDS = 6
FEW = {"pulsar.reader.receiverQueueSize": "5", "maxBatchRows": "5"}


@pytest.fixture
def compacted(client, admin, topic):
    """Return a compacted topic: the last messages of 2,000 keys, half of which had an earlier one."""
    keep_everything(admin, topic)
    numbers = range(-KEYS // 2, KEYS)
    with client.create_producer(topic, batching_enabled=True, batching_max_messages=10) as producer:
        keys = [f"k{number % KEYS}" for number in numbers]
        producer.send_many([b"%d" % number for number in numbers], partition_keys=keys)
    compact(admin, topic)
    return topic


def reading(broker, topic, number_of=lambda message: int(message.data()), **options):
    """Read a topic like one task, and yield the numbers of its messages."""
    settings = parse_options({**Reach.of(broker).spark_options(), "topic": topic, **options}, READ)
    segments = batch_segments(settings)
    for split in plan_splits(segments, None, None, None):
        for block in read_segments(split.segments, None, settings):
            yield from map(number_of, block.inners)


def limit(broker, namespace, *, messages, seconds):
    """Limit the broker's dispatch per topic of a namespace to a number of messages per period of `seconds`."""
    rate = {"dispatchThrottlingRateInMsg": messages, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": seconds}
    url = f"{broker.admin_url}/admin/v2/namespaces/{namespace}/dispatchRate"
    httpx2.post(url, json=rate, **broker.access.http_options()).raise_for_status()


def keep_nothing(admin, topic):
    """Let the topic's namespace delete the messages before each subscription's cursor, also that of compaction."""
    admin.set_retention("/".join(topic.removeprefix("persistent://").split("/")[:2]), None)


@pytest.fixture
def interrupted(broker, admin, client, topic, pulsar_fault_proxy):
    """Return a function that sends a message of another or the same producer between the chunks of a slow one."""
    keep_everything(admin, topic)
    proxy = pulsar_fault_proxy(broker)
    proxy.limit(80_000, "to_broker")
    slow = official_client(broker, proxy.service_url)

    def interrupt(name, other):
        producer = slow.create_producer(topic, producer_name=name, chunking_enabled=True, send_timeout_millis=0)
        producer.send_async(payload(0), lambda *_: None)
        assert eventually(lambda: admin.internal_stats(topic).number_of_entries > 0)
        proxy.pause("to_broker")
        if name == other:
            proxy.forget("broker")  # frees the name
        with client.create_producer(topic, producer_name=other) as interrupting:
            interrupting.send(payload(1, 10))

        def resume():
            proxy.heal()
            if name == other:
                proxy.cut()

        return resume

    yield interrupt
    proxy.heal()
    slow.shutdown()


@pytest.mark.parametrize(("name", "other"), [("p", "p"), ("数据", "地点")], ids=["same producer", "shown alike"])
def test_interrupted_chunks_are_delivered(broker, topic, interrupted, name, other):
    """A chunked message is delivered although its producer, or one shown with an equal name, sent another between."""
    resume = interrupted(name, other)
    found = []
    task = threading.Thread(target=lambda: found.extend(reading(broker, topic, index_of)))
    task.start()
    task.join(SILENT_SECONDS)
    resume()
    task.join()
    assert sorted(found) == [0, 1]


@pytest.mark.parametrize(("name", "other"), [("p", "p"), ("数据", "地点")], ids=["same producer", "shown alike"])
def test_abandoned_chunks_raise_or_are_skipped(broker, topic, interrupted, name, other):
    """A chunked message that is never completed raises an error with its position, or is skipped by an option."""
    interrupted(name, other)
    with pytest.raises(IncompleteChunkedMessage, match="incompleteChunks=skip"):
        list(reading(broker, topic, index_of, pollTimeoutMs="3000"))
    assert list(reading(broker, topic, index_of, pollTimeoutMs="3000", incompleteChunks="skip")) == [1]


def test_too_many_interleaved_chunked_messages_raise(broker, admin, topic, pulsar_fault_proxy):
    """A read fails with the reason if more chunked messages interleave than a reader keeps."""
    keep_everything(admin, topic)
    proxy = pulsar_fault_proxy(broker)
    proxy.limit(150_000, "to_broker")  # per connection, so that the chunks alternate
    clients = [official_client(broker, proxy.service_url) for _ in range(13)]
    producers = [client.create_producer(topic, chunking_enabled=True) for client in clients]
    for index, producer in enumerate(producers):
        producer.send_async(payload(index), lambda *_: None)
    for producer in producers:
        producer.flush()
    for client in clients:
        client.shutdown()
    with pytest.raises(NotDelivered, match="drops it if ten others begin"):
        list(reading(broker, topic, index_of))


@pytest.mark.parametrize("end", ["after it", "inside it"])
def test_connection_loss_between_interrupted_chunks(broker, admin, client, topic, pulsar_fault_proxy, end):
    """A chunked message interrupted by another is delivered in order, also if the connection breaks between them."""
    keep_everything(admin, topic)
    writing, reading_through = pulsar_fault_proxy(broker), pulsar_fault_proxy(broker)
    writing.limit(400_000, "to_broker")
    slow = official_client(broker, writing.service_url)
    with client.create_producer(topic) as other:
        producer = slow.create_producer(topic, chunking_enabled=True)
        producer.send_async(payload(0, 1_500_000), lambda *_: None)
        assert eventually(lambda: admin.internal_stats(topic).number_of_entries > 0)
        interrupting = other.send(payload(1, 10))
        writing.heal()
        producer.flush()
        other.send(payload(2, 10))
        other.send(payload(3, 10))
    slow.close()
    reading_through.limit(200_000, "to_client")
    options = {"service.url": reading_through.service_url, **FEW}
    if end == "inside it":
        options["endingOffsets"] = interrupting.to_text()
    indexes = reading(broker, topic, index_of, **options)
    found = [next(indexes)]
    time.sleep(2)  # for some of the chunks after it
    reading_through.cut()
    reading_through.heal()
    found += indexes
    assert found == ([1, 0, 2, 3] if end == "after it" else [1, 0])


def test_incomplete_message_hides_no_later_message(broker, admin, client, topic):
    """Skipping an incomplete message skips no complete one after it that the broker throttles."""
    keep_everything(admin, topic)
    fill(client, topic, 1, kinds=("plain",), start=-1)
    send_incomplete_message(broker, admin, topic)
    chunks = admin.internal_stats(topic).number_of_entries - 1
    fill(client, topic, 60, kinds=("plain",))
    limit(broker, "/".join(topic.removeprefix("persistent://").split("/")[:2]), messages=chunks + 20, seconds=60)
    found = []
    with pytest.raises(NotDelivered, match="No message arrived"):
        found.extend(reading(broker, topic, **FEW, pollTimeoutMs="3000", incompleteChunks="skip"))
    assert found == list(range(-1, len(found) - 1))
    assert 1 < len(found) < 60  # the broker throttled the rest


SMALL_STEPS = {"pulsar.reader.receiverQueueSize": "20", "maxBatchRows": "20", "readCompacted": "true"}


@pytest.mark.parametrize("way", ["healed", "stays"])
def test_compacted_view_is_read_to_its_end(broker, compacted, pulsar_fault_proxy, way):
    """A pause during a compacted view ends with all of its messages or with an error, never with a part of them."""
    proxy = pulsar_fault_proxy(broker)
    options = {"service.url": proxy.service_url, "pulsar.client.operationTimeoutSeconds": "3", **SMALL_STEPS}
    numbers = reading(broker, compacted, **options, pollTimeoutMs="60000" if way == "healed" else "5000")
    found = [next(numbers) for _ in range(30)]
    proxy.pause("to_client")
    if way == "stays":
        with pytest.raises(NotDelivered, match="No message arrived"):
            list(numbers)
        return
    healing = threading.Timer(SILENT_SECONDS, proxy.resume)
    healing.start()
    found += numbers
    healing.join()
    assert found == list(range(KEYS))


def test_throttled_compacted_view_is_complete(broker, admin, compacted):
    """A compacted view is complete if the broker delivers some messages, and then none for seconds."""
    namespace = "/".join(compacted.removeprefix("persistent://").split("/")[:2])
    limit(broker, namespace, messages=900, seconds=5)
    assert list(reading(broker, compacted, **SMALL_STEPS)) == list(range(KEYS))


@pytest.mark.parametrize("further", [0, 5])
def test_compacted_view_outlives_its_ledgers(broker, admin, client, compacted, further):
    """Compacted entries are read after their ledgers were trimmed, with or without later messages."""
    keep_nothing(admin, compacted)
    first = admin.internal_stats(compacted).ledgers[0].ledger_id
    admin.unload(compacted)
    with client.create_producer(compacted, batching_enabled=False) as producer:
        for number in range(KEYS, KEYS + further):
            producer.send(b"%d" % number, partition_key=f"k{number}")

    def trimmed():
        admin.trim(compacted)
        return admin.internal_stats(compacted).ledgers[0].ledger_id != first

    assert eventually(trimmed)
    assert list(reading(broker, compacted, readCompacted="true")) == list(range(KEYS + further))
