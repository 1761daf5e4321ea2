"""An admin API that the environment names is asked only if it is that of the client's own cluster."""

import pytest

import pulsar_ext as pulsar
from pulsar_ext.admin import PulsarAdmin

BOTH_CLIENTS = True


@pytest.fixture
def elsewhere(pulsar_broker_factory, pulsar_namespace_factory):
    """The admin API of another cluster, of the same name, that has the test's namespace."""
    other = pulsar_broker_factory("plain")
    pulsar_namespace_factory(other)
    with PulsarAdmin(other.admin_url, **other.access.admin_options()) as admin:
        yield admin


def _stored(client, topic):
    """Subscribe, and send what a stored id could go wrong about; the second id as bare numbers."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    sent = [producer.send(b"%d" % number) for number in range(3)][1]
    return consumer, pulsar.MessageId(sent.partition(), sent.ledger_id(), sent.entry_id())


@pytest.mark.standalone_only("has another broker, whose certificates are another authority's", ways=("mtls",))
def test_another_cluster_is_noticed(client_factory, broker, topic, elsewhere, monkeypatch):
    """Whether it has a topic of the same name or not: nothing is asked about it, and no cursor moves anywhere."""
    monkeypatch.setenv("PULSAR_ADMIN_URL", elsewhere.url)
    client = client_factory(broker, admin=None)
    consumer, stored = _stored(client, topic)
    with pytest.raises(pulsar.AdminRequired, match=r"PULSAR_ADMIN_URL is .* another cluster .*has no topic"):
        consumer.seek(stored)

    elsewhere.create_topic(topic)
    elsewhere.create_subscription(topic, "s", "earliest")
    before = elsewhere.internal_stats(topic).cursors
    [name] = elsewhere.clusters()
    for ask in (
        lambda: consumer.seek(stored),
        lambda: client.resolve_message_id(topic, stored),
        lambda: client.skip_messages(topic, "s", 1),
    ):
        with pytest.raises(pulsar.AdminRequired, match=rf"another cluster \({name}\) .*shows no reader"):
            ask()
    assert elsewhere.internal_stats(topic).cursors == before
    assert [consumer.receive(20_000).data() for _ in range(3)] == [b"0", b"1", b"2"]


def test_its_own_cluster_is_recognised(client_factory, broker, topic, monkeypatch):
    """With and without partitions the admin API that the environment names is asked; nothing stays on the topic."""
    monkeypatch.setenv("PULSAR_ADMIN_URL", broker.admin_url)
    client = client_factory(broker, admin=None)
    with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
        admin.create_partitioned_topic(topic + "-parts", 2)
        for name in (topic, topic + "-parts"):
            consumer, stored = _stored(client, name)
            if name == topic:
                consumer.seek(stored)
                assert consumer.receive(20_000).data() == b"2"
            assert client.resolve_message_id(name, stored) == stored
        assert admin.subscriptions(topic) == ("s",)
