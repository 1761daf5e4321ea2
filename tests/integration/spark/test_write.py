"""Writes with Spark: rows become messages unchanged, exactly once by an option, and failures fail the job."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from spark_topics import drop_last_commit, keep_everything, numbers, options_of

import pulsar_ext as pulsar

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.xdist_group("spark-write"), pytest.mark.filterwarnings("default")]

ROWS = (
    "cast(id as string) value",
    "concat('k', id % 7) __key",
    "map('number', cast(id as string)) __messageProperties",
    "timestamp_millis(id + 1) __eventTime",
)


@pytest.fixture
def dedup(pulsar_broker_factory):
    """Return a broker that deduplicates every topic."""
    return pulsar_broker_factory("dedup")


def write(frame, broker, topic, **more):
    frame.write.format("pulsar").options(**options_of(broker, topic, **more)).mode("append").save()


def read(spark, broker, topic):
    frame = spark.read.format("pulsar").options(**options_of(broker, topic))
    return frame.option("columns", "value,__key,__topic,__messageProperties,__eventTime,__messageId").load().collect()


@pytest.mark.core(slow="Spark starts")
def test_rows_become_messages(spark, broker, client, admin, pulsar_topic_factory):
    """Value, key, properties and event time arrive; a key keeps its order and its partition."""
    topic = pulsar_topic_factory(partitions=2, broker=broker)
    keep_everything(admin, topic)
    frame = spark.range(300).selectExpr(*ROWS)
    write(frame.coalesce(1), broker, topic, **{"pulsar.producer.compressionType": "ZSTD"})
    rows = read(spark, broker, topic)
    assert numbers(rows) == list(range(300))
    by_key: dict[bytes, list[int]] = {}
    for row in rows:
        number = int(bytes(row.value))
        assert bytes(row["__key"]).decode() == f"k{number % 7}"
        assert row["__messageProperties"] == {"number": str(number)}
        assert row["__eventTime"] == datetime.fromtimestamp((number + 1) / 1000, UTC).replace(tzinfo=None)
        by_key.setdefault(bytes(row["__key"]), []).append(number)
    assert all(found == sorted(found) for found in by_key.values())


def test_topics_of_rows(spark, broker, admin, pulsar_topic_factory):
    """Without option topic, a column names the topic of each row."""
    topics = [pulsar_topic_factory(f"row-{index}", broker=broker) for index in range(2)]
    keep_everything(admin, topics[0])
    names = ", ".join(f"'{topic}'" for topic in topics)
    frame = spark.range(40).selectExpr(
        "cast(id as string) value", f"element_at(array({names}), cast(id % 2 + 1 as int)) __topic"
    )
    where = options_of(broker, None)
    del where["topic"]
    frame.write.format("pulsar").options(**where).mode("append").save()
    for index, topic in enumerate(topics):
        assert numbers(read(spark, broker, topic)) == list(range(index, 40, 2))


@pytest.mark.parametrize("kind", ["batched", "chunked", "groups"])
def test_repeated_write_stores_rows_once(spark, dedup, pulsar_client_factory, pulsar_topic_factory, kind):
    """A repeated write with one producer name stores each row once, by name and sequence id."""
    topic = pulsar_topic_factory(partitions=2, broker=dedup)
    admin = pulsar_client_factory(dedup).context.admin_api()
    keep_everything(admin, topic)
    more = {"guarantee": "exactly-once", "producerName": "job"}
    frame = spark.range(500).selectExpr(
        "cast(id as string) value", "if(id % 3 = 0, concat('k', id), null) __key", "id % 3 part"
    )
    if kind == "chunked":
        more["pulsar.producer.chunkingEnabled"] = "true"
    if kind == "groups":
        more["laneBy"] = "part"
        frame = frame.repartition(4, "part").sortWithinPartitions("value")
    else:
        frame = frame.drop("part")
    for _ in range(2):
        write(frame, dedup, topic, **more)
    assert numbers(read(spark, dedup, topic)) == list(range(500))


def test_group_in_two_tasks_raises(spark, dedup, pulsar_topic_factory):
    """Rows of one group in two tasks have colliding sequence ids, which the broker drops: the write raises."""
    topic = pulsar_topic_factory(broker=dedup)
    rows = spark.range(0, 20, 1, 2).selectExpr("cast(id as string) value", "'one' part")
    more = {"guarantee": "exactly-once", "producerName": "job", "laneBy": "part"}
    with pytest.raises(Exception, match="1 groups of rows were divided between tasks, for instance 'one'"):
        write(rows, dedup, topic, **more)


def test_repeated_batch_stores_rows_once(spark, dedup, pulsar_client_factory, pulsar_topic_factory, tmp_path):
    """A streaming batch that runs again after a lost commit stores each row once."""
    topic = pulsar_topic_factory(broker=dedup)
    keep_everything(pulsar_client_factory(dedup).context.admin_api(), topic)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for turn in range(3):
        numbers_of = spark.range(turn * 100, turn * 100 + 100).selectExpr("cast(id as string) value")
        numbers_of.coalesce(2).write.mode("append").parquet(str(source))
        frame = spark.readStream.schema("value string").parquet(str(source))
        query = (
            frame.writeStream.format("pulsar")
            .options(**options_of(dedup, topic, guarantee="exactly-once"))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        assert numbers(read(spark, dedup, topic)) == list(range(turn * 100 + 100))
        drop_last_commit(checkpoint)


def test_repeated_batch_ignores_core_count(spark, dedup, pulsar_client_factory, pulsar_topic_factory, tmp_path):
    """A batch of files that runs again with fewer cores, as after a lost executor, has the same partitions."""
    topic = pulsar_topic_factory(broker=dedup)
    keep_everything(pulsar_client_factory(dedup).context.admin_api(), topic)
    source, checkpoint = str(tmp_path / "in"), tmp_path / "checkpoint"
    spark.range(0, 300, 1, 3).selectExpr("cast(id as string) value").write.parquet(source)
    for cores in (8, 1):
        spark.conf.set("spark.sql.leafNodeDefaultParallelism", cores)
        try:
            frame = spark.readStream.schema("value string").parquet(source)
            query = frame.writeStream.format("pulsar").options(**options_of(dedup, topic, guarantee="exactly-once"))
            started = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            assert started.awaitTermination(300)
        finally:
            spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
        drop_last_commit(checkpoint)
    assert numbers(read(spark, dedup, topic)) == list(range(300))


def test_invalid_writes_fail(spark, broker, client, topic, tmp_path):
    """A failed send fails the job; rows that cannot be messages and unsupported guarantees raise."""
    rows = spark.range(3).selectExpr("cast(id as string) value")

    def fails(job, *words):
        with pytest.raises(Exception) as caught:  # Spark wraps the error
            job()
        assert all(word in str(caught.value) for word in words), str(caught.value)

    fails(lambda: write(rows, broker, "persistent://no-tenant/no-namespace/t"), "NotWritten", "no-tenant")
    large = rows.selectExpr("repeat('x', 200000) value")
    fails(lambda: write(large, broker, topic), "NotWritten", "The task fails")
    fails(lambda: write(rows.selectExpr("value v"), broker, topic), "and needs value")
    fails(lambda: write(rows, broker, topic, guarantee="exactly-once"), "producerName")
    fails(lambda: write(rows, broker, topic, guarantee="exactly-once", producerName="p"), "does not deduplicate")
    fails(lambda: rows.write.format("pulsar").options(**options_of(broker, topic)).mode("overwrite").save(), "append")


@pytest.mark.parametrize("partitions", [0, 2])
def test_null_values_are_messages_without_a_value(spark, broker, client, admin, pulsar_topic_factory, partitions):
    """A null is written as a message without a value, and read as null."""
    topic = pulsar_topic_factory(partitions=partitions, broker=broker)
    keep_everything(admin, topic)
    frame = spark.range(20).selectExpr("if(id < 10, cast(id as string), null) value", "concat('k', id % 10) __key")
    write(frame.coalesce(1), broker, topic)
    assert sum(row.value is None for row in read(spark, broker, topic)) == 10
    with client.create_reader(topic, pulsar.MessageId.earliest) as reader:
        found = [reader.read_next(10_000) for _ in range(20)]
    assert sum(message.value() is None for message in found) == 10
    assert {message.partition_key() for message in found if message.value() is None} == {f"k{n}" for n in range(10)}
