"""Two replicating clusters, and a client that fails over to the other one."""

import contextlib
import time
import uuid

import pulsar as official
import pytest

import pulsar_ext as pulsar
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing import FaultProxy, ReplicatedClusters
from pulsar_ext.testing.backend import process_problem

pytestmark = [
    pytest.mark.skipif(process_problem() is not None, reason=f"no broker process here: {process_problem()}"),
    pytest.mark.xdist_group("cluster"),
]

_QUIET = {"logger": official.ConsoleLogger(official.LoggerLevel.Error)}
_FAILOVER_SECONDS = 60


@pytest.fixture(scope="module")
def clusters():
    with ReplicatedClusters() as both:
        yield both


@pytest.fixture
def topic(clusters):
    """Return a topic of a namespace that is replicated in both directions."""
    namespace = f"both/{uuid.uuid4().hex[:12]}"
    clusters.replicate(namespace)
    return f"persistent://{namespace}/topic"


@pytest.fixture
def connect():
    with contextlib.ExitStack() as opened:

        def client(url, **options):
            return opened.enter_context(contextlib.closing(pulsar.Client(url, **_QUIET, **options)))

        yield client


def _read(client, topic, count):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    return [reader.read_next(30_000) for _ in range(count)]


def _failing_over(first, second):
    return pulsar.AutoClusterFailover(
        pulsar.ServiceInfo(first), [pulsar.ServiceInfo(second)], check_interval_ms=200, switch_back_threshold=1000
    )


def _wait_for(client, url):
    deadline = time.monotonic() + _FAILOVER_SECONDS
    while client.get_service_info().service_url != url:
        assert time.monotonic() < deadline, "the client did not fail over"
        time.sleep(0.1)


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
def test_message_has_its_origin_cluster(clusters, connect, topic, batched):
    """A message sent to one cluster is in both, and only in the other one it has its origin."""
    west, east = connect(clusters.west.service_url), connect(clusters.east.service_url)
    producer = west.create_producer(topic, batching_enabled=batched)
    for _ in range(3):
        producer.send_async(b"from west", None)
    producer.flush()
    clusters.carry_over(topic)
    east.create_producer(topic).send(b"from east")
    clusters.carry_over(topic)
    for client, expected in ((east, {"west", None}), (west, {"east", None})):
        origins = {one.data(): one.replicated_from() for one in _read(client, topic, 4)}
        assert set(origins.values()) == expected
        assert origins[b"from east"] == (None if client is east else "east")
    with PulsarAdmin(clusters.east.admin_url) as admin:
        [first, *_] = _read(east, topic, 1)
        position = first.message_id()
        assert admin.entry(topic, position.ledger_id(), position.entry_id()).replicated_from == "west"


def test_replication_drops_chunks_of_full_size(clusters, connect, topic):
    """The broker silently replicates only the last chunk: added headers make the others too large."""
    producer = connect(clusters.west.service_url).create_producer(topic, batching_enabled=False, chunking_enabled=True)
    producer.send(b"x" * 6_000_000)
    clusters.carry_over(topic)
    with PulsarAdmin(clusters.west.admin_url) as west, PulsarAdmin(clusters.east.admin_url) as east:
        assert west.internal_stats(topic).last_confirmed_entry.entry_id == 1
        assert east.internal_stats(topic).last_confirmed_entry.entry_id == 0
        [ledger] = east.internal_stats(topic).ledgers
        assert east.entry(topic, ledger.ledger_id, 0).chunk_id == 1


def test_failover_loses_no_replicated_message(clusters, connect, topic):
    """A producer whose cluster is killed continues with the other one, which has all replicated messages."""
    client = connect(_failing_over(clusters.west.service_url, clusters.east.service_url))
    producer = client.create_producer(topic, send_timeout_millis=0)
    confirmed = []

    def send(contents):
        for content in contents:
            producer.send(content)
            confirmed.append(content)

    try:
        send(b"before %d" % number for number in range(100))
        clusters.carry_over(topic)
        clusters.west.kill()
        send(b"after %d" % number for number in range(100))
        assert client.get_service_info().service_url == clusters.east.service_url
        there = [one.data() for one in _read(client, topic, len(confirmed))]
        assert sorted(set(there)) == sorted(confirmed)
    finally:
        clusters.west.restart()
    clusters.carry_over(topic)
    again = {one.data() for one in _read(connect(clusters.west.service_url), topic, len(confirmed))}
    assert again == set(confirmed)


def test_admin_api_of_the_former_cluster_is_rejected(clusters, connect, topic, monkeypatch):
    """After a failover the first cluster's admin API, which still answers, raises, and nothing is skipped."""
    monkeypatch.setenv("PULSAR_ADMIN_URL", clusters.west.admin_url)
    with FaultProxy.to(clusters.west.service_url) as proxy:
        client = connect(_failing_over(proxy.service_url, clusters.east.service_url))
        sent = [client.create_producer(topic).send(b"%d" % number) for number in range(3)]
        clusters.carry_over(topic)
        assert client.message_id_after(topic, sent[0], 2) == sent[2]
        proxy.refuse()
        proxy.cut()
        _wait_for(client, clusters.east.service_url)
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        with pytest.raises(pulsar.AdminRequired, match=r"another cluster \(west\)"):
            client.skip_messages(topic, "s", 1)
        received = [consumer.receive(30_000) for _ in range(3)]
        assert [(one.data(), one.replicated_from()) for one in received] == [(b"%d" % n, "west") for n in range(3)]


def test_cluster_names_are_fixed():
    """Setting the clusters' names raises, and a pair that was never started can be stopped."""
    with pytest.raises(InvalidUse, match="west and east"):
        ReplicatedClusters(settings={"clusterName": "mine"})
    both = ReplicatedClusters()
    assert "running: nothing" in repr(both)
    both.stop()
