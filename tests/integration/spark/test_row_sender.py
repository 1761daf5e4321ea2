"""Rows sent as whole batches, compared with single sends; needs no Spark session."""

from __future__ import annotations

import pytest
from reach import Reach

import pulsar_ext

pytest.importorskip("pyspark")

import pyarrow as pa

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.produce.router import key_hash
from pulsar_ext.spark.options import WRITE, parse_options
from pulsar_ext.spark.sink import TaskProducers, rows_by_group

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")]


def rows_of(numbers, *, size=100, keys=None, ordering_keys=None, properties=None, event_times=None):
    """Return rows as Spark passes them."""
    columns = {
        "value": pa.array([b"%d".ljust(size) % number for number in numbers]),
        "__key": pa.array(keys or [None] * len(numbers), pa.string()),
        "__orderingKey": ordering_keys and pa.array(ordering_keys),
        "__messageProperties": properties and pa.array(properties, pa.map_(pa.string(), pa.string())),
        "__eventTime": event_times and pa.array(event_times, pa.timestamp("ms", tz="UTC")),
    }
    return pa.record_batch({name: column for name, column in columns.items() if column is not None})


def send(broker, topic, *parts, name=None, **options):
    """Send rows like a task; return the numbers of rows sent and of duplicates."""
    given = {} if topic is None else {"topic": topic}
    settings = parse_options({**Reach.of(broker).spark_options(), **given, **options}, WRITE)
    with TaskProducers(settings, name, 0) as producers:
        for part in parts:
            for group, rows in rows_by_group(part, settings, "0"):
                producers.send(group, rows)
        return producers.finish()


def entries(broker, topic):
    """Return the number of entries of each partition."""
    with PulsarAdmin(broker.admin_url, **Reach.of(broker).access.admin_options()) as admin:
        names = [f"{topic}-partition-{index}" for index in range(admin.partitions(topic))]
        return {name: admin.internal_stats(name).number_of_entries for name in names}


def read(broker, topic, count=None):
    """Return the messages; with a count, check that no more follow."""
    with (
        pulsar_ext.Client(broker.service_url, **Reach.of(broker).options()) as client,
        client.create_reader(topic, pulsar_ext.MessageId.earliest) as reader,
    ):
        if count is None:
            found = []
            while reader.has_message_available():
                found.append(reader.read_next(10_000))
            return found
        found = [reader.read_next(10_000) for _ in range(count)]
        with pytest.raises(pulsar_ext.Timeout):
            reader.read_next(300)
        return found


def test_keys_of_every_kind_arrive(pulsar_broker_factory, pulsar_topic_factory):
    """Missing, empty, short, long and non-ASCII keys arrive, with ordering keys, properties and times, at any size."""
    broker = pulsar_broker_factory("dedup")
    topic = pulsar_topic_factory(broker=broker)
    keys = [None, "", "k", "x" * 127, "x" * 128, "é" * 70, "中文", None, "z", "k"]
    others = {
        "ordering_keys": [None, "o", "é", None, "p", None, "q", None, None, "r"],
        "properties": [None, {"a": "1"}, {"é": "ü", "b": ""}, {}, *[None] * 5, {"c": "3"}],
        "event_times": [None, 1, 2**40, *[None] * 6, 5],
    }
    # Larger than a batch, and smaller than the message limit of any broker here: the C++ client has one limit for all.
    large = rows_of(range(20, 22), size=90_000, keys=["big", None])
    batch = {"pulsar.producer.batchingMaxAllowedSizeInBytes": "65536"}
    parts = [rows_of(range(10), keys=keys), rows_of(range(10, 20), keys=keys, **others), large, rows_of(range(22, 25))]
    for name, known in ((None, 0), ("rows", 0), ("rows", 25)):
        assert send(broker, f"{topic}-{name}", *parts, name=name, **batch) == (25, known)
    for name in (None, "rows"):
        found = read(broker, f"{topic}-{name}", 25)
        assert [int(message.data()) for message in found] == list(range(25))
        assert [message.partition_key() for message in found] == [
            key or "" for key in (*keys, *keys, "big", *[None] * 4)
        ]
        other = found[10:20]
        assert [message.ordering_key() for message in other] == [key or "" for key in others["ordering_keys"]]
        assert [message.properties() for message in other] == [one or {} for one in others["properties"]]
        assert [message.event_timestamp() for message in other] == [one or 0 for one in others["event_times"]]
    assert found[0].message_id().batch_index() == 0, "rows went one by one"


