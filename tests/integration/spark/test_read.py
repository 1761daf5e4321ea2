"""Reads with Spark: each message once for any division of the work, with the columns that were sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pulsar
import pytest
from chunked import eventually, send_incomplete_message
from reach import Reach
from spark_topics import CHUNKED_BYTES, fill, keep_everything, numbers, options_of, roll_over
from stored import compact

import pulsar_ext.spark
from pulsar_ext import MessageId, key_slot
from pulsar_ext.errors import InvalidUse
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.spark.schema import COLUMNS

PySparkException = pytest.importorskip("pyspark.errors").PySparkException

pytestmark = [
    pytest.mark.xdist_group("spark-read"),
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture
def mixed(client, admin, topic):
    """Send every kind of message to a topic, over several ledgers; return the number of messages."""
    keep_everything(admin, topic)
    count = 0
    for kinds in (("plain", "chunked"), ("batched",), ("key-batched", "chunked")):
        count = fill(client, topic, 40, kinds=kinds, start=count)
        roll_over(admin, topic)
    return count


def read(spark, broker, topic, **more):
    return spark.read.format("pulsar").options(**options_of(broker, topic, **more))


def test_every_split_reads_each_message_once(spark, broker, topic, mixed):
    """Every message is one row, whatever its kind, over several ledgers, for every splitBy."""
    wanted = list(range(mixed))
    splits = [{}, {"splitBy": "partition"}]
    splits += [{"splitBy": by, "minPartitions": str(n)} for by in ("entries", "keyHash") for n in (1, 2, 7)]
    for split in splits:
        frame = read(spark, broker, topic, **split).schema("value binary").load()
        assert numbers(frame.collect()) == wanted, split
        assert frame.rdd.getNumPartitions() == int(split.get("minPartitions", 1))


@pytest.mark.standalone_only("uses variables that name no certificates", ways=("mtls",))
def test_environment_provides_broker_urls(broker, client, topic):
    """A program whose environment has the broker's two URLs reads a topic without options for the broker."""
    fill(client, topic, 5, kinds=("plain",))
    program = """
import sys
from pulsar_ext.spark import spark_session

options = {"topic": sys.argv[1], "startingOffsets": "earliest"}
print("rows", spark_session("environment", master="local[1]").read.format("pulsar").options(**options).load().count())
"""
    urls = {"PULSAR_URL": broker.service_url, "PULSAR_ADMIN_URL": broker.admin_url}
    done = subprocess.run(
        [sys.executable, "-c", program, topic],
        env={**os.environ, **urls},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "rows 5" in done.stdout, done.stderr[-2000:]


def test_columns_equal_the_clients_messages(spark, broker, client, topic, mixed):
    """Every column equals the message that a reader of the client receives."""
    reader = client.create_reader(topic, MessageId.earliest)
    rows = read(spark, broker, topic).load().collect()
    slots = {}
    for row in rows:
        message = reader.read_next(5000)
        message_id = message.message_id()
        assert bytes(row.value) == message.data()
        assert (row["__key"] and bytes(row["__key"]).decode()) == (message.partition_key() or None)
        assert (row["__orderingKey"] and bytes(row["__orderingKey"]).decode()) == (message.ordering_key() or None)
        assert row["__topic"] == topic
        assert row["__partition"] == -1
        assert bytes(row["__messageId"]) == message.inner.message_id().serialize()
        assert row["__messageProperties"] == message.properties()
        assert row["__producerName"] == message.producer_name()
        assert row["__publishTime"].replace(tzinfo=UTC).timestamp() * 1000 == message.publish_timestamp()
        sent = message.event_timestamp()
        assert row["__eventTime"] == (datetime.fromtimestamp(sent / 1000, UTC).replace(tzinfo=None) if sent else None)
        chunked = len(message.data()) == CHUNKED_BYTES
        assert (row["__firstChunkId"] is not None) == chunked
        if chunked:
            first = MessageId.deserialize(bytes(row["__firstChunkId"]))
            assert first == message_id.first_chunk_message_id()
        sticky = message.ordering_key() or message.partition_key()
        sticky = sticky or f"{message.producer_name()}-{row['__sequenceId']}"
        assert row["__keySlot"] == key_slot(sticky)
        slots.setdefault(row["__producerName"], []).append(row["__sequenceId"])
    reader.close()
    assert len(rows) == mixed
    assert all(sorted(found) == list(range(len(found))) for found in slots.values())


@pytest.mark.parametrize("batch", [50, 10])
def test_rows_do_not_depend_on_selected_columns(spark, broker, client, admin, topic, batch):
    """Columns that need no sequence id are equal with and without it, when two ids of a large batch determine them.

    The batches have properties, event times and keys, or none of them. The read begins inside a batch, and messages in
    no batch, and in chunks, follow.
    """
    keep_everything(admin, topic)
    with client.create_producer(topic, batching_enabled=True, batching_max_messages=batch) as producer:
        for start in range(0, 400, 100):
            values = [b"%d" % number for number in range(start, start + 100)]
            more = {"partition_keys": [f"k{number % 7}" for number in range(100)]} if start else {}
            if start == 200:  # the third hundred
                more |= {"properties": [{"n": str(n)} if n % 3 else {} for n in range(100)]}
                more |= {"event_timestamps": [n + 1 for n in range(100)]}
            producer.send_many(values, **more)
    roll_over(admin, topic)
    fill(client, topic, 40, kinds=("plain", "chunked"), start=400)
    ids = read(spark, broker, topic).load().select("__messageId").collect()
    begin = MessageId.deserialize(bytes(ids[batch + 3]["__messageId"])).to_text()
    every = [name for name, column in COLUMNS.items() if name not in ("__sequenceId", "__keySlot")]
    types = {name: column.types[0] for name, column in COLUMNS.items()}
    for options in ({}, {"startingOffsets": begin, "splitBy": "entries", "minPartitions": "3"}):
        reading = read(spark, broker, topic, **options)
        wanted = reading.schema(", ".join(f"{name} {kind}" for name, kind in types.items())).load()
        wanted = wanted.select(*every).orderBy("__ledgerId", "__entryId", "__batchIndex").collect()
        assert len(wanted) == len(ids) - (batch + 3 if options else 0)
        found = reading.schema(", ".join(f"{name} {types[name]}" for name in every)).load()
        assert found.orderBy("__ledgerId", "__entryId", "__batchIndex").collect() == wanted


def test_key_ranges_and_filters_select_rows(spark, broker, topic, mixed):
    """Ranges, keys and a pushed-down filter select exactly the rows that a filter in Spark selects."""
    everything = read(spark, broker, topic).load().collect()
    ranges = KeyHashRanges.parse("0-20000,40000-50000")
    wanted = numbers(row for row in everything if ranges.contains(row["__keySlot"]))
    assert 0 < len(wanted) < mixed
    found = read(spark, broker, topic, keyHashRanges=str(ranges), splitBy="keyHash", minPartitions="3").load()
    assert numbers(found.collect()) == wanted
    pushed = read(spark, broker, topic, filterPushdown="true").load().filter("`__keySlot` <= 20000")
    assert numbers(pushed.collect()) == numbers(row for row in everything if row["__keySlot"] <= 20000)
    # Spark does not apply a filter that was pushed down.
    assert "20000" not in str(pushed._jdf.queryExecution().executedPlan().toString())
    tasks = {"splitBy": "keyHash", "minPartitions": "4"}  # more than the single slot of the filter
    only = key_slot("key-3")
    slot = read(spark, broker, topic, filterPushdown="true", **tasks).load().filter(f"`__keySlot` = {only}")
    assert numbers(slot.collect()) == numbers(row for row in everything if row["__keySlot"] == only)
    keys = read(spark, broker, topic, keys="key-3,key-4").load().collect()
    slots = {key_slot("key-3"), key_slot("key-4")}
    assert numbers(keys) == numbers(row for row in everything if row["__keySlot"] in slots)


def test_offsets_by_id_and_time(spark, broker, topic, mixed):
    """Starts and ends include the named message: of a batch, of a chunked message by any chunk, by time."""
    rows = read(spark, broker, topic).load().collect()
    order = [int(bytes(row.value).strip()) for row in rows]
    ids = [MessageId.deserialize(bytes(row["__messageId"])) for row in rows]
    chunked = next(index for index, row in enumerate(rows) if row["__firstChunkId"] is not None and index > 5)
    batched = next(index for index, one in enumerate(ids) if one.batch_index() == 4)
    first = MessageId.deserialize(bytes(rows[chunked]["__firstChunkId"]))
    last = f"{ids[chunked].ledger_id()}:{ids[chunked].entry_id()}"
    for at, text in (
        (chunked, ids[chunked].to_text()),
        (chunked, first.to_text()),
        (chunked, last),
        (batched, ids[batched].to_text()),
        (batched, ids[batched].serialize().hex()),
    ):
        started = read(spark, broker, topic, startingOffsets=text, splitBy="entries", minPartitions="3")
        assert numbers(started.schema("value binary").load().collect()) == sorted(order[at:]), text
        ended = read(spark, broker, topic, endingOffsets=text).schema("value binary").load()
        assert numbers(ended.collect()) == sorted(order[: at + 1]), text
    moment = rows[mixed // 2]["__publishTime"]
    millis = int(moment.replace(tzinfo=UTC).timestamp() * 1000)
    halves = [
        numbers(read(spark, broker, topic, **{option: str(millis)}).schema("value binary").load().collect())
        for option in ("startingTime", "endingTime")
    ]
    assert sorted(halves[0] + halves[1]) == sorted(order)
    assert halves[0]
    assert halves[1]


@pytest.mark.through
def test_partitioned_topics_and_patterns(spark, broker, client, admin, pulsar_topic_factory):
    """Several topics, partitioned or not, and a pattern of them are read as one; each row has its topic."""
    parted = pulsar_topic_factory("orders-parted", partitions=2, broker=broker)
    single = pulsar_topic_factory("orders-single", broker=broker)
    keep_everything(admin, parted)
    count = fill(client, parted, 30, kinds=("batched", "plain"))
    count = fill(client, single, 10, kinds=("plain",), start=count)
    namespace = "/".join(single.removeprefix("persistent://").split("/")[:2])
    urls = Reach.of(broker).spark_options()
    for more in ({"topics": f"{parted},{single}"}, {"topicsPattern": f"{namespace}/orders-.*"}):
        rows = spark.read.format("pulsar").options(**urls, **more).load().collect()
        assert numbers(rows) == list(range(count))
        assert {row["__topic"] for row in rows} == {f"{parted}-partition-0", f"{parted}-partition-1", single}
        assert {row["__partition"] for row in rows} == {0, 1, -1}
    begin = json.dumps({single: "latest"})
    rows = spark.read.format("pulsar").options(**urls, topics=f"{parted},{single}", startingOffsets=begin).load()
    assert rows.count() == 60


def test_values_become_columns(spark, broker, client, admin, topic):
    """JSON and Avro values become columns by the topic's schema, and text stays text; a projection has its columns."""
    keep_everything(admin, topic)

    class Order(pulsar.schema.Record):
        name = pulsar.schema.String()
        amount = pulsar.schema.Double()
        count = pulsar.schema.Integer()
        tags = pulsar.schema.Array(pulsar.schema.String())

    for kind, schema in (("json", pulsar.schema.JsonSchema(Order)), ("avro", pulsar.schema.AvroSchema(Order))):
        name = f"{topic}-{kind}"
        with client.create_producer(name, schema=schema) as producer:
            for index in range(5):
                producer.send(Order(name=f"n{index}", amount=index / 2, count=index, tags=["a"] * index))
        frame = read(spark, broker, name, valueFormat=kind).load()
        assert frame.columns[:4] == ["name", "amount", "count", "tags"] or set(frame.columns[:4]) == {
            "name",
            "amount",
            "count",
            "tags",
        }
        rows = frame.select("name", "amount", "count", "tags").collect()
        assert [tuple(row) for row in rows] == [(f"n{i}", i / 2, i, ["a"] * i) for i in range(5)]
        some = read(spark, broker, name, valueFormat=kind).schema("count int, __topic string").load()
        assert [tuple(row) for row in some.collect()] == [(index, name) for index in range(5)]
    fill(client, topic, 5, kinds=("plain",))
    texts = read(spark, broker, topic, valueFormat="string").load()
    assert [row.value for row in texts.collect()] == ["0", "1", "2", "3", "4"]


def test_invalid_use_fails_at_load(spark, broker, topic, admin):
    """A misspelt option, a missing topic or an unknown column raises an error with the allowed values."""

    def fails(load, *words):
        with pytest.raises(PySparkException) as caught:
            load()
        assert all(word in str(caught.value) for word in words), str(caught.value)

    fails(read(spark, broker, topic, startingOffset="earliest").load, "Did you mean startingOffsets")
    fails(read(spark, broker, topic, columns="value,__id").load, "Unknown column '__id'", "__messageId")
    fails(read(spark, broker, topic).schema("value int").load().count, "binary or string, not int")
    fails(read(spark, broker, topic).load().count, "does not exist")
    admin.create_topic(topic)
    fails(read(spark, broker, topic, valueFormat="json").load, "valueSchema")
    fails(read(spark, broker, topic, startingOffsets="9999:3").load().count, "beyond the end")
    assert read(spark, broker, topic).load().collect() == []


def test_compacted_topic(spark, broker, client, admin, topic):
    """The compacted view has the last message of each key, also if it is in a batch."""
    keep_everything(admin, topic)
    with client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000) as producer:
        for index in range(60):
            producer.send_async(str(index).encode(), None, partition_key=f"k{index % 7}")
    compact(admin, topic)
    rows = read(spark, broker, topic, readCompacted="true").load().collect()
    assert numbers(rows) == list(range(53, 60))
    assert numbers(read(spark, broker, topic).load().collect()) == list(range(60))


def test_lost_entries_are_reported(spark, broker, client, admin, topic):
    """An offset in a trimmed ledger fails the read, unless `failOnDataLoss` is false."""
    count = fill(client, topic, 20, kinds=("plain",))
    first = admin.internal_stats(topic).ledgers[0].ledger_id
    roll_over(admin, topic)
    fill(client, topic, 5, kinds=("plain",), start=count)
    admin.trim(topic)
    assert eventually(lambda: admin.internal_stats(topic).ledgers[0].ledger_id != first)
    begin = read(spark, broker, topic, startingOffsets=f"{first}:3")
    with pytest.raises(Exception, match="were trimmed"):
        begin.load().count()
    continued = read(spark, broker, topic, startingOffsets=f"{first}:3", failOnDataLoss="false").load()
    assert numbers(continued.collect()) == list(range(count, count + 5))


def test_incomplete_chunked_message_fails_or_is_skipped(spark, broker, client, admin, topic):
    """An incomplete chunked message fails a read; it is skipped by an option, or once its producer has continued."""
    keep_everything(admin, topic)
    fill(client, topic, 5, kinds=("plain",))
    send_incomplete_message(broker, admin, topic)
    with pytest.raises(Exception, match="incompleteChunks=skip"):
        read(spark, broker, topic, pollTimeoutMs="3000").load().count()
    assert read(spark, broker, topic, pollTimeoutMs="3000", incompleteChunks="skip").load().count() == 5
    with client.create_producer(topic, producer_name="half") as producer:
        producer.send(b"5")
    rows = read(spark, broker, topic, minPartitions="3", pollTimeoutMs="3000").load().collect()
    assert numbers(rows) == list(range(6))


def test_options_are_checked_at_load(spark):
    """Invalid options raise in `load()`, or with a schema when the query is planned; this needs no broker."""
    with pytest.raises(InvalidUse, match=r"service\.url"):
        pulsar_ext.spark.PulsarDataSource({})
    given = {"service.url": "pulsar://localhost:1", "topic": "t"}
    for wrong, words in (
        ({"startingoffset": "earliest"}, "Did you mean startingOffsets"),
        ({"topics": "u"}, "topic and topics conflict"),
        ({"splitBy": "rows"}, "allowed: partition, entries, keyHash"),
        ({"splitBy": "entries"}, "needs minPartitions"),
    ):
        for reading in (spark.read, spark.readStream):
            with pytest.raises(PySparkException, match=words):
                reading.format("pulsar").options(**given, **wrong).load()
        lazily = spark.read.schema("value binary").format("pulsar").options(**given, **wrong).load()
        with pytest.raises(PySparkException, match=words):
            lazily.count()
