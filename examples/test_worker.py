"""Tests of a worker with a real broker that fails: run them with `pytest examples/test_worker.py`.

The fixtures come with `pip install 'pulsar-ext[testing]'`. They start a broker when the first test needs one.
"""

from __future__ import annotations

import pulsar_ext as pulsar


def test_orders_survive_a_lost_connection(pulsar_client, pulsar_client_factory, pulsar_topic, pulsar_fault_proxy):
    """A message acknowledged while the connection is down is not redelivered."""
    proxy = pulsar_fault_proxy()
    client_and_proxy = pulsar_client_factory(service_url=proxy.service_url)
    worker = client_and_proxy.subscribe(pulsar_topic, "billing")
    producer = pulsar_client.create_producer(pulsar_topic)
    producer.send(b"order 1")
    message = worker.receive(10_000)
    proxy.cut()  # every connection through the proxy is reset
    worker.acknowledge(message)
    worker.flush_acks(confirm=True)
    worker.close()
    producer.send(b"order 2")
    next_worker = pulsar_client.subscribe(pulsar_topic, "billing")
    assert next_worker.receive(10_000).data() == b"order 2"


def test_orders_survive_a_killed_broker(pulsar_own_broker):
    """A confirmed message is stored when the broker has restarted."""
    broker = pulsar_own_broker()
    with pulsar.Client(broker.service_url, admin=broker.admin_url) as client:
        producer = client.create_producer("orders")
        producer.send(b"order 1")
        broker.kill()
        broker.restart()
        reader = client.create_reader("orders", pulsar.MessageId.earliest)
        assert reader.read_next(30_000).data() == b"order 1"
