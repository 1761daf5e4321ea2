"""Exactly once although the broker has forgotten a producer's name; this needs no Spark session."""

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

from pulsar_ext.dedup.opening import MOST_ENTRIES
from pulsar_ext.spark.options import SINK, parse_options
from pulsar_ext.spark.rows import Rows
from pulsar_ext.spark.sink import TaskProducers

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")]


@pytest.fixture
def dedup(pulsar_broker_factory):
    """A broker that deduplicates every topic."""
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
    """Have the broker forget all producer names, as after `brokerDeduplicationProducerInactivityTimeoutMinutes`."""
    namespace = "/".join(topic.removeprefix("persistent://").split("/")[:2])
    for value, status in ((False, "Disabled"), (True, "Enabled")):
        admin.set_deduplication(namespace, value=value)
        for part in parts_of(admin, topic):
            for _ in range(300):
                if admin.stats(part).deduplication_status == status:
                    break
                time.sleep(0.1)


def write(broker, topic, numbers, *, batch, lane="0", pause=0.0, **options):
    """Write rows as one task of a streaming batch would; give how many were sent, and how many were there already."""
    settings = parse_options({**Reach.of(broker).spark_options(), "topic": topic, **options}, SINK)
    with TaskProducers(settings, "query", batch << 32) as producers:
        for begin in range(0, len(numbers), 100):
            part = numbers[begin : begin + 100]
            keys = [f"k{number % 5}" if number % 2 else None for number in part]
            columns = {"content": pa.array([b"%d" % number for number in part]), "partition_key": pa.array(keys)}
            producers.send(lane, Rows(topic, pa.record_batch(columns)))
            time.sleep(pause)
        return producers.finish()


def stored(client, topic, private_key=None):
    """The numbers on the topic, in order of number; words of others are left out."""
    found = []
    keys = {"crypto_key_reader": CryptoKeyReader("", private_key)} if private_key else {}
    for name in client.get_topic_partitions(topic):
        with client.create_reader(name, pulsar_ext.MessageId.earliest, **keys) as reader:
            while reader.has_message_available():
                data = reader.read_next(10_000).data()
                found += [int(data)] if data.isdigit() else []
    return sorted(found)


def entries(admin, topic):
    """How many entries the topic has."""
    return sum(admin.internal_stats(part).number_of_entries for part in parts_of(admin, topic))


def others(client, topic, count=400):
    """More entries of another producer than a look at the last few would cross."""
    with client.create_producer(topic, batching_enabled=False) as producer:
        producer.send_many([b"other"] * count)


@pytest.mark.parametrize("how", ["batched", "chunked", "encrypted"])
def test_a_forgotten_name_goes_on_where_it_ended(dedup, client, topic, how, tmp_path):
    """A later batch of a forgotten lane is written, and one that was written in part is completed: each row once."""
    admin = client.context.admin_api()
    more = {"pulsar.producer.chunkingEnabled": "true"} if how == "chunked" else {}
    private_key = None
    if how == "encrypted":
        reading, more = key_files(tmp_path)
        private_key = reading["cryptoPrivateKeyFile"]
    numbers = list(range(1000))
    write(dedup, topic, numbers[:100], batch=0, **more)
    write(dedup, topic, numbers[100:200], batch=0, lane="é", **more)
    for part in range(2, 6, 2):
        begin = part * 100
        forget(admin, topic)
        others(client, topic)
        assert write(dedup, topic, numbers[begin : begin + 70], batch=part, **more) == (70, 0)
        assert write(dedup, topic, numbers[begin + 100 : begin + 150], batch=part, lane="é", **more) == (50, 0)
        forget(admin, topic)
        others(client, topic)
        assert write(dedup, topic, numbers[begin : begin + 100], batch=part, **more) == (100, 70)
        assert write(dedup, topic, numbers[begin + 100 : begin + 200], batch=part, lane="é", **more) == (100, 50)
    assert stored(client, topic, private_key) == numbers[:600]


KILLED = f"""{IMPORTED}
sys.path.insert(0, {str(__file__).rsplit("/", 1)[0]!r})
from test_forgotten import write
print("begun", flush=True)
broker, topic, first, end, batch = Reach.unpack(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
write(broker, topic, range(first, end), batch=batch, pause=0.03)
"""


def test_killed_writers_that_are_forgotten(dedup, client, topic):
    """Tasks that are killed amid a batch, forgotten, and run again when others have written: each row once."""
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
    assert partly, "no writer was killed amid its batch"


def test_what_cannot_be_known_is_refused(dedup, client, pulsar_topic_factory):
    """A name that nothing shows on a long topic is refused with what to do, and is new where a person says so."""
    topic = pulsar_topic_factory(broker=dedup)
    others(client, topic, MOST_ENTRIES + 10)
    with pytest.raises(pulsar_ext.ProducerForgotten, match="unknownProducers=new"):
        write(dedup, topic, range(10), batch=0)
    assert write(dedup, topic, range(10), batch=0, unknownProducers="new") == (10, 0)
    assert stored(client, topic) == list(range(10))
