"""Topics that are not persistent: no call waits for an answer that the broker does not have."""

from __future__ import annotations

import time

import pytest

import pulsar_ext as pulsar
from pulsar_ext import MessageId

BOTH_CLIENTS = True


@pytest.mark.core
def test_non_persistent_topic_is_not_queried_again(client, topic):
    """Queries of stored data raise at once, as officially, with the reason; seeks do nothing."""
    topic = f"non-{topic}"
    consumer = client.subscribe(topic, "s")
    reader = client.create_reader(topic, MessageId.latest)
    for ask in (consumer.get_last_message_id, reader.has_message_available):
        with pytest.raises(pulsar.UnknownError, match="is not persistent: it stores no messages"):
            ask()
    reader.seek(1)
    reader.seek(MessageId.latest)
    client.create_producer(topic).send(b"live")
    assert [consumer.receive(5000).data(), reader.read_next(5000).data()] == [b"live", b"live"]


@pytest.mark.core
@pytest.mark.parametrize("several", [False, True])
def test_acknowledged_position_does_not_drop_others(client, topic, several):
    """Messages that arrive after an acknowledgement are received, although all have the position of the first one."""
    topic = f"non-{topic}"
    consumer = client.subscribe([topic] if several else topic, "s")
    producer = client.create_producer(topic)
    time.sleep(0.2)  # the connection may have been replaced during this
    for index in range(20):
        producer.send(str(index).encode())
    for index in range(20):
        message = consumer.receive(5000)
        assert message.data() == str(index).encode()
        consumer.acknowledge(message)
