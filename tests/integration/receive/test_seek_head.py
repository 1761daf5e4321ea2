"""Messages that a seek excludes from its entry are not delivered, are acknowledged, and hide no later ones."""

from __future__ import annotations

from itertools import product

import pytest
from acked import TYPES
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
COUNT = 20


def send(client, topic, batch):
    """Send all messages, singly or in batches; return their ids."""
    producer = client.create_producer(
        topic, batching_enabled=batch > 1, batching_max_messages=max(batch, 2), batching_max_publish_delay_ms=5_000
    )
    ids = {}
    for index in range(COUNT):
        producer.send_async(payload(index, 20), lambda _, one, index=index: ids.update({index: one}))
    producer.flush()
    return [ids[index] for index in range(COUNT)]


def backlog(admin, topic):
    """Return the number of entries in the subscription's backlog."""
    return admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries


@pytest.mark.parametrize(("inclusive", "batch"), [(True, 5), (False, 5), (False, 1)])
@pytest.mark.parametrize(
    ("type_", "way"),
    [*((one, "queue") for one in TYPES), *product(TYPES[::2], ("listener", "no queue", "no queue, listener"))],
)
def test_seek_leaves_no_backlog_in_the_sought_entry(client, admin, topic, type_, inclusive, batch, way):
    """After a seek messages begin at the target, and acknowledging them leaves no backlog."""
    ids = send(client, topic, batch)
    received = []
    listener = {"message_listener": lambda _, message: received.append(message)} if "listener" in way else {}
    consumer = client.subscribe(
        topic,
        "s",
        type_,
        receiver_queue_size=0 if "no queue" in way else 1000,
        initial_position=pulsar.InitialPosition.Earliest,
        start_message_id_inclusive=inclusive,
        **listener,
    )
    first = 7 if inclusive else 8
    if listener:
        assert eventually(lambda: len(received) == COUNT)
        received.clear()
    for place in (7, 7):
        consumer.seek(ids[place])
        if listener:
            assert eventually(lambda: {*map(index_of, received)} >= {*range(first, COUNT)}, 5)
            by_index = {index_of(one): one for one in received}  # some may arrive during the seek too
            messages = [by_index[index] for index in sorted(by_index)]
            received.clear()
        else:
            messages = drain(consumer.receive, COUNT - first)
        assert [index_of(one) for one in messages] == list(range(first, COUNT))
    consumer.acknowledge_many(messages)
    consumer.flush_acks(confirm=True)
    assert eventually(lambda: backlog(admin, topic) == 0, 5)
    if not listener:
        assert not drain(consumer.receive, 1, 300)


def test_excluded_messages_need_no_confirmation(client, topic):
    """A confirmed flush after a seek into a batch does not wait for messages that were never delivered."""
    ids = send(client, topic, 5)
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    consumer.seek(ids[7])
    messages = drain(consumer.receive, COUNT - 7)
    consumer.acknowledge_many(messages[3:])
    consumer.flush_acks(confirm=True)


@pytest.mark.blocking_only("it holds the private reopener")
def test_listener_gets_no_excluded_message_during_a_seek(client, topic):
    """A C++ consumer that receives on, and beyond the sought entry, before it is replaced has no influence."""
    ids = send(client, topic, 5)
    received = []
    consumer = client.subscribe(
        topic,
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
        message_listener=lambda _, message: received.append(index_of(message)),
    )
    assert eventually(lambda: len(received) == COUNT)
    received.clear()
    reopener = consumer._order.reopener  # the only hook between the seek and the replacement
    retire = reopener.retire
    reopener.retire = lambda: (eventually(lambda: COUNT - 1 in received), retire())
    consumer.seek(ids[7])
    del reopener.retire
    assert eventually(lambda: received.count(COUNT - 1) == 2)
    assert sorted({*received}) == list(range(8, COUNT))
