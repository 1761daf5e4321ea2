"""Streaming with Spark: each message once over restarts, a durable subscription, limits, and reported losses."""

from __future__ import annotations

import json
import re

import pytest
from chunked import eventually
from spark_topics import archive_once, drop_last_commit, fill, keep_everything, numbers, options_of, roll_over, running

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.xdist_group("spark-write"), pytest.mark.filterwarnings("default")]


@pytest.fixture
def places(tmp_path):
    """Return the directories of a query's output and checkpoint."""
    return tmp_path / "out", tmp_path / "checkpoint"


def backlog(admin, topic, subscription):
    stats = admin.stats(topic, precise_backlog=True)
    return stats.subscriptions[subscription].backlog_entries


def test_restarts_lose_and_repeat_nothing(spark, broker, client, admin, pulsar_topic_factory, places):
    """Over runs, a deleted commit and a new partition, each message is read once and acknowledged at the end."""
    topic = pulsar_topic_factory(partitions=1, broker=broker)
    keep_everything(admin, topic)
    source = options_of(broker, topic, startingOffsets="earliest", predefinedSubscription="query")
    count = fill(client, topic, 20)
    archive_once(spark, source, *places, maxEntriesPerTrigger="40")
    assert numbers(spark.read.parquet(str(places[0])).collect()) == list(range(count))
    assert backlog(admin, f"{topic}-partition-0", "query") == 0
    admin.update_partitions(topic, 2)
    roll_over(admin, f"{topic}-partition-0")
    count = fill(client, topic, 15, start=count)
    drop_last_commit(places[1])
    archive_once(spark, source, *places)
    assert numbers(spark.read.parquet(str(places[0])).collect()) == list(range(count))
    for index in range(2):
        assert backlog(admin, f"{topic}-partition-{index}", "query") == 0
    assert sum(report.numInputRows for report in archive_once(spark, source, *places)) == 0


def test_crashed_first_batch_is_repeated(spark, broker, client, admin, topic, places):
    """A first batch that was planned but never committed is repeated from its begin, not from the new end."""
    keep_everything(admin, topic)
    fill(client, topic, 5, kinds=("plain",))
    source = options_of(broker, topic)

    def crash(_frame, _batch):
        raise RuntimeError("crashed on purpose")

    def query(sink):
        frame = spark.readStream.format("pulsar").options(**source).load()
        return (
            sink(frame.writeStream)
            .option("checkpointLocation", str(places[1]))
            .trigger(processingTime="100 milliseconds")
            .start()
        )

    with running(query(lambda stream: stream.foreachBatch(crash))) as crashing:
        assert eventually(lambda: admin.internal_stats(topic).cursors, 120)
        fill(client, topic, 7, kinds=("plain",), start=100)
        assert eventually(lambda: crashing.exception() is not None, 120)
    fill(client, topic, 3, kinds=("plain",), start=200)
    parquet = lambda stream: stream.format("parquet").option("path", str(places[0]))  # noqa: E731  # like `foreachBatch`
    with running(query(parquet)) as again:
        wanted = [*range(100, 107), *range(200, 203)]
        assert eventually(lambda: again.exception() is not None or _read(spark, places[0]) == wanted, 120)
        assert _read(spark, places[0]) == wanted


def _read(spark, path):
    return numbers(spark.read.parquet(str(path)).collect()) if (path / "_spark_metadata" / "0").exists() else []


def _discard(spark, source, checkpoint, **more):
    """Return the writer of a query whose rows are discarded."""
    frame = spark.readStream.format("pulsar").options(**source, **more).load()
    return frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))


