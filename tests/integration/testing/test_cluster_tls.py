"""A cluster with TLS: authentication between brokers, look-ups, proxies, and several https admin URLs."""

import contextlib
from urllib.parse import urlsplit

import pulsar as official
import pytest

import pulsar_ext as pulsar
from pulsar_ext.testing import PulsarCluster
from pulsar_ext.testing.backend import process_problem

pytestmark = [
    pytest.mark.skipif(process_problem() is not None, reason=f"no broker process here: {process_problem()}"),
    pytest.mark.xdist_group("cluster"),
]


@pytest.fixture(scope="module", params=["mtls", "oauth2"])
def cluster(request):
    with PulsarCluster(request.param) as one:
        yield one


@pytest.fixture(autouse=True)
def _healed(cluster):
    yield
    cluster.heal()


@pytest.fixture
def topic(cluster, pulsar_topic_factory):
    return pulsar_topic_factory(broker=cluster)


@pytest.fixture
def connect(cluster):
    with contextlib.ExitStack() as opened:

        def client(url=cluster.service_url, module=official):
            logger = official.ConsoleLogger(official.LoggerLevel.Error)
            options = cluster.client_options(module)
            return opened.enter_context(contextlib.closing(module.Client(url, logger=logger, **options)))

        yield client


def _contents(client, topic, count):
    reader = client.create_reader(topic, official.MessageId.earliest)
    return [reader.read_next(30_000).data() for _ in range(count)]


@pytest.mark.parametrize("module", [official, pulsar], ids=["official", "ours"])
def test_look_up_returns_the_topics_broker(cluster, connect, topic, module):
    """A client with one broker's URL is redirected to the topic's broker, also after each move of its bundle."""
    first = cluster.service_url.split(",")[0]
    assert urlsplit(first).scheme == "pulsar+ssl"
    client = connect(first, module)
    cluster.move(topic, "broker-2")
    producer = client.create_producer(topic, send_timeout_millis=0)
    for number, name in enumerate(("broker-2", "broker-1", "broker-2")):
        cluster.move(topic, name)
        producer.send(b"%d" % number)
        assert cluster.owner(topic) == name
    assert _contents(client, topic, 3) == [b"0", b"1", b"2"]


def test_another_broker_takes_over(cluster, connect, topic):
    """A killed broker's topic is at the other one, where the producer continues."""
    client = connect()
    producer = client.create_producer(topic, send_timeout_millis=0)
    producer.send(b"before")
    killed = cluster.owner(topic)
    cluster.kill(killed)
    producer.send(b"after")
    assert cluster.owner(topic) != killed
    assert _contents(client, topic, 2) == [b"before", b"after"]


def test_certificates_are_valid_through_proxies(cluster, connect, topic):
    """A client that validates host names connects through a broker's proxy, and receives nothing while it is paused."""
    client = connect(cluster.proxied_url)
    producer = client.create_producer(topic, send_timeout_millis=0)
    for name in cluster.brokers:
        cluster.move(topic, name)
        producer.send(b"x")
        proxy = cluster.proxies[name]
        assert proxy.service_url.startswith("pulsar+ssl://localhost:")
        reader = client.create_reader(topic, official.MessageId.latest)
        proxy.pause()
        results = []
        producer.send_async(b"y", lambda result, _, results=results: results.append(result))
        with pytest.raises(official.Timeout):
            reader.read_next(500)
        assert results == []
        proxy.resume()
        producer.flush()
        assert results == [official.Result.Ok]


def test_derived_admin_api_has_every_broker(cluster, connect, topic, monkeypatch):
    """With the client's authentication it asks any running broker, and follows redirects to the topic's."""
    hosts = [urlsplit(url).netloc for url in cluster.admin_urls]
    monkeypatch.setenv("PULSAR_ADMIN_URL", f"https://{','.join(hosts)}")
    client = connect(module=pulsar)
    client.subscribe(topic, "s").close()  # a skip does not remove messages that a consumer has received
    producer = client.create_producer(topic, send_timeout_millis=0)
    for name in cluster.brokers:
        cluster.move(topic, name)  # so that one of the two redirects
        sent = [producer.send(b"%d" % number) for number in range(3)]
        stored = pulsar.MessageId(sent[1].partition(), sent[1].ledger_id(), sent[1].entry_id())
        assert client.resolve_message_id(topic, stored) == stored
    cluster.kill("broker-1")
    assert client.message_id_after(topic, sent[0], 2) == sent[2]
    assert client.skip_messages(topic, "s", 5).skipped_messages == 5
    assert client.subscribe(topic, "s").receive(30_000).data() == b"2"
