"""A cluster of two brokers and two bookies: parts killed and restarted by their names, and bundles moved."""

import contextlib
import re
import socket
from urllib.parse import urlsplit

import psutil
import pulsar
import pytest

from pulsar_ext.errors import BrokerStartError, InvalidUse
from pulsar_ext.testing import PulsarCluster
from pulsar_ext.testing.backend import process_problem
from pulsar_ext.testing.cluster_conf import Addresses

pytestmark = [
    pytest.mark.skipif(process_problem() is not None, reason=f"no broker process here: {process_problem()}"),
    # One worker, and so one cluster: it has five Java machines.
    pytest.mark.xdist_group("cluster"),
]


@pytest.fixture
def topic(pulsar_cluster, pulsar_topic_factory):
    return pulsar_topic_factory(broker=pulsar_cluster)


@pytest.fixture
def connect(pulsar_cluster):
    with contextlib.ExitStack() as opened:

        def client(url=pulsar_cluster.service_url):
            logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            return opened.enter_context(contextlib.closing(pulsar.Client(url, logger=logger)))

        yield client


def contents(client, topic, count):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    return [reader.read_next(30_000).data() for _ in range(count)]


@pytest.mark.parametrize("which", ["broker", "bookie", "zookeeper"])
def test_killed_part_restarts_with_its_data(pulsar_cluster, connect, topic, which):
    """After a SIGKILL of the topic's broker, a bookie or ZooKeeper, a restart keeps the data and the URLs."""
    client = connect()
    producer = client.create_producer(topic, send_timeout_millis=0)
    producer.send(b"before")
    name = {"broker": pulsar_cluster.owner(topic), "bookie": "bookie-1"}.get(which, which)
    urls, pid = (pulsar_cluster.service_url, pulsar_cluster.admin_urls), pulsar_cluster.pid(name)
    pulsar_cluster.kill(name)
    assert not pulsar_cluster.is_running(name)
    assert not psutil.pid_exists(pid)
    pulsar_cluster.restart(name)
    assert pulsar_cluster.is_running()
    assert (pulsar_cluster.service_url, pulsar_cluster.admin_urls) == urls
    producer.send(b"after")
    assert contents(client, topic, 2) == [b"before", b"after"]


def test_another_broker_takes_over(pulsar_cluster, connect, topic):
    """The topic of a killed broker moves to the other one."""
    client = connect()
    producer = client.create_producer(topic, send_timeout_millis=0)
    producer.send(b"before")
    killed = pulsar_cluster.owner(topic)
    pulsar_cluster.kill(killed)
    producer.send(b"after")
    assert pulsar_cluster.owner(topic) not in (killed, None)
    assert contents(client, topic, 2) == [b"before", b"after"]


def test_bundle_moves_to_the_named_broker(pulsar_cluster, connect, topic):
    """A topic moves between the brokers, and its producer follows."""
    producer = connect().create_producer(topic, send_timeout_millis=0)
    for number, name in enumerate((*pulsar_cluster.brokers, *pulsar_cluster.brokers)):
        pulsar_cluster.move(topic, name)
        assert pulsar_cluster.owner(topic) == name
        producer.send(b"%d" % number)
    assert contents(connect(), topic, 4) == [b"0", b"1", b"2", b"3"]


def test_roll_restarts_only_the_named_parts(pulsar_cluster, connect, topic):
    """Each named part is a new process afterwards, the others are not, and a producer continues."""
    producer = connect().create_producer(topic, send_timeout_millis=0)
    producer.send(b"before")
    before = {name: pulsar_cluster.pid(name) for name in pulsar_cluster.parts}
    pulsar_cluster.roll("bookie-2", "broker-1")
    changed = {name for name in pulsar_cluster.parts if pulsar_cluster.pid(name) != before[name]}
    assert changed == {"bookie-2", "broker-1"}
    producer.send(b"after")
    assert contents(connect(), topic, 2) == [b"before", b"after"]


def test_broker_rejoins_the_metadata_store(pulsar_cluster, connect, topic):
    """A broker that is cut off from ZooKeeper has no connection to it, and works after it has rejoined."""
    producer = connect().create_producer(topic, send_timeout_millis=0)
    producer.send(b"before")
    name = pulsar_cluster.owner(topic)
    store = pulsar_cluster.stores[name]
    assert store.connections > 0
    pulsar_cluster.cut_off(name)
    assert store.connections == 0
    pulsar_cluster.rejoin(name)
    assert store.connections > 0
    producer.send(b"after")
    assert contents(connect(), topic, 2) == [b"before", b"after"]


