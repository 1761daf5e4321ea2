"""A client that fails over to another cluster: its acknowledgements stay with the cluster that they are of."""

import contextlib
import dataclasses
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
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
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


def test_values_have_the_schemas_of_their_cluster(clusters):
    """A version number that the west and the east have each given decodes by the east's schema after the failover."""
    topic = "persistent://public/default/schemas"
    kinds = {"west": [("a", str), ("b", str)], "east": [("b", str), ("a", str)]}
    for name, fields in kinds.items():
        kind = dataclasses.make_dataclass("Pair", fields)
        with contextlib.closing(pulsar.Client(getattr(clusters, name).service_url, **_QUIET)) as client:
            client.subscribe(topic, "s", schema=AvroSchema(kind)).close()
            client.create_producer(topic, schema=AvroSchema(kind)).send(kind(a=f"{name} a", b=f"{name} b"))
    stack, proxy, client = _open(clusters)
    with stack:
        consumer = client.subscribe(topic, "s", schema=AvroSchema(dataclasses.make_dataclass("Pair", kinds["west"])))
        reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=AutoConsumeSchema())
        assert consumer.receive(30_000).value().a == "west a"
        assert reader.read_next(30_000).value()["a"] == "west a"
        _fail_over(clusters, proxy, client, consumer, reader)
        assert consumer.receive(30_000).value().a == "east a"
        assert reader.read_next(30_000).value()["a"] == "east a"


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
