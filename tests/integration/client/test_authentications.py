"""The admin API that a client derives, behind each authentication: asked in the client's name, or not at all."""

import pulsar as official
import pytest

import pulsar_ext as pulsar
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.testing import FaultProxy

pytestmark = pytest.mark.standalone_only("is about the authentication that a profile has of its own")

BOTH_CLIENTS = True
_LARGE = b"x" * 6_000_000
"""Two chunks."""


@pytest.fixture(params=["auth", "mtls", "basic", "oauth2"])
def broker(request, pulsar_broker_factory):
    """A broker that wants to know who asks."""
    return pulsar_broker_factory(request.param)


@pytest.fixture
def derived(broker, monkeypatch):
    """The arguments of a client that has to derive its admin API; the usual port is not the broker's."""
    monkeypatch.setenv("PULSAR_ADMIN_URL", broker.admin_url)
    return {"admin": None}


def _stored(client, topic):
    """Send a message, one in chunks and another; subscribe before; the id of the second as bare numbers."""
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    _, sent, _ = [producer.send(content) for content in (b"before", _LARGE, b"after")]
    return consumer, pulsar.MessageId(sent.partition(), sent.ledger_id(), sent.entry_id())


@pytest.mark.core
def test_a_seek_to_a_stored_chunk(client_factory, broker, topic, derived):
    """Its message comes, whole, and the next one; without the client's credentials it was lost with a warning."""
    consumer, stored = _stored(client_factory(broker, **derived), topic)
    consumer.seek(stored)
    assert [consumer.receive(20_000).data() for _ in range(2)] == [_LARGE, b"after"]


def test_an_official_authentication_is_not_guessed(client_factory, broker, topic, derived):
    """The official classes show nothing: what needs the admin API says how to hand it over, and nothing moves."""
    theirs = broker.client_options(official)
    consumer, stored = _stored(client_factory(broker, **derived, **theirs), topic)
    for move in (consumer.seek, consumer.acknowledge, consumer.acknowledge_cumulative):
        with pytest.raises(pulsar.AdminRequired, match=r"give Client\(admin=PulsarAdmin\(url"):
            move(stored)
    assert [consumer.receive(20_000).data() for _ in range(3)] == [b"before", _LARGE, b"after"]
    consumer.close()
    with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
        consumer = client_factory(broker, admin=admin, **theirs).subscribe(topic, "s", start_message_id_inclusive=True)
        consumer.seek(stored)
        assert consumer.receive(20_000).data() == _LARGE


def test_a_seek_outlasts_handshakes_that_are_cut(client_factory, pulsar_broker_factory, pulsar_topic_factory):
    """The C++ client takes a connection that is lost amid its TLS handshake for an error: the reader seeks again."""
    broker = pulsar_broker_factory("mtls")
    topic = pulsar_topic_factory(broker=broker)
    client_factory(broker).create_producer(topic).send(b"first")
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        client = client_factory(broker, service_url=proxy.service_url, admin=None)
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        assert reader.read_next(10_000).data() == b"first"
        trap = proxy.cut_in_frame(100, "to_broker", times=4)
        proxy.cut()
        reader.seek(pulsar.MessageId.earliest)
        assert reader.read_next(10_000).data() == b"first"
        assert trap.left < 4


def test_a_secret_goes_to_no_guessed_port(client_factory, pulsar_broker_factory, pulsar_topic_factory, monkeypatch):
    """Without TLS and without a named admin API, a client with a token asks nobody, says so, and nothing moves."""
    monkeypatch.delenv("PULSAR_ADMIN_URL", raising=False)
    broker = pulsar_broker_factory("auth")
    consumer, stored = _stored(client_factory(broker, admin=None), pulsar_topic_factory(broker=broker))
    with pytest.raises(pulsar.AdminRequired, match="over plain http"):
        consumer.seek(stored)
    assert [consumer.receive(20_000).data() for _ in range(3)] == [b"before", _LARGE, b"after"]


@pytest.mark.core
@pytest.mark.parametrize("module", [official, pulsar], ids=["official", "ours"])
def test_why_there_is_no_token(client_factory, pulsar_broker_factory, pulsar_topic_factory, module):
    """What the supplier of a token raised is in the error of whatever cannot be opened, with either class."""

    def no_token():
        raise RuntimeError("the vault is sealed")

    broker = pulsar_broker_factory("auth")
    topic = pulsar_topic_factory(broker=broker)
    client = client_factory(broker, authentication=module.AuthenticationToken(no_token))
    openings = [
        lambda: client.create_producer(topic),
        lambda: client.create_producer(topic, batching_enabled=True),
        lambda: client.subscribe(topic, "s"),
        lambda: client.create_reader(topic, pulsar.MessageId.earliest),
    ]
    if module is pulsar:  # of several topics the C++ client has no words, but ours knows
        openings += [lambda: client.subscribe([topic], "s"), lambda: client.get_topic_partitions(topic)]
    for opening in openings:
        with pytest.raises(pulsar.AuthenticationError, match="the vault is sealed"):
            opening()
