"""A seek that fails, before or after the broker has moved the cursor, or that takes long, loses nothing."""

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
    """What a receive had asked for and has come; None if the C++ consumer keeps it."""
    blocking = blocking_of(consumer)
    if blocking is consumer:
        return getattr(consumer._source.wait, "_answers", None)
    return consumer.awaited._queue._arrived


@pytest.mark.parametrize("queue", [0, 1000])
def test_what_has_arrived_stays_if_the_cursor_does_not_move(client, topic, queue):
    """What a receive that timed out had asked for comes behind a seek that failed, on an Exclusive subscription."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=queue)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(100)
    send_plain(client, topic, 2)
    if arrived(consumer) is not None:
        assert eventually(lambda: arrived(consumer))
    with pytest.raises(ZeroDivisionError), blocking_of(consumer)._order.passing(Transition.SEEK):
        _ = 1 / 0
    assert [index_of(consumer.receive(5_000)) for _ in range(2)] == [0, 1]


def test_nothing_is_acknowledged_that_came_again_behind_a_seek_that_failed(client, admin, topic):
    """The broker moved the cursor back and the answer was an error: one acknowledgement is that of one message."""
    consumer = client.subscribe(topic, "s", ack_group_time_ms=50)
    send_plain(client, topic, 10)
    for message in drain(consumer.receive, 10):
        consumer.acknowledge(message)
    consumer.flush_acks(confirm=True)
    blocking = blocking_of(consumer)
    trackers = [one.tracker for one in blocking._acks.collector.by_topic]
    assert eventually(lambda: all(one._base is not None for one in trackers))
    with pytest.raises(TypeError), blocking._order.passing(Transition.SEEK):
        _ = blocking._order.foundation.move(InnerMessageId.earliest) + 1
    send_plain(client, topic, 1, start=10)
    messages = {index_of(one): one for one in drain(consumer.receive, 11)}
    consumer.acknowledge(messages[10])
    consumer.flush_acks(confirm=True)
    assert cursor_of(admin, topic) == {10}


@pytest.mark.parametrize("type_", TYPES)
def test_what_is_acknowledged_in_the_midst_of_a_seek_comes_again(client, topic, type_):
    """Nothing that was received before is acknowledged behind the cursor's move, however long the seek takes."""
    consumer = client.subscribe(topic, "s", type_)
    send_plain(client, topic, 10)
    messages = drain(consumer.receive, 10)
    blocking = blocking_of(consumer)
    with blocking._order.passing(Transition.SEEK):
        blocking._order.foundation.move(InnerMessageId.earliest)
        consumer.acknowledge_many(messages)
        time.sleep(0.5)
    assert sorted(map(index_of, drain(consumer.receive, 10))) == list(range(10))
