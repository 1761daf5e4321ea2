"""A seek that takes long or fails, before or after the broker moved the cursor, loses nothing."""

from __future__ import annotations

import time

import pytest
from acked import TYPES, cursor_of, send_plain
from awaited import blocking_of
from chunked import drain, eventually, index_of

import pulsar_ext as pulsar
from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext.receive.order import Transition

BOTH_CLIENTS = True


def arrived(consumer):
    """Return the requested messages that have arrived."""
    return consumer._source.wait._arrived if blocking_of(consumer) is consumer else consumer.awaited._queue._arrived


@pytest.mark.parametrize("queue", [0, 1000])
def test_failed_seek_keeps_arrived_messages(client, topic, queue):
    """A message that a timed-out receive had requested is delivered after a failed seek."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=queue)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(100)
    send_plain(client, topic, 2)
    if queue == 0 or blocking_of(consumer) is not consumer:  # otherwise the C++ consumer holds them
        assert eventually(lambda: arrived(consumer))
    with pytest.raises(ZeroDivisionError), blocking_of(consumer)._order.run_transition(Transition.SEEK):
        _ = 1 / 0
    assert [index_of(consumer.receive(5_000)) for _ in range(2)] == [0, 1]


def test_failed_seek_acknowledges_no_redelivered_message(client, admin, topic):
    """An acknowledgement covers one message only after the broker moved the cursor but reported an error."""
    consumer = client.subscribe(topic, "s", ack_group_time_ms=50)
    send_plain(client, topic, 10)
    for message in drain(consumer.receive, 10):
        consumer.acknowledge(message)
    consumer.flush_acks(confirm=True)
    blocking = blocking_of(consumer)
    trackers = [one.tracker for one in blocking._acks.collector.by_topic]
    assert eventually(lambda: all(one._base is not None for one in trackers))
    with pytest.raises(TypeError), blocking._order.run_transition(Transition.SEEK):
        _ = blocking._order.reopener.move(InnerMessageId.earliest) + 1
    send_plain(client, topic, 1, start=10)
    messages = {index_of(one): one for one in drain(consumer.receive, 11)}
    consumer.acknowledge(messages[10])
    consumer.flush_acks(confirm=True)
    assert cursor_of(admin, topic) == {10}


@pytest.mark.parametrize("type_", TYPES)
def test_acks_during_a_seek_are_dropped(client, topic, type_):
    """Acknowledgements of earlier messages during a seek are not sent after the cursor has moved."""
    consumer = client.subscribe(topic, "s", type_)
    send_plain(client, topic, 10)
    messages = drain(consumer.receive, 10)
    blocking = blocking_of(consumer)
    with blocking._order.run_transition(Transition.SEEK):
        blocking._order.reopener.move(InnerMessageId.earliest)
        consumer.acknowledge_many(messages)
        time.sleep(0.5)
    assert sorted(map(index_of, drain(consumer.receive, 10))) == list(range(10))
