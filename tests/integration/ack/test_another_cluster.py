"""A client that fails over to another cluster: its acknowledgements stay with the cluster that they are of."""

import contextlib
import dataclasses
import json
import queue
import time

import pulsar as official
import pytest

import pulsar_ext as pulsar
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.schema import AutoConsumeSchema, AvroSchema
from pulsar_ext.testing import FaultProxy, ReplicatedClusters
from pulsar_ext.testing.backend import process_problem

pytestmark = [
    pytest.mark.skipif(process_problem() is not None, reason=f"no broker process here: {process_problem()}"),
    pytest.mark.xdist_group("cluster"),
]

_QUIET = {"logger": official.ConsoleLogger(official.LoggerLevel.Error)}
_SHARED = pulsar.ConsumerType.Shared
_FAILOVER_SECONDS = 60
_COUNT = 20
_SETTINGS = {"brokerDeleteInactiveTopicsEnabled": "false", "brokerDeduplicationEnabled": "true"}


@pytest.fixture(scope="module")
def clusters():
    with ReplicatedClusters(heap="256m", start_timeout=240, settings=_SETTINGS) as both:
        yield both


def _open(clusters, **options):
    """Open a client at the west through a proxy, which fails over to the east."""
    stack = contextlib.ExitStack()
    proxy = stack.enter_context(FaultProxy.to(clusters.west.service_url))
    failover = pulsar.AutoClusterFailover(
        pulsar.ServiceInfo(proxy.service_url),
        [pulsar.ServiceInfo(clusters.east.service_url)],
        check_interval_ms=200,
        switch_back_threshold=1000,
    )
    admins = [clusters.west.admin_url, clusters.east.admin_url]
    client = stack.enter_context(contextlib.closing(pulsar.Client(failover, admin=admins, **_QUIET, **options)))
    return stack, proxy, client


def _fill(clusters, topic):
    """Send other messages to each cluster, with ids that are alike; return the east's."""
    texts = {}
    for name in ("west", "east"):
        broker = getattr(clusters, name)
        with contextlib.closing(official.Client(broker.service_url, **_QUIET)) as client:
            client.subscribe(topic, "s").close()
            producer = client.create_producer(topic, batching_enabled=False)
            texts[name] = [f"{name} {number}".encode() for number in range(_COUNT)]
            for text in texts[name]:
                producer.send(text)
    return texts["east"]


def _fail_over(clusters, proxy, client, *followers):
    proxy.refuse()
    proxy.cut()
    deadline, east = time.monotonic() + _FAILOVER_SECONDS, clusters.east.service_url
    while client.get_service_info().service_url != east or not all(one._cluster_ for one in followers):
        assert time.monotonic() < deadline, "the client did not fail over"
        time.sleep(0.05)


def _receive(consumer, count):
    return [consumer.receive(30_000) for _ in range(count)]


def _acknowledged(clusters, topic):
    with PulsarAdmin(clusters.east.admin_url) as admin:
        backlog = admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries
    return _COUNT - backlog


@pytest.mark.parametrize("when", ["before", "outage", "after"])
@pytest.mark.parametrize("how", ["each", "cumulative"])
def test_acknowledgements_stay_with_their_cluster(clusters, how, when):
    """Whenever it acknowledged the west's messages, the east delivers each of its own, and its cursor stays."""
    topic = f"persistent://public/default/{how}-{when}"
    east = _fill(clusters, topic)
    stack, proxy, client = _open(clusters)
    with stack:
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Failover, receiver_queue_size=1)
        received = _receive(consumer, _COUNT - 5)

        def acknowledge():
            if how == "cumulative":
                consumer.acknowledge_cumulative(received[-1])
            else:
                consumer.acknowledge_many(received)

        if when == "before":
            acknowledge()
            consumer.flush_acks(confirm=True)
        elif when == "outage":
            proxy.refuse()
            proxy.cut()
            acknowledge()
        _fail_over(clusters, proxy, client, consumer)
        if when == "after":
            acknowledge()
        consumer.flush_acks()
        here = _receive(consumer, _COUNT)
        assert [one.data() for one in here] == east
        assert _acknowledged(clusters, topic) == 0
        consumer.acknowledge_many(here)
        consumer.flush_acks(confirm=True)  # by the admin API of the east
        assert _acknowledged(clusters, topic) == _COUNT