@pytest.mark.core(slow="a stream of several batches")
def test_limits_and_lag(spark, broker, client, admin, topic, places):
    """A batch respects the maximum and minimum numbers of entries, and reports the backlog."""
    keep_everything(admin, topic)
    fill(client, topic, 50, kinds=("plain",))
    source = options_of(broker, topic, startingOffsets="earliest")
    query = _discard(spark, source, places[1], maxEntriesPerTrigger="20").trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    reports = query.recentProgress
    assert [report.numInputRows for report in reports if report.numInputRows] == [20, 20, 10]
    lags = [json.loads(report.sources[0].latestOffset)["entriesBehind"] for report in reports]
    assert lags[0] > lags[-1]
    query = _discard(spark, source, places[0], minEntriesPerTrigger="10", maxTriggerDelay="2s")
    with running(query.trigger(processingTime="100 milliseconds").start()) as waiting:
        assert eventually(lambda: waiting.recentProgress and waiting.recentProgress[0].numInputRows == 50, 120)
        for _ in range(3):
            fill(client, topic, 1, kinds=("plain",))
        assert eventually(lambda: sum(report.numInputRows for report in waiting.recentProgress) == 53, 120)
        rows = [report.numInputRows for report in waiting.recentProgress if report.numInputRows]
        assert rows == [50, 3], "a batch did not wait for enough entries"


def test_trimmed_data_is_reported(spark, broker, client, admin, topic, places):
    """A message that expires before it is read fails the query, unless `failOnDataLoss` is false."""
    source = options_of(broker, topic, startingOffsets="earliest", predefinedSubscription="query")
    count = fill(client, topic, 10, kinds=("plain",))
    client.subscribe(topic, "keeper").close()
    keep = "/".join(topic.removeprefix("persistent://").split("/")[:2])
    archive_once(spark, source, *places)
    fill(client, topic, 10, kinds=("plain",), start=count)
    first = admin.internal_stats(topic).ledgers[0].ledger_id
    roll_over(admin, topic)
    fill(client, topic, 4, kinds=("plain",), start=100)
    admin.delete_subscription(topic, "keeper")
    admin.expire_messages(topic, "query", admin.internal_stats(topic).last_confirmed_entry)
    admin.set_retention(keep, None)

    def trimmed():
        admin.trim(topic)
        return admin.internal_stats(topic).ledgers[0].ledger_id != first

    assert eventually(trimmed, 120)
    with pytest.raises(Exception, match="trimmed"):
        archive_once(spark, source, *places)
    archive_once(spark, source, *places, failOnDataLoss="false")
    found = numbers(spark.read.parquet(str(places[0])).collect())
    assert found == [*range(count), *range(100, 104)]


def test_loss_is_reported_until_accepted(spark, broker, client, admin, topic, places):
    """A restart does not skip a loss, even if the subscription was deleted; naming the loss accepts it for good."""
    source = options_of(broker, topic, startingOffsets="earliest", predefinedSubscription="query")
    count = fill(client, topic, 10, kinds=("plain",))
    archive_once(spark, source, *places)
    assert eventually(lambda: not admin.stats(topic).subscriptions["query"].consumers), "the query is still connected"
    admin.delete_subscription(topic, "query")
    fill(client, topic, 10, kinds=("plain",), start=count)
    first = admin.internal_stats(topic).ledgers[0].ledger_id
    roll_over(admin, topic)
    fill(client, topic, 4, kinds=("plain",), start=100)

    def trimmed():
        admin.trim(topic)
        return admin.internal_stats(topic).ledgers[0].ledger_id != first

    assert eventually(trimmed, 120)
    for more in ({}, {}, {"acceptDataLoss": "loss-of-another-time"}):
        with pytest.raises(Exception, match="trimmed") as raised:
            archive_once(spark, source, *places, **more)
        assert not admin.internal_stats(topic).cursors, "the subscription was created again, which hides the loss"
    name = re.findall("loss-[0-9a-f]{12}", str(raised.value))[-1]
    archive_once(spark, source, *places, acceptDataLoss=name)
    fill(client, topic, 2, kinds=("plain",), start=104)
    archive_once(spark, source, *places)
    found = numbers(spark.read.parquet(str(places[0])).collect())
    assert found == [*range(count), *range(100, 106)]


def test_checkpoint_belongs_to_its_subscription(spark, broker, client, topic, places):
    """A query with another subscription than the checkpoint's does not start from it."""
    fill(client, topic, 3, kinds=("plain",))
    source = options_of(broker, topic, startingOffsets="earliest")
    archive_once(spark, source, *places, predefinedSubscription="one")
    with pytest.raises(Exception, match="belongs to the subscription 'one'"):
        archive_once(spark, source, *places, predefinedSubscription="two")
