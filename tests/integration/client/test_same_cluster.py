"""An admin API of the environment is used only if it belongs to the client's cluster."""

import pytest

import pulsar_ext as pulsar
from pulsar_ext.admin import PulsarAdmin

BOTH_CLIENTS = True


@pytest.fixture
def elsewhere(pulsar_broker_factory, pulsar_namespace_factory):
    """Yield the admin API of another cluster with this cluster's name and the test's namespace."""
    other = pulsar_broker_factory("plain")
    pulsar_namespace_factory(other)
    with PulsarAdmin(other.admin_url, **other.access.admin_options()) as admin:
        yield admin


def _stored(client, topic):
    """Subscribe and send three messages; return the consumer and the second's plain id."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    sent = [producer.send(b"%d" % number) for number in range(3)][1]
    return consumer, pulsar.MessageId(sent.partition(), sent.ledger_id(), sent.entry_id())


@pytest.mark.standalone_only("uses another broker, whose certificates have another authority", ways=("mtls",))
def test_other_cluster_raises(client_factory, broker, topic, elsewhere, monkeypatch):
    """A request to another cluster's admin API raises, with and without the topic there, and moves no cursor."""
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


def test_own_cluster_is_used(client_factory, broker, topic, monkeypatch):
    """The environment's admin API is used for topics with and without partitions, and leaves no subscription."""
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
