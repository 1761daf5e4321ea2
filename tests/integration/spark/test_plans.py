"""What a streaming query plans where topics lack partitions, are trimmed or deleted; this needs no Spark session."""

from __future__ import annotations

import pytest
from chunked import eventually
from spark_topics import fill, keep_everything, options_of, roll_over

pytest.importorskip("pyspark")

from pulsar_ext.errors import InvalidUse, NoSuchTopic
from pulsar_ext.spark import PulsarDataSource
from pulsar_ext.spark.errors import DataLoss

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")]


EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def source(broker):
    """Makes data sources of a topic, as Spark does."""

    def source(topic, **options):
        given = options_of(broker, topic, **options)
        return PulsarDataSource({name: value for name, value in given.items() if value is not None})

    return source


@pytest.fixture
def stream(source):
    """Makes streaming reads, and ends them."""
    made = []

    def stream(topic, **options):
        one = source(topic, **options)
        made.append(one.streamReader(one.schema()))
        return made[-1]

    yield stream
    for one in made:
        one.stop()


def plan(reader, start):
    """Where the batch behind an offset ends."""
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def values(reader, partitions):
    """The numbers that tasks read."""
    return sorted(int(row["value"]) for one in partitions for batch in reader.read(one) for row in batch.to_pylist())


def test_a_partition_that_is_not_there(source, stream, broker, client, admin, pulsar_topic_factory):
    """A partition that was not created yet, or was deleted as idle, has nothing; what it gets is read then."""
    topic = pulsar_topic_factory(partitions=2, broker=broker)
    keep_everything(admin, topic)
    fill(client, f"{topic}-partition-0", 5, kinds=("plain",))
    admin.delete_topic(f"{topic}-partition-1")
    batch = source(topic)
    reader = batch.reader(batch.schema())
    assert values(reader, reader.partitions()) == list(range(5))
    reader = stream(topic, **EARLIEST)
    start = reader.initialOffset()
    end = plan(reader, start)
    assert values(reader, reader.partitions(start, end)) == list(range(5))
    fill(client, f"{topic}-partition-1", 3, kinds=("plain",), start=5)
    then = plan(reader, end)
    assert values(reader, reader.partitions(end, then)) == list(range(5, 8))
    missing = source(f"{topic}-partition-7")
    with pytest.raises(NoSuchTopic, match="partition-7"):
        missing.reader(missing.schema()).partitions()


@pytest.mark.parametrize("first", [True, False], ids=["first batch", "later batch"])
def test_a_planned_batch_that_was_trimmed(stream, client, admin, topic, first):
    """A batch of which all ledgers expired behind its plan is a loss, though the cursor stands as if they were read."""
    keep = "/".join(topic.removeprefix("persistent://").split("/")[:2])
    keep_everything(admin, topic)
    before = stream(topic, predefinedSubscription="query", **EARLIEST)
    fill(client, topic, 5, kinds=("plain",))
    start = before.initialOffset()
    end = plan(before, start)
    if not first:
        fill(client, topic, 5, kinds=("plain",), start=5)
        start, end = end, plan(before, end)
    before.stop()
    admin.expire_messages(topic, "query", admin.internal_stats(topic).last_confirmed_entry)
    roll_over(admin, topic)
    fill(client, topic, 2, kinds=("plain",), start=10)
    admin.set_retention(keep, None)
    old = next(iter(end["topics"].values()))["ledger"]

    def trimmed():
        admin.trim(topic)
        return admin.internal_stats(topic).ledgers[0].ledger_id > old

    assert eventually(trimmed)
    with pytest.raises(DataLoss, match=r"up to .* trimmed"):
        stream(topic, predefinedSubscription="query", **EARLIEST).partitions(start, end)
    going_on = stream(topic, predefinedSubscription="query", failOnDataLoss="false", **EARLIEST)
    assert going_on.partitions(start, end) == []
    assert values(going_on, going_on.partitions(end, plan(going_on, end))) == [10, 11]


def test_a_planned_batch_whose_topic_was_deleted(stream, client, admin, topic):
    """A topic of a pattern that was deleted behind the plan is a loss; where that is accepted, the query goes on."""
    options = {"topicsPattern": topic.removeprefix("persistent://"), **EARLIEST}
    fill(client, topic, 5, kinds=("plain",))
    reader = stream(None, **options)
    start = reader.initialOffset()
    end = plan(reader, start)
    reader.stop()
    admin.delete_topic(topic, force=True)
    with pytest.raises(DataLoss, match="was deleted") as raised:
        stream(None, **options).partitions(start, end)
    name = str(raised.value).split("acceptDataLoss=")[1].split(" ")[0]
    going_on = stream(None, **options, acceptDataLoss=name)
    assert going_on.partitions(start, end) == []
    assert plan(going_on, end) == end


def test_an_offset_of_a_topic_that_is_not_read(stream, topic, admin):
    """An offset for a topic whose name is misspelt is refused: the query would begin somewhere else."""
    keep_everything(admin, topic)
    admin.create_topic(topic)
    for wrong in ({"startingOffsets": '{"misspelt": "earliest"}'}, {"startingTime": '{"misspelt": 0}'}):
        with pytest.raises(InvalidUse, match="misspelt, which is not read"):
            stream(topic, **wrong).initialOffset()
