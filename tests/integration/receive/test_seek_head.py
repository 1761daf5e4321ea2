"""What a seek leaves out of the entry that it goes to: it does not come, it is done, and what follows comes."""

from __future__ import annotations

from itertools import product

import pytest
from acked import TYPES
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
COUNT = 20


def send(client, topic, batch):
    """Send all, alone or in batches; give their ids."""
    producer = client.create_producer(
        topic, batching_enabled=batch > 1, batching_max_messages=max(batch, 2), batching_max_publish_delay_ms=5_000
    )
    ids = {}
    for index in range(COUNT):
        producer.send_async(payload(index, 20), lambda _, one, index=index: ids.update({index: one}))
    producer.flush()
    return [ids[index] for index in range(COUNT)]


def backlog(admin, topic):
    """How many entries the subscription has left."""
    return admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries


@pytest.mark.parametrize(("inclusive", "batch"), [(True, 5), (False, 5), (False, 1)])
@pytest.mark.parametrize(
    ("type_", "way"),
    [*((one, "queue") for one in TYPES), *product(TYPES[::2], ("listener", "no queue", "no queue, listener"))],
)
def test_nothing_stays_of_the_entry_that_was_sought(client, admin, topic, type_, inclusive, batch, way):
    """What comes behind a seek begins at its message; when that is acknowledged, nothing is left in the backlog."""
    ids = send(client, topic, batch)
    heard = []
    hear = {"message_listener": lambda _, message: heard.append(message)} if "listener" in way else {}
    consumer = client.subscribe(
        topic,
        "s",
        type_,
        receiver_queue_size=0 if "no queue" in way else 1000,
        initial_position=pulsar.InitialPosition.Earliest,
        start_message_id_inclusive=inclusive,
        **hear,
    )
    first = 7 if inclusive else 8
    if hear:
        assert eventually(lambda: len(heard) == COUNT)
        heard.clear()
    for place in (7, 7):
        consumer.seek(ids[place])
        if hear:
            assert eventually(lambda: {*map(index_of, heard)} >= {*range(first, COUNT)}, 5)
            messages = list({index_of(one): one for one in heard}.values())  # one may be heard before it is sought
            heard.clear()
        else:
            messages = drain(consumer.receive, COUNT - first)
        assert [index_of(one) for one in messages] == list(range(first, COUNT))
    consumer.acknowledge_many(messages)
    consumer.flush_acks(confirm=True)
    assert eventually(lambda: backlog(admin, topic) == 0, 5)
    if not hear:
        assert not drain(consumer.receive, 1, 300)


def test_what_is_left_out_needs_no_confirmation(client, topic):
    """A confirmed flush behind a seek into a batch is not about messages that the application never had."""
    ids = send(client, topic, 5)
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    consumer.seek(ids[7])
    messages = drain(consumer.receive, COUNT - 7)
    consumer.acknowledge_many(messages[3:])
    consumer.flush_acks(confirm=True)
