"""Jobs on topics of every kind of message; repeating them changes nothing."""

from __future__ import annotations

import random

import pytest
from chunked import send_incomplete_message
from spark_topics import CHUNKED_BYTES, fill, keep_everything, numbers, options_of, roll_over

import pulsar_ext as pulsar
from pulsar_ext.admin import PulsarAdmin

jobs = pytest.importorskip("pulsar_ext.spark.jobs")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = [pytest.mark.xdist_group("spark-write"), pytest.mark.filterwarnings("default")]


def test_archive_and_replay(spark, broker, client, admin, pulsar_topic_factory, tmp_path):
    """Each run adds the new messages to an archive; its replays write each message once and in order."""
    source, copy = (pulsar_topic_factory(name, partitions=2, broker=broker) for name in ("source", "copy"))
    keep_everything(admin, source)
    admin.set_deduplication("/".join(copy.removeprefix("persistent://").split("/")[:2]), value=True)
    target = options_of(broker, copy, **{"pulsar.producer.chunkingEnabled": "true"})
    path = str(tmp_path / "archive")
    count = 0
    for turn in range(2):
        count = fill(client, source, 20, kinds=("plain", "batched", "chunked"), start=count)
        done = jobs.archive(spark, options_of(broker, source), path)
        assert done.rows == 60, turn
        for _ in range(2 - turn):
            assert jobs.replay(spark, path, target, name="again").rows == count
    assert numbers(spark.read.parquet(path).collect()) == list(range(count))
    rows = spark.read.format("pulsar").options(**options_of(broker, copy)).load().collect()
    assert numbers(rows) == list(range(count))
    assert {len(row.value) for row in rows} >= {CHUNKED_BYTES}
    archived = {int(bytes(row.value)): row for row in spark.read.parquet(path).collect()}
    for row in rows:
        before = archived[int(bytes(row.value))]
        assert (row["__key"], row["__messageProperties"]) == (before["__key"], before["__messageProperties"])


def test_replay_keeps_deleted_keys_deleted(spark, broker, client, admin, pulsar_topic_factory, tmp_path):
    """Messages without a value are replayed, batched by key; a condition that excludes a key's last one raises."""
    source, copy = (pulsar_topic_factory(name, broker=broker) for name in ("source", "copy"))
    keep_everything(admin, source)
    with client.create_producer(source) as producer:
        for key, value in (("a", b"1"), ("b", b"1"), ("b", None), ("a", None), ("a", b"2")):
            producer.send(value, partition_key=key)
    jobs.archive(spark, options_of(broker, source), path := str(tmp_path / "archive"))
    with pytest.raises(pulsar.InvalidUse, match="would restore 1 deleted keys"):
        jobs.replay(spark, path, options_of(broker, copy), name="r", where="Value is not null", exactly_once=False)
    assert jobs.replay(spark, path, options_of(broker, copy), name="r", exactly_once=False).rows == 5
    view = client.create_table_view(copy)
    assert dict(view.items()) == {"a": b"2"}
    (audited,) = jobs.audit(spark, options_of(broker, copy))
    assert audited.mixed_batches.count == 0


def test_archive_of_large_messages_bounds_row_groups(spark, broker, client, admin, topic, tmp_path):
    """Large messages after many small ones do not all collect in Java's memory: row groups keep their size."""
    keep_everything(admin, topic)
    path = tmp_path / "archive"
    with client.create_producer(topic, batching_enabled=True) as producer:
        producer.send_many([b"small"] * 20_000)
    with client.create_producer(topic, chunking_enabled=True) as producer:
        producer.send_many(random.randbytes(CHUNKED_BYTES) for _ in range(400))
    assert jobs.archive(spark, options_of(broker, topic), str(path)).rows == 20_400
    files = [parquet.ParquetFile(file).metadata for file in path.glob("part-*.parquet")]
    sizes = [file.row_group(index).total_byte_size for file in files for index in range(file.num_row_groups)]
    assert sum(sizes) > 400 * CHUNKED_BYTES
    assert max(sizes) < 40 << 20


def test_copy_of_a_topic(spark, broker, client, admin, pulsar_topic_factory, tmp_path):
    """A copy continues at its end, with each message once."""
    source, copy = (pulsar_topic_factory(name, broker=broker) for name in ("source", "copy"))
    keep_everything(admin, source)
    admin.set_deduplication("/".join(copy.removeprefix("persistent://").split("/")[:2]), value=True)
    count = 0
    for _ in range(2):
        count = fill(client, source, 25, kinds=("plain",), start=count)
        sink = options_of(broker, copy)
        done = jobs.replay_topic(spark, options_of(broker, source), sink, checkpoint=str(tmp_path / "checkpoint"))
        assert done.rows == 25
    rows = spark.read.format("pulsar").options(**options_of(broker, copy)).load().collect()
    assert numbers(rows) == list(range(count))


def test_plan_ranges(spark, broker, client, admin, topic, tmp_path):
    """Ranges tile the slots, have similar weights, and are drawn."""
    keep_everything(admin, topic)
    fill(client, topic, 200, kinds=("plain",))
    for by in ("messages", "bytes"):
        plan = jobs.plan_ranges(spark, options_of(broker, topic), 3, by=by, png=tmp_path / f"{by}.png")
        assert sum(part.slots for part in plan.ranges) == 65536
        assert sum(plan.weights) == (200 if by == "messages" else sum(len(str(n)) for n in range(200)))
        assert sum(plan.histogram.values()) == sum(plan.weights)
        assert max(plan.weights) < 2 * sum(plan.weights) / 3
        assert (tmp_path / f"{by}.png").stat().st_size > 1000


def test_audit(spark, broker, client, admin, topic):
    """A clean topic has no findings; incomplete chunks, duplicate ids, a gap and a mixed batch are counted."""
    keep_everything(admin, topic)
    fill(client, topic, 10, kinds=("plain", "chunked"))
    (clean,) = jobs.audit(spark, options_of(broker, topic))
    assert clean.is_clean, clean
    assert clean.messages == 20
    fill(client, topic, 10, kinds=("batched",), start=20)
    for ids in ((1, 2, 5), (5, 6)):
        with client.create_producer(topic, producer_name="repeats") as producer:
            for number in ids:
                producer.send(str(number).encode(), sequence_id=number)
    roll_over(admin, topic)
    send_incomplete_message(broker, admin, topic)
    (found,) = jobs.audit(spark, options_of(broker, topic, pollTimeoutMs="2000"))
    assert found.incomplete_chunks.count == 1
    assert found.duplicate_sequence_ids.count == 1
    assert found.mixed_batches.count == 1
    assert found.sequence_gaps.count == 2
    assert not found.is_clean


@pytest.mark.standalone_only("runs a demonstration, which takes URLs, and no certificates", ways=("mtls",))
def test_pipeline(spark, pulsar_broker_factory, tmp_path):
    """The demonstration ends with matching counts."""
    pipeline = pytest.importorskip("pulsar_ext.spark.jobs")
    broker = pulsar_broker_factory("small-chunks")
    with PulsarAdmin(broker.admin_url) as admin:
        existing = set(admin.namespaces("public"))
    if {"public/pipeline", "public/pipeline-copy"} & existing:
        pytest.skip("it ran on this broker before")
    counts = pipeline.run_pipeline(spark, broker.service_url, broker.admin_url, str(tmp_path), 60)
    assert counts.sent == 240
    assert counts.match, counts