@pytest.mark.parametrize("chunking", [False, True])
def test_deduplicating_producers_stay_with_their_cluster(clusters, chunking):
    """What was in flight fails, nothing is sent after it, and the producer opens anew on the other cluster."""
    topic = f"persistent://public/default/dedup-{chunking}"
    east = _fill(clusters, topic)
    stack, proxy, client = _open(clusters)
    with stack:
        options = {"producer_name": "p", "deduplication": True, "chunking_enabled": chunking}
        producer = client.create_producer(topic, **options, batching_enabled=not chunking)
        consumer = client.subscribe(topic, "s", _SHARED)
        for number in range(5):
            producer.send(b"west p %d" % number)
        proxy.refuse()
        proxy.cut()
        outcomes = queue.SimpleQueue()
        producer.send_async(b"during the outage", lambda result, _: outcomes.put(result))
        _fail_over(clusters, proxy, client, consumer)
        assert outcomes.get(timeout=60) != pulsar.Result.Ok
        with pytest.raises(pulsar.ProducerBroken, match="another cluster"):
            producer.send(b"after")
        producer.close()
        again = client.create_producer(topic, **options, batching_enabled=not chunking)
        # The native client may be faster than the look at its cluster, and send again there what was in flight.
        again_from = again.last_sequence_id_published()
        assert again_from in {-1, 5}
        again.send(b"east p")
        received = [one.data() for one in _receive(consumer, len(east) + 1 + (again_from == 5))]
        assert sorted(one for one in received if one in {*east, b"east p", b"after"}) == sorted([*east, b"east p"])


def _write_pairs(clusters, topic, **keys):
    """Send a pair to each cluster for each of its keys, the east's with its fields in the other order."""
    kinds = {"west": [("a", str), ("b", str)], "east": [("b", str), ("a", str)]}
    for name, fields in kinds.items():
        kind = dataclasses.make_dataclass("Pair", fields)
        with contextlib.closing(pulsar.Client(getattr(clusters, name).service_url, **_QUIET)) as client:
            client.subscribe(topic, "s", schema=AvroSchema(kind)).close()
            producer = client.create_producer(topic, schema=AvroSchema(kind))
            for key in keys.get(name, ["k"]):
                producer.send(kind(a=f"{name} a", b=f"{name} b"), partition_key=key)
    return dataclasses.make_dataclass("Pair", kinds["west"])


def test_values_have_the_schemas_of_their_cluster(clusters):
    """A version number that the west and the east have each given decodes by the east's schema after the failover."""
    topic = "persistent://public/default/schemas"
    kind, heard = _write_pairs(clusters, topic), queue.SimpleQueue()
    stack, proxy, client = _open(clusters)
    with stack:
        consumer = client.subscribe(topic, "s", schema=AvroSchema(kind))
        reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=AutoConsumeSchema())
        listening = client.create_reader(
            topic,
            pulsar.MessageId.earliest,
            schema=AvroSchema(kind),
            reader_listener=lambda _, message: heard.put(message.value().a),
        )
        assert consumer.receive(30_000).value().a == "west a"
        assert reader.read_next(30_000).value()["a"] == heard.get(timeout=30) == "west a"
        _fail_over(clusters, proxy, client, consumer, reader, listening)
        assert consumer.receive(30_000).value().a == "east a"
        assert reader.read_next(30_000).value()["a"] == heard.get(timeout=30) == "east a"


def test_a_value_is_not_read_by_another_clusters_schema(clusters):
    """A west message whose version was not looked up before the failover raises; one whose version was is decoded."""
    topic = "persistent://public/default/late"
    kind = _write_pairs(clusters, topic)
    definition = json.loads(AvroSchema(kind).schema_info().schema())
    schemas = [AvroSchema(kind), AutoConsumeSchema(), official.schema.AvroSchema(None, definition)]
    stack, proxy, client = _open(clusters)
    with stack:
        readers = [client.create_reader(topic, pulsar.MessageId.earliest, schema=one) for one in schemas * 2]
        messages = [one.read_next(30_000) for one in readers]
        known = [one.value() for one in messages[:2]]
        _fail_over(clusters, proxy, client, *readers)
        assert [one.value() for one in messages[:2]] == known
        for late in messages[3:]:
            with pytest.raises(pulsar.SchemaMismatch, match="another cluster"):
                late.value()