def test_look_ups_return_proxies(pulsar_cluster, connect, topic):
    """A client of the proxied URL reaches each broker through that broker's proxy."""
    client = connect(pulsar_cluster.proxied_url)
    producer = client.create_producer(topic, send_timeout_millis=0)
    for name in pulsar_cluster.brokers:
        pulsar_cluster.move(topic, name)
        producer.send(b"x")
        proxy = pulsar_cluster.proxies[name]
        results = []
        reader = client.create_reader(topic, pulsar.MessageId.latest)
        proxy.pause()
        producer.send_async(b"y", lambda result, _, results=results: results.append(result))
        with pytest.raises(pulsar.Timeout):
            reader.read_next(500)
        assert results == []
        proxy.resume()
        producer.flush()
        assert results == [pulsar.Result.Ok]


def test_names_are_checked_before_any_change(pulsar_cluster, topic):
    """An unknown part, or one that is not a broker, raises an error with its name, and all parts run on."""
    for wrong in (
        lambda: pulsar_cluster.kill("broker-1", "broker-9"),
        lambda: pulsar_cluster.restart("broker-1", "broker-9"),
        lambda: pulsar_cluster.roll("broker-1", "broker-9"),
        lambda: pulsar_cluster.move(topic, "bookie-1"),
        lambda: pulsar_cluster.drain("zookeeper"),
        lambda: pulsar_cluster.cut_off("bookie-1"),
        lambda: pulsar_cluster.pid("broker-9"),
    ):
        before = [pulsar_cluster.pid(name) for name in pulsar_cluster.parts]
        with pytest.raises(InvalidUse, match=r"broker-|bookie-"):
            wrong()
        assert [pulsar_cluster.pid(name) for name in pulsar_cluster.parts] == before


def test_cluster_with_tokens_leaves_nothing():
    """A cluster with authentication logs no token, and leaves no process."""
    with PulsarCluster("auth", brokers=1, bookies=1) as cluster:
        pids = [cluster.pid(name) for name in cluster.parts]
        token = cluster.access.token
        assert re.search("profile auth.*1 brokers and 1 bookies", cluster.describe())
        logs = [cluster.log_text(name) for name in cluster.parts]
        assert token not in "".join([*logs, repr(cluster), cluster.describe()])
        with pytest.raises(InvalidUse, match="the only running broker"):
            cluster.drain("broker-1")
    assert not cluster.is_running()
    assert not any(psutil.pid_exists(pid) for pid in pids)


@contextlib.contextmanager
def taken(port):
    """Let another program listen on a port."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        yield


def test_taken_port_is_reported():
    """A broker or ZooKeeper whose port another program has taken is not ready, and heals when it is free.

    A broker runs on without its admin port, and the other program accepts connections instead of ZooKeeper.
    """
    with PulsarCluster(brokers=1, bookies=1, start_timeout=60) as cluster:
        ports = {
            "broker-1": urlsplit(cluster.admin_url).port,
            "zookeeper": int(re.search(r" to 127\.0\.0\.1:(\d+)", repr(cluster.stores["broker-1"]))[1]),
        }
        for name, port in ports.items():
            cluster.kill(name)
            with taken(port), pytest.raises(BrokerStartError, match=f"{name}: another program took one of its ports"):
                cluster.restart(name)
            cluster.heal()


def test_cluster_restarts_on_other_ports_for_a_taken_proxy(monkeypatch):
    """The cluster starts again on other ports if the port of a proxy is taken."""
    choose, chosen = Addresses.choose, []
    with contextlib.ExitStack() as held:

        def choose_taken(*counts, **options):
            chosen.append(choose(*counts, **options))
            if len(chosen) == 1:
                held.enter_context(taken(chosen[0].brokers["broker-1"].proxy))
            return chosen[-1]

        cluster = PulsarCluster(brokers=1, bookies=1)
        monkeypatch.setattr(Addresses, "choose", choose_taken)
        with cluster:
            assert cluster.proxies["broker-1"].port == chosen[1].brokers["broker-1"].proxy
