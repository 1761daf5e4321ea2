"""Plans of a streaming query for missing partitions and for trimmed or deleted topics; needs no Spark session."""

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
    """Return a function that creates data sources of a topic, as Spark does."""

    def source(topic, **options):
        given = options_of(broker, topic, **options)
        return PulsarDataSource({name: value for name, value in given.items() if value is not None})

    return source


@pytest.fixture
def stream(source):
    """Return a function that creates streaming reads, which are stopped at the end."""
    made = []

    def stream(topic, **options):
        one = source(topic, **options)
        made.append(one.streamReader(one.schema()))
        return made[-1]

    yield stream
    for one in made:
        one.stop()


def plan(reader, start):
    """Return the end of the batch after an offset."""
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def values(reader, partitions):
    """Return the numbers that tasks read."""
    return sorted(int(row["value"]) for one in partitions for batch in reader.read(one) for row in batch.to_pylist())


def test_missing_partition_is_read_once_created(source, stream, broker, client, admin, pulsar_topic_factory):
    """A missing partition has no entries; it is read once it exists."""
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
def test_trimmed_planned_batch_is_a_loss(stream, client, admin, topic, first):
    """A planned batch whose ledgers all expired is a loss, although the cursor is after them."""
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
    continued = stream(topic, predefinedSubscription="query", failOnDataLoss="false", **EARLIEST)
    assert continued.partitions(start, end) == []
    assert values(continued, continued.partitions(end, plan(continued, end))) == [10, 11]


def test_deleted_topic_of_planned_batch_is_a_loss(stream, client, admin, topic):
    """A topic of a pattern that was deleted after the plan is a loss; once accepted, the query continues."""
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
    continued = stream(None, **options, acceptDataLoss=name)
    assert continued.partitions(start, end) == []
    assert plan(continued, end) == end


def test_offset_of_unread_topic_raises(stream, topic, admin):
    """An offset for a misspelt topic raises, because the query would begin at another position."""
    keep_everything(admin, topic)
    admin.create_topic(topic)
    for wrong in ({"startingOffsets": '{"misspelt": "earliest"}'}, {"startingTime": '{"misspelt": 0}'}):
        with pytest.raises(InvalidUse, match="misspelt, which is not read"):
            stream(topic, **wrong).initialOffset()
