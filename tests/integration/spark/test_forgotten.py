"""Exactly-once writes after the broker has forgotten a producer name; needs no Spark session."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest
from pulsar import CryptoKeyReader
from reach import IMPORTED, Reach
from spark_topics import key_files

import pulsar_ext

pytest.importorskip("pyspark")

import pyarrow as pa

from pulsar_ext.dedup.opening import MAX_SEARCHED_ENTRIES
from pulsar_ext.spark.options import SINK, parse_options
from pulsar_ext.spark.sink import TaskProducers

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")]


@pytest.fixture
def dedup(pulsar_broker_factory):
    """Return a broker that deduplicates every topic."""
    return pulsar_broker_factory("dedup")


@pytest.fixture
def client(pulsar_client_factory, dedup):
    return pulsar_client_factory(dedup)


@pytest.fixture(params=[None, 2], ids=["one", "partitioned"])
def topic(request, pulsar_topic_factory, dedup):
    return pulsar_topic_factory(partitions=request.param, broker=dedup)


def parts_of(admin, topic):
    return [f"{topic}-partition-{index}" for index in range(admin.partitions(topic))] or [topic]


def forget(admin, topic):
    """Make the broker forget all producer names, as after `brokerDeduplicationProducerInactivityTimeoutMinutes`."""
    namespace = "/".join(topic.removeprefix("persistent://").split("/")[:2])
    for value, status in ((False, "Disabled"), (True, "Enabled")):
        admin.set_deduplication(namespace, value=value)
        for part in parts_of(admin, topic):
            for _ in range(300):
                if admin.stats(part).deduplication_status == status:
                    break
                time.sleep(0.1)


def write(broker, topic, numbers, *, batch, group="0", pause=0.0, **options):
    """Write rows like a task of a streaming batch; return the numbers of rows sent and of duplicates."""
    settings = parse_options({**Reach.of(broker).spark_options(), "topic": topic, **options}, SINK)
    with TaskProducers(settings, "query", batch << 32) as producers:
        for begin in range(0, len(numbers), 100):
            part = numbers[begin : begin + 100]
            keys = [f"k{number % 5}" if number % 2 else None for number in part]
            columns = {"content": pa.array([b"%d" % number for number in part]), "partition_key": pa.array(keys)}
            producers.send(group, pa.record_batch(columns))
            time.sleep(pause)
        return producers.finish()


def stored(client, topic, private_key=None):
    """Return the numbers on the topic, sorted; messages of other producers are skipped."""
    found = []
    keys = {"crypto_key_reader": CryptoKeyReader("", private_key)} if private_key else {}
    for name in client.get_topic_partitions(topic):
        with client.create_reader(name, pulsar_ext.MessageId.earliest, **keys) as reader:
            while reader.has_message_available():
                data = reader.read_next(10_000).data()
                found += [int(data)] if data.isdigit() else []
    return sorted(found)


def entries(admin, topic):
    """Return the number of entries of the topic."""
    return sum(admin.internal_stats(part).number_of_entries for part in parts_of(admin, topic))


def others(client, topic, count=400):
    """Send more entries of another producer than a search of the last few would cover."""
    with client.create_producer(topic, batching_enabled=False) as producer:
        producer.send_many([b"other"] * count)


@pytest.mark.parametrize("how", ["batched", "chunked", "encrypted"])
def test_forgotten_producer_name_resumes(dedup, client, topic, how, tmp_path):
    """After the broker forgot a name, a later batch is written and a partial batch is completed, each row once."""
    admin = client.context.admin_api()
    more = {"pulsar.producer.chunkingEnabled": "true"} if how == "chunked" else {}
    private_key = None
    if how == "encrypted":
        reading, more = key_files(tmp_path)
        private_key = reading["cryptoPrivateKeyFile"]
    numbers = list(range(1000))
    write(dedup, topic, numbers[:100], batch=0, **more)
    write(dedup, topic, numbers[100:200], batch=0, group="é", **more)
    for part in range(2, 6, 2):
        begin = part * 100
        forget(admin, topic)
        others(client, topic)
        assert write(dedup, topic, numbers[begin : begin + 70], batch=part, **more) == (70, 0)
        assert write(dedup, topic, numbers[begin + 100 : begin + 150], batch=part, group="é", **more) == (50, 0)
        forget(admin, topic)
        others(client, topic)
        assert write(dedup, topic, numbers[begin : begin + 100], batch=part, **more) == (100, 70)
        assert write(dedup, topic, numbers[begin + 100 : begin + 200], batch=part, group="é", **more) == (100, 50)
    assert stored(client, topic, private_key) == numbers[:600]


KILLED = f"""{IMPORTED}
sys.path.insert(0, {str(__file__).rsplit("/", 1)[0]!r})
from test_forgotten import write
print("begun", flush=True)
broker, topic, first, end, batch = Reach.unpack(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
write(broker, topic, range(first, end), batch=batch, pause=0.03)
"""


def test_killed_and_forgotten_writers_write_once(dedup, client, topic):
    """Tasks that are killed during a batch, forgotten, and repeated after other writers store each row once."""
    admin = client.context.admin_api()
    chance = random.Random(5)
    count, partly = 0, 0
    others(client, topic, 1)
    for batch in range(4):
        numbers = range(count, count + 6_000)
        arguments = [Reach.of(dedup).pack(), topic, str(numbers[0]), str(numbers[-1] + 1), str(batch)]
        with subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"begun\n"
            before = entries(admin, topic)
            while entries(admin, topic) == before and process.poll() is None:
                pass
            time.sleep(chance.random())
            process.kill()
        forget(admin, topic)
        others(client, topic, 300)
        sent, known = write(dedup, topic, numbers, batch=batch)
        partly += 0 < known < sent
        assert sent == len(numbers)
        count += len(numbers)
        assert stored(client, topic) == list(range(count))
    assert partly, "no writer was killed during its batch"


def test_unknown_producer_name_raises(dedup, client, pulsar_topic_factory):
    """A producer name not found on a long topic raises with the remedy; `unknownProducers=new` treats it as new."""
    topic = pulsar_topic_factory(broker=dedup)
    others(client, topic, MAX_SEARCHED_ENTRIES + 10)
    with pytest.raises(pulsar_ext.ProducerForgotten, match="unknownProducers=new"):
        write(dedup, topic, range(10), batch=0)
    assert write(dedup, topic, range(10), batch=0, unknownProducers="new") == (10, 0)
    assert stored(client, topic) == list(range(10))
