"""Operations on a cluster's parts by their names, with processes and with containers."""

import contextlib
import os

import httpx2
import pulsar
import pytest
from containers import container_problem

from pulsar_ext.testing import PulsarCluster
from pulsar_ext.testing.backend import process_problem
from pulsar_ext.testing.image import connect_engine

pytestmark = pytest.mark.xdist_group("cluster")

_QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture(scope="module", params=["process", "docker"])
def shared(request):
    problem = process_problem() if request.param == "process" else container_problem()
    if problem is not None and os.environ.get("PULSAR_EXT_REQUIRE_CONTAINERS") == "1":
        pytest.fail(f"both back ends are required here: {problem}")
    if problem is not None:
        pytest.skip(problem)
    with PulsarCluster(backend=request.param) as one:
        yield one


@pytest.fixture
def cluster(shared):
    """Return the cluster of all tests with a back end; heal it afterwards."""
    yield shared
    shared.heal()


@pytest.fixture
def topic(cluster, pulsar_topic_factory):
    return pulsar_topic_factory(broker=cluster)


@pytest.fixture
def connect(cluster):
    with contextlib.ExitStack() as opened:
        yield lambda url: opened.enter_context(contextlib.closing(pulsar.Client(url, logger=_QUIET)))


def _contents(client, topic, count):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    return [reader.read_next(30_000).data() for _ in range(count)]


def test_move_drain_and_proxies(cluster, connect, topic):
    """A bundle moves to the named broker, a drained broker owns nothing, and a client stays behind the proxies."""
    producer = connect(cluster.proxied_url).create_producer(topic, send_timeout_millis=0)
    for name in ("broker-1", "broker-2", "broker-1"):
        cluster.move(topic, name)
        producer.send(name.encode())
        assert cluster.owner(topic) == name
        assert cluster.proxies[name].connections > 0
    cluster.drain("broker-1")
    assert cluster.owner(topic) == "broker-2"
    assert _contents(connect(cluster.service_url.split(",")[0]), topic, 3) == [b"broker-1", b"broker-2", b"broker-1"]


def test_killed_parts_restart_with_their_data(cluster, connect, topic):
    """Another broker takes over a killed one's topic; it and a killed bookie restart with their data."""
    client = connect(cluster.service_url)
    producer = client.create_producer(topic, send_timeout_millis=0)
    producer.send(b"before")
    killed = cluster.owner(topic)
    cluster.kill(killed)
    assert cluster.pid(killed) is None
    producer.send(b"after")
    assert cluster.owner(topic) != killed
    cluster.kill("bookie-1")
    assert not cluster.is_running("bookie-1")
    cluster.restart("bookie-1", killed)
    assert cluster.is_running()
    producer.send(b"again")
    assert _contents(client, topic, 3) == [b"before", b"after", b"again"]


def test_roll_and_cut_off(cluster, connect, topic):
    """A rolled broker is a new process; one that is cut off has no connection to ZooKeeper until it rejoins."""
    producer = connect(cluster.service_url).create_producer(topic, send_timeout_millis=0)
    producer.send(b"before")
    pid = cluster.pid("broker-2")
    cluster.roll("broker-2")
    assert cluster.pid("broker-2") not in (pid, None)
    store = cluster.stores["broker-1"]
    assert store.connections > 0
    cluster.cut_off("broker-1")
    assert store.connections == 0
    cluster.rejoin("broker-1")
    assert store.connections > 0
    producer.send(b"after")
    assert _contents(connect(cluster.service_url), topic, 2) == [b"before", b"after"]


def test_other_containers_reach_it_by_name():
    """In the cluster's network a broker's name is a host, look-ups return such names, and nothing remains."""
    if problem := container_problem():
        pytest.skip(problem)
    engine = connect_engine()
    with PulsarCluster(backend="docker", brokers=1, bookies=1) as cluster:
        network = cluster.network
        assert cluster.network_url == "pulsar://broker-1:6650"
        topic = f"{cluster.admin_url}/lookup/v2/topic/persistent/public/default/named"
        found = httpx2.get(topic, headers={"X-Pulsar-ListenerName": "network"}, timeout=30, trust_env=False).json()
        assert found["brokerUrl"] == cluster.network_url
        image = engine.containers.get(f"{network}-broker-1").image.id
        connecting = ["bash", "-c", "exec 3<> /dev/tcp/broker-1/6650 && echo reached"]
        assert engine.containers.run(image, connecting, network=network, remove=True) == b"reached\n"
    assert not engine.containers.list(all=True, filters={"name": network}, sparse=True)
    assert not engine.networks.list(names=[network])
    engine.close()
