"""A derived admin API uses each authentication of the client, or the client raises."""

import pulsar as official
import pytest

import pulsar_ext as pulsar
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.testing import FaultProxy

pytestmark = pytest.mark.standalone_only("is about the authentication of a profile")

BOTH_CLIENTS = True
_LARGE = b"x" * 6_000_000
"""Two chunks."""


@pytest.fixture(params=["auth", "mtls", "basic", "oauth2"])
def broker(request, pulsar_broker_factory):
    """Return a broker with authentication."""
    return pulsar_broker_factory(request.param)


@pytest.fixture
def derived(broker, monkeypatch):
    """Return arguments of a client that derives its admin API; the broker's port is not the default."""
    monkeypatch.setenv("PULSAR_ADMIN_URL", broker.admin_url)
    return {"admin": None}


def _stored(client, topic):
    """Subscribe and send three messages, the second in chunks; return the consumer and the second's plain id."""
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    _, sent, _ = [producer.send(content) for content in (b"before", _LARGE, b"after")]
    return consumer, pulsar.MessageId(sent.partition(), sent.ledger_id(), sent.entry_id())


@pytest.mark.core
def test_seek_to_a_stored_chunk_finds_its_message(client_factory, broker, topic, derived):
    """A seek to a chunk's id finds the whole message with the client's credentials."""
    consumer, stored = _stored(client_factory(broker, **derived), topic)
    consumer.seek(stored)
    assert [consumer.receive(20_000).data() for _ in range(2)] == [_LARGE, b"after"]


def test_official_authentication_needs_an_admin(client_factory, broker, topic, derived):
    """Operations that need the admin API raise with an official object, say how to pass one, and change nothing."""
    options = broker.client_options(official)
    consumer, stored = _stored(client_factory(broker, **derived, **options), topic)
    for move in (consumer.seek, consumer.acknowledge, consumer.acknowledge_cumulative):
        with pytest.raises(pulsar.AdminRequired, match=r"pass Client\(admin=PulsarAdmin\(url"):
            move(stored)
    assert [consumer.receive(20_000).data() for _ in range(3)] == [b"before", _LARGE, b"after"]
    consumer.close()
    with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
        consumer = client_factory(broker, admin=admin, **options).subscribe(topic, "s", start_message_id_inclusive=True)
        consumer.seek(stored)
        assert consumer.receive(20_000).data() == _LARGE


def test_seek_is_repeated_after_cut_handshakes(client_factory, pulsar_broker_factory, pulsar_topic_factory):
    """A seek is repeated after connections lost in their TLS handshakes, which the C++ client reports as errors."""
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


def test_token_is_not_sent_to_a_derived_port(client_factory, pulsar_broker_factory, pulsar_topic_factory, monkeypatch):
    """A client with a token, without TLS and without an explicit admin API raises and changes nothing."""
    monkeypatch.delenv("PULSAR_ADMIN_URL", raising=False)
    broker = pulsar_broker_factory("auth")
    consumer, stored = _stored(client_factory(broker, admin=None), pulsar_topic_factory(broker=broker))
    with pytest.raises(pulsar.AdminRequired, match="over plain http"):
        consumer.seek(stored)
    assert [consumer.receive(20_000).data() for _ in range(3)] == [b"before", _LARGE, b"after"]


@pytest.mark.core
@pytest.mark.parametrize("module", [official, pulsar], ids=["official", "pulsar_ext"])
def test_token_supplier_error_is_reported(client_factory, pulsar_broker_factory, pulsar_topic_factory, module):
    """The exception of a token supplier is part of the error of each failed opening, with either class."""

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
    if module is pulsar:  # for several topics only this library's class can add it
        openings += [lambda: client.subscribe([topic], "s"), lambda: client.get_topic_partitions(topic)]
    for opening in openings:
        with pytest.raises(pulsar.AuthenticationError, match="the vault is sealed"):
            opening()
