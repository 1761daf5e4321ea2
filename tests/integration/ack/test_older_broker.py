"""Acknowledgements to a broker before 4.0, which closes the connection for an id of a ledger that cannot exist."""

import pytest
from chunked import drain

import pulsar_ext as pulsar
from pulsar_ext.testing import PulsarProcess
from pulsar_ext.testing.backend import process_problem

OLDER = "3.0.7"
COUNT = 20


@pytest.fixture(scope="module")
def older_broker():
    """Start the older broker."""
    with PulsarProcess("small-chunks", version=OLDER) as broker:
        yield broker


@pytest.mark.on_demand
@pytest.mark.skipif(process_problem(OLDER) is not None, reason=f"no broker process: {process_problem(OLDER)}")
@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
@pytest.mark.parametrize("group_ms", [0, 60_000])
def test_flush_keeps_connection_to_older_broker(older_broker, client_factory, pulsar_topic_factory, kind, group_ms):
    """A flush of half of the messages keeps the connection, and only the other half is redelivered."""
    client, topic = client_factory(older_broker), pulsar_topic_factory(broker=older_broker)
    admin = client.context.admin_api()
    consumer = client.subscribe(topic, "s", kind, ack_group_time_ms=group_ms)
    producer = client.create_producer(topic)
    for number in range(COUNT):
        producer.send(b"%d" % number, partition_key=str(number))
    before = admin.stats(topic).subscriptions["s"].sessions
    messages = drain(consumer.receive, COUNT)
    for message in messages[::2]:
        consumer.acknowledge(message)
    consumer.flush_acks()
    assert admin.stats(topic).subscriptions["s"].sessions == before
    consumer.redeliver_unacknowledged_messages()
    again = {message.data() for message in drain(consumer.receive, COUNT // 2)}
    assert again == {message.data() for message in messages[1::2]}
