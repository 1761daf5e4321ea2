"""Tests through other kinds of brokers: the same fixtures, with mutual TLS or with a cluster."""

from __future__ import annotations

import httpx2
import pulsar
import pytest

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.testing import Profile, start_broker
from pulsar_ext.testing.backend import process_problem
from pulsar_ext.testing.readiness import round_trip

needs_process = pytest.mark.skipif(process_problem() is not None, reason=f"no broker process here: {process_problem()}")


@pytest.mark.core(each="pulsar_through", slow="a cluster starts")
@pytest.mark.through
def test_fixtures_return_the_requested_kind(pulsar_through, broker, client, topic):
    """The URLs, the client certificate and the number of brokers are those of the kind, and a message passes."""
    with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
        largest = admin.broker_configuration()["maxMessageSize"]
    brokers = httpx2.get(f"{broker.admin_url}/admin/v2/brokers", **broker.access.http_options()).json()
    expected = {"standalone": ("pulsar", False, 1), "mtls": ("pulsar+ssl", True, 1), "cluster": ("pulsar", False, 2)}
    scheme, _, _ = broker.service_url.partition("://")
    assert (scheme, broker.access.certificate is not None, len(brokers)) == expected[pulsar_through]
    assert largest == "102400", "the profile's settings are lost"
    client.create_producer(topic).send(b"x")
    assert client.create_reader(topic, pulsar.MessageId.earliest).read_next(20_000).data() == b"x"


@pytest.mark.through
def test_fault_proxy_cannot_be_bypassed(pulsar_fault_proxy, client_factory, broker, client, pulsar_topic_factory):
    """A paused proxy stops the traffic of ten topics on any broker, and a resumed one forwards all of it."""
    proxy = pulsar_fault_proxy(broker)
    proxied = client_factory(broker, service_url=proxy.service_url)
    topics = [pulsar_topic_factory(broker=broker) for _ in range(10)]
    producers = [proxied.create_producer(topic, send_timeout_millis=0) for topic in topics]
    proxy.pause()
    results = []
    for producer in producers:
        producer.send_async(b"x", lambda result, _: results.append(result))
    readers = [client.create_reader(topic, pulsar.MessageId.earliest) for topic in topics]
    for reader in readers:
        with pytest.raises(pulsar.Timeout):
            reader.read_next(100)
    assert results == []
    proxy.resume()
    assert [reader.read_next(20_000).data() for reader in readers] == [b"x"] * 10


@needs_process
def test_cluster_as_a_broker():
    """All brokers of a cluster are killed and restart under the same URLs, with their data and logs."""
    profile = Profile("two", "two brokers with tokens", {"maxMessageSize": "102400"}, brokers=2)
    with start_broker(profile=profile) as broker:
        urls, since = (broker.service_url, broker.admin_url), broker.log_offset()
        client = pulsar.Client(broker.service_url, **broker.client_options(pulsar))
        producer = client.create_producer("public/default/kept", send_timeout_millis=0)
        producer.send(b"before")
        broker.kill()
        assert not broker.is_running()
        broker.restart()
        assert broker.is_running()
        assert (broker.service_url, broker.admin_url) == urls
        producer.send(b"after")
        reader = client.create_reader("public/default/kept", pulsar.MessageId.earliest)
        assert [reader.read_next(20_000).data() for _ in range(2)] == [b"before", b"after"]
        client.close()
        assert 0 < len(broker.log_text(since)) < len(broker.log_text())
        assert "back end cluster" in broker.describe()
    assert not broker.is_running()
    assert round_trip(urls[0], broker.access, timeout=1.0) is not None