def test_a_table_view_follows_to_another_cluster(clusters):
    """It has the east's values by the east's schema, and no key of the west alone; its listener is notified."""
    topic, heard = "persistent://public/default/view", queue.SimpleQueue()
    kind = _write_pairs(clusters, topic, west=["both", "west"], east=["both", "east"])
    stack, proxy, client = _open(clusters)
    with stack:
        view = client.create_table_view(topic, schema=AvroSchema(kind))
        assert {key: value.a for key, value in view.items()} == {"both": "west a", "west": "west a"}
        view.listen(lambda key, value: heard.put((key, value and value.a)))
        _fail_over(clusters, proxy, client, view.inner)
        changes = [heard.get(timeout=30) for _ in range(3)]
        assert changes == [("both", "east a"), ("east", "east a"), ("west", None)]
        assert {key: value.a for key, value in view.items()} == {"both": "east a", "east": "east a"}


def test_partitions_that_only_another_cluster_has(clusters, monkeypatch):
    """The third partition of the east is received, read and written; but by no producer that ended with the west."""
    monkeypatch.setattr("pulsar_ext.topics_reader.opening._PARTITIONS_SECONDS", 0.5)
    monkeypatch.setattr("pulsar_ext.produce.partitioned._LOOK_SECONDS", 0.5)
    topic = "persistent://public/default/partitions"
    for broker, count in ((clusters.west, 2), (clusters.east, 3)):
        with PulsarAdmin(broker.admin_url) as admin:
            admin.create_partitioned_topic(topic, count)
    stack, proxy, client = _open(clusters)
    with stack, contextlib.closing(official.Client(clusters.east.service_url, **_QUIET)) as east:
        first = {"initial_position": pulsar.InitialPosition.Earliest}
        consumers = [client.subscribe(one, name, _SHARED, **first) for one, name in ((topic, "s"), ([topic], "l"))]
        readers = [
            client.create_reader(topic, pulsar.MessageId.earliest),
            client.create_reader([topic], pulsar.MessageId.earliest),
            client.create_reader(topic, pulsar.MessageId.earliest, key_hash_ranges=[pulsar.KeyHashRange(0, 65535)]),
        ]
        plain = client.create_producer(topic, hashing_scheme=pulsar.HashingScheme.Murmur3_32Hash)
        named = client.create_producer(topic, producer_name="p", deduplication=True)
        _fail_over(clusters, proxy, client, *consumers, readers[0], readers[2])
        third = east.create_producer(f"{topic}-partition-2")
        third.send(b"official")
        for one in consumers:
            assert one.receive(30_000).data() == b"official"
        for one in readers:
            assert one.read_next(30_000).data() == b"official"
        while plain.send(b"plain").partition() != 2:
            with pytest.raises(pulsar.ProducerBroken, match="another cluster"):
                named.send_many([b"named"] * 3)


def test_readers_and_views_begin_again_on_another_cluster(clusters):
    """A reader from the earliest message reads all of the other cluster, and so does one of key ranges."""
    topic = "persistent://public/default/readers"
    east = _fill(clusters, topic)
    stack, proxy, client = _open(clusters)
    with stack:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        several = client.create_reader([topic], pulsar.MessageId.earliest)
        ranges = client.create_reader(topic, pulsar.MessageId.earliest, key_hash_ranges=[pulsar.KeyHashRange(0, 65535)])
        each = [reader, several, ranges]
        for one in each:
            assert one.read_next(30_000).data() == b"west 0"
        _fail_over(clusters, proxy, client, reader)
        for one in each:
            texts = []
            while texts[-1:] != east[-1:]:
                texts.append(one.read_next(30_000).data())
            assert [text for text in texts if text.startswith(b"east")][-_COUNT:] == east
