"""A client that fails over to another cluster: acknowledgements stay with the cluster of their messages."""

import contextlib
import dataclasses
import json
import queue
import time
from functools import partial

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
    """Open a client that connects to the west through a proxy, and fails over to the east."""
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
    """Send different messages with similar ids to each cluster; return the east's."""
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
def test_acks_stay_with_their_cluster(clusters, how, when):
    """After acknowledgements of the west's messages at any time, the east delivers all of its own."""
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
    """A message in flight fails, later sends raise, and the producer can be reopened on the other cluster."""
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
        reopened = client.create_producer(topic, **options, batching_enabled=not chunking)
        # The native client may be faster than the check of its cluster, and resend the message in flight there.
        reopened_from = reopened.last_sequence_id_published()
        assert reopened_from in {-1, 5}
        reopened.send(b"east p")
        received = [one.data() for one in _receive(consumer, len(east) + 1 + (reopened_from == 5))]
        assert sorted(one for one in received if one in {*east, b"east p", b"after"}) == sorted([*east, b"east p"])


def _write_pairs(clusters, topic, **keys):
    """Send a value to each cluster for each of its keys, with the fields of the east's in the other order."""
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
    """After the failover a schema version that both clusters have is decoded with the east's schema."""
    topic = "persistent://public/default/schemas"
    kind, reported = _write_pairs(clusters, topic), queue.SimpleQueue()
    stack, proxy, client = _open(clusters)
    with stack:
        consumer = client.subscribe(topic, "s", schema=AvroSchema(kind))
        reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=AutoConsumeSchema())
        listening = client.create_reader(
            topic,
            pulsar.MessageId.earliest,
            schema=AvroSchema(kind),
            reader_listener=lambda _, message: reported.put(message.value().a),
        )
        assert consumer.receive(30_000).value().a == "west a"
        assert reader.read_next(30_000).value()["a"] == reported.get(timeout=30) == "west a"
        _fail_over(clusters, proxy, client, consumer, reader, listening)
        assert consumer.receive(30_000).value().a == "east a"
        assert reader.read_next(30_000).value()["a"] == reported.get(timeout=30) == "east a"


def test_value_is_not_decoded_by_other_clusters_schema(clusters):
    """A west message raises after the failover if its schema was not known before; otherwise it is decoded."""
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


def test_table_view_follows_to_another_cluster(clusters):
    """A view has the east's values and none of the west's keys, and calls its listener."""
    topic, reported = "persistent://public/default/view", queue.SimpleQueue()
    kind = _write_pairs(clusters, topic, west=["both", "west"], east=["both", "east"])
    stack, proxy, client = _open(clusters)
    with stack:
        view = client.create_table_view(topic, schema=AvroSchema(kind))
        assert {key: value.a for key, value in view.items()} == {"both": "west a", "west": "west a"}
        view.listen(lambda key, value: reported.put((key, value and value.a)))
        _fail_over(clusters, proxy, client, view.inner)
        changes = [reported.get(timeout=30) for _ in range(3)]
        assert changes == [("both", "east a"), ("east", "east a"), ("west", None)]
        assert {key: value.a for key, value in view.items()} == {"both": "east a", "east": "east a"}


def _receive_of(client, topic, kind, schema):
    """Begin to receive in one way, and return a function that returns the next message."""
    earliest, reported = pulsar.MessageId.earliest, queue.SimpleQueue()
    if kind == "consumer":
        return partial(client.subscribe(topic, "s", schema=schema).receive, 30_000)
    if kind == "batch":
        consumer = client.subscribe(topic, "s", schema=schema)
        return lambda: next(batch[0] for batch in iter(consumer.batch_receive, None) if batch)
    if kind in ("listener", "listener of several topics"):
        topics = topic if kind == "listener" else [topic, f"{topic}-other"]
        client.subscribe(topics, "s", schema=schema, message_listener=lambda _, one: reported.put(one))
        return partial(reported.get, timeout=30)
    if kind == "reader listener":
        client.create_reader(topic, earliest, schema, lambda _, one: reported.put(one))
        return partial(reported.get, timeout=30)
    topics = [topic] if kind == "reader of several topics" else topic
    return partial(client.create_reader(topics, earliest, schema).read_next, 30_000)


@pytest.mark.parametrize(
    "kind",
    [
        *("consumer", "batch", "listener", "listener of several topics"),
        *("reader", "reader listener", "reader of several topics"),
    ],
)
def test_late_poll_delivers_no_wrong_value(clusters, monkeypatch, kind):
    """Nothing is decoded with the west's schema after the C++ client has connected to the east before the poll."""
    monkeypatch.setattr("pulsar_ext._runtime.cluster._POLL_SECONDS", 3.0)
    topic = f"persistent://public/default/late-{kind.replace(' ', '-')}"
    with contextlib.closing(official.Client(clusters.east.service_url, **_QUIET)) as east:
        for number in range(9):  # higher ids than the west's, so that the C++ reader continues with them
            east.create_producer(f"{topic}-{number}").send(b"")
    schema = AvroSchema(_write_pairs(clusters, topic))
    stack, proxy, client = _open(clusters)
    with stack:
        receive = _receive_of(client, topic, kind, schema)
        assert receive().value().a == "west a"
        _fail_over(clusters, proxy, client)
        assert receive().value().a == "east a"


def test_partitions_of_another_cluster_are_detected(clusters, monkeypatch):
    """The east's third partition is received, read and written, except by a producer that ended with the west."""
    monkeypatch.setattr("pulsar_ext.topics_reader._PARTITIONS_SECONDS", 0.5)
    monkeypatch.setattr("pulsar_ext.produce.partitioned._CHECK_SECONDS", 0.5)
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


def test_readers_restart_on_another_cluster(clusters):
    """A reader from the earliest message, also one of key ranges, reads everything on the other cluster."""
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