def test_rejected_row_batch_is_divided(pulsar_broker_factory, pulsar_topic_factory):
    """A batch above the broker's limit is divided, and each row keeps its key."""
    broker = pulsar_broker_factory("small-chunks")
    topic = pulsar_topic_factory(broker=broker)
    keys = [f"key-{number % 7}" if number % 3 else None for number in range(900)]
    rows = rows_of(range(900), size=130, keys=keys)
    with pulsar_ext.Client(broker.service_url, **Reach.of(broker).options()) as client:
        client.get_topic_partitions(topic)  # a process has one limit, that of the broker to which it connected last
    size = {"pulsar.producer.batchingMaxAllowedSizeInBytes": "131072"}
    assert send(broker, topic, rows, **size) == (900, 0)
    found = read(broker, topic, 900)
    assert [(int(one.data()), one.partition_key()) for one in found] == list(
        zip(range(900), [k or "" for k in keys], strict=True)
    )
    assert max(one.message_id().batch_index() for one in found) < 899, "the batch was not divided"


def test_repeated_task_adds_missing_rows(pulsar_broker_factory, pulsar_topic_factory):
    """A task that is repeated after it sent some rows adds only the others."""
    broker = pulsar_broker_factory("dedup")
    topic = pulsar_topic_factory(broker=broker)
    keys = [f"key-{number % 7}" for number in range(2500)]
    assert send(broker, topic, rows_of(range(1300), keys=keys[:1300]), name="task") == (1300, 0)
    assert send(broker, topic, rows_of(range(2500), keys=keys), name="task") == (2500, 1300)
    found = read(broker, topic, 2500)
    assert [int(one.data()) for one in found] == list(range(2500))
    assert [one.partition_key() for one in found] == keys


@pytest.mark.parametrize("name", [None, "rows"], ids=["at least once", "exactly once"])
def test_partitions_get_whole_batches(pulsar_broker_factory, pulsar_topic_factory, name):
    """Rows are sent in whole batches and in order to the partitions that single sends would choose."""
    broker = pulsar_broker_factory("dedup")
    topic = pulsar_topic_factory(partitions=3, broker=broker)
    keys = [f"key-{number % 700}" if number % 5 else None for number in range(9000)]
    parts = [rows_of(range(at, at + 500), keys=keys[at : at + 500]) for at in range(0, 9000, 500)]
    waits = {"pulsar.producer.batchingMaxPublishDelayMs": "10000"}  # for a batch, also on a busy machine
    assert send(broker, topic, *parts[:7], name=name, **waits) == (3500, 0)
    rest = parts if name else parts[7:]
    assert send(broker, topic, *rest, name=name, **waits) == ((9000, 3500) if name else (5500, 0))
    where = {}
    for index, (partition, count) in enumerate(entries(broker, topic).items()):
        found = read(broker, partition)
        # Each of the two tasks may end with a partial batch.
        assert count <= len(found) / 1000 + 2 * 2, f"{len(found)} rows are in {count} entries"
        numbers = [int(message.data()) for message in found]
        keyed = [number for number in numbers if keys[number] is not None]
        assert keyed == sorted(keyed)
        assert [message.partition_key() for message in found] == [keys[number] or "" for number in numbers]
        assert all(key_hash(keys[number]) % 3 == index for number in keyed)
        where |= dict.fromkeys(numbers, index)
        if name:
            assert numbers == sorted(numbers)
            assert all(number % 3 == index for number in numbers if keys[number] is None)
    assert sorted(where) == list(range(9000))


def test_rows_of_every_size_reach_partitions(pulsar_broker_factory, pulsar_topic_factory):
    """Large rows and batches with different columns arrive on a partitioned topic as on one without partitions."""
    broker = pulsar_broker_factory("dedup")
    topic = pulsar_topic_factory(partitions=2, broker=broker)
    times = [None, 1, 2, 3, None]
    parts = [
        rows_of(range(5), keys=["a", None, "b", "c", None]),
        rows_of(range(5, 10), event_times=times),
        rows_of(range(10, 13), size=200_000),
    ]
    for known in (0, 13):
        assert send(broker, topic, *parts, name="rows") == (13, known)
    found = {
        int(message.data()): message for partition in entries(broker, topic) for message in read(broker, partition)
    }
    assert sorted(found) == list(range(13))
    assert [found[number].event_timestamp() for number in range(5, 10)] == [time or 0 for time in times]
    assert [found[number].partition_key() for number in range(5)] == ["a", "", "b", "c", ""]


def test_topic_name_spellings_share_a_producer(pulsar_broker_factory, pulsar_topic_factory):
    """Rows with the full and the short name of a topic are sent by one producer, in order; a wrong name raises."""
    broker = pulsar_broker_factory("dedup")
    topic = pulsar_topic_factory(broker=broker)
    names = [topic, topic.removeprefix("persistent://")] * 3
    rows = rows_of(range(6)).append_column("__topic", pa.array(names))
    assert send(broker, None, rows, name="names") == (6, 0)
    assert [int(message.data()) for message in read(broker, topic)] == list(range(6))
    with pytest.raises(pulsar_ext.InvalidUse, match="a/b"):
        send(broker, None, rows_of([1]).append_column("__topic", pa.array(["a/b"])))
