"""Streaming by its users: triggers, progress reports, `foreachBatch`, watermarks, and schema changes."""

from __future__ import annotations

import json

import pulsar
import pytest
from chunked import eventually
from spark_topics import fill, keep_everything, numbers, options_of, running

pytest.importorskip("pyspark")
from pyspark.sql import functions

from pulsar_ext.spark.jobs import ProgressLines

pytestmark = [pytest.mark.xdist_group("spark-write"), pytest.mark.filterwarnings("default")]


class Batches:
    """Sink that stores a query's batches by id; it can fail in one."""

    def __init__(self, fail_in=None):
        self.rows = {}
        self._fail_in = fail_in

    def __call__(self, frame, batch):
        self.rows[batch] = frame.collect()
        if batch == self._fail_in:
            raise RuntimeError("failed on purpose")

    def all(self):
        return [row for rows in list(self.rows.values()) for row in rows]


@pytest.fixture
def start(spark, broker, tmp_path):
    """Return a function that starts a query from a topic, with a checkpoint shared by its runs."""

    def start(topic, batches, shape=lambda frame: frame, trigger=None, **options):
        source = options_of(broker, topic, **{"startingOffsets": "earliest", **options})
        frame = shape(spark.readStream.format("pulsar").options(**source).load())
        query = frame.writeStream.foreachBatch(batches).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return query.trigger(**(trigger or {"availableNow": True})).start()

    return start


def run(query):
    """Wait for the end of a query that ends by itself."""
    with running(query):
        assert query.awaitTermination(300)
    return query.recentProgress


def test_progress_reports(start, spark, client, admin, topic):
    """Progress reports have the rows, their rate, and the remaining backlog."""
    keep_everything(admin, topic)
    fill(client, topic, 90, kinds=("plain",))
    batches, lines = Batches(), []
    listener = ProgressLines(lines.append)
    spark.streams.addListener(listener)
    try:
        trigger = {"processingTime": "200 milliseconds"}
        with running(start(topic, batches, trigger=trigger, maxEntriesPerTrigger="40")) as query:
            assert eventually(lambda: sum(one.numInputRows for one in query.recentProgress) == 90, 120)
            reports = [one for one in query.recentProgress if one.numInputRows]
            assert eventually(lambda: len(lines) == len(reports), 60)
    finally:
        spark.streams.removeListener(listener)
    assert [one.numInputRows for one in reports] == [40, 40, 10]
    assert all(one.processedRowsPerSecond > 0 for one in reports)
    assert all(one.sources[0].processedRowsPerSecond > 0 for one in reports)
    backlogs = [json.loads(one.sources[0].latestOffset)["entriesBehind"] for one in reports]
    assert backlogs == sorted(backlogs, reverse=True)
    assert backlogs[0] > backlogs[-1] >= 0
    assert all("rows/s" in line and "backlog" in line for line in lines)
    assert numbers(batches.all()) == list(range(90))


def test_byte_limit_divides_batches(start, client, admin, topic):
    """`maxBytesPerTrigger` divides the messages into batches, which lose and repeat nothing."""
    keep_everything(admin, topic)
    fill(client, topic, 60, kinds=("plain",))
    size = admin.internal_stats(topic).total_size
    batches = Batches()
    run(start(topic, batches, maxBytesPerTrigger=str(size // 4)))
    assert 4 <= len(batches.rows) <= 6
    assert numbers(batches.all()) == list(range(60))


def test_failed_batch_repeats_its_rows(start, client, admin, topic):
    """`foreachBatch` may be called again with a batch id: it has the same rows, whatever was sent since."""
    keep_everything(admin, topic)
    count = fill(client, topic, 8)
    failing, again = Batches(fail_in=1), Batches()
    with pytest.raises(Exception, match="failed on purpose"):
        run(start(topic, failing, maxEntriesPerTrigger="15"))
    count = fill(client, topic, 8, start=count)
    run(start(topic, again))
    assert failing.rows[1] == again.rows[1]
    assert sorted(numbers(failing.rows[0]) + numbers(again.all())) == list(range(count))


def test_watermark_by_event_time(start, client, admin, topic):
    """Windows of `__eventTime` are returned once the watermark has passed them; later messages are skipped."""
    keep_everything(admin, topic)
    batches = Batches()

    def windows(frame):
        kept = frame.withWatermark("__eventTime", "5 seconds")
        return kept.groupBy(functions.window("__eventTime", "10 seconds")).count()

    for seconds in ((1, 2, 11), (30,), (4, 50)):
        with client.create_producer(topic) as producer:
            for second in seconds:
                producer.send(b"", event_timestamp=second * 1000)
            producer.send(b"without an event time")
        run(start(topic, batches, windows, columns="__eventTime"))
    found = sorted((int(row["window"].start.timestamp()), row["count"]) for row in batches.all())
    assert found == [(0, 2), (10, 1), (30, 1)]


def record(**fields):
    """Return a record class of the schema `Order` with these fields besides its number."""
    return type("Order", (pulsar.schema.Record,), {"number": pulsar.schema.Integer(required=True), **fields})


FIRST = record()
SECOND = record(more=pulsar.schema.String(required_default=True))


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_query_survives_a_schema_change(start, client, admin, topic, kind):
    """A running query continues with its columns after a schema change; a restarted one has the new columns."""
    keep_everything(admin, topic)
    make = {"avro": pulsar.schema.AvroSchema, "json": pulsar.schema.JsonSchema}[kind]

    def send(version, first, **more):
        with client.create_producer(topic, schema=make(version)) as producer:
            for number in range(first, first + 5):
                producer.send(version(number=number, **more))

    send(FIRST, 0)
    before, after = Batches(), Batches()
    trigger = {"processingTime": "200 milliseconds"}
    with running(start(topic, before, trigger=trigger, valueFormat=kind)) as query:

        def committed():
            """Return the number of rows in committed batches; the others are repeated after the restart."""
            return sum(one.numInputRows for one in query.recentProgress)

        assert eventually(lambda: committed() == 5 or not query.isActive, 120)
        send(SECOND, 5, more="new")
        assert eventually(lambda: committed() == 10 or not query.isActive, 120)
        assert query.exception() is None
    assert sorted(row.number for row in before.all()) == list(range(10))
    assert "more" not in before.all()[0].asDict()
    send(FIRST, 10)
    send(SECOND, 15, more="new")
    run(start(topic, after, valueFormat=kind))
    assert {row.number: row.more for row in after.all()} == {n: None if n < 15 else "new" for n in range(10, 20)}


def test_no_real_time_mode(start, client, admin, topic):
    """Spark has no real-time mode for Python sources: it raises, and nothing is read or acknowledged."""
    keep_everything(admin, topic)
    fill(client, topic, 3, kinds=("plain",))
    batches = Batches()
    with pytest.raises(Exception, match=r"(?i)real.?time") as raised:
        run(start(topic, batches, trigger={"realTime": "5 minutes"}, predefinedSubscription="query"))
    assert not batches.rows, raised
