"""Entries, messages and cursors of a topic, for the checks of tests."""

from __future__ import annotations

from chunked import drain, eventually

import pulsar_ext as pulsar
from pulsar_ext.ids.position import Position


def entries(admin, topic):
    """Return the metadata of every entry of a topic, in order."""
    stats = admin.internal_stats(topic)
    sizes = [ledger.entries for ledger in stats.ledgers]
    sizes[-1] = stats.current_ledger_entries
    return [
        admin.entry(topic, ledger.ledger_id, entry_id)
        for ledger, size in zip(stats.ledgers, sizes, strict=True)
        for entry_id in range(size)
    ]


def compact(admin, topic):
    """Compact a topic and wait for the end; retry if the broker's own reader was not connected yet."""
    admin.compact(topic)

    def is_done():
        status = admin.compaction_status(topic)
        if status == "ERROR":
            admin.compact(topic)
        return status == "SUCCESS"

    assert eventually(is_done, 60)


def read(client, topic, count):
    """Return the first `count` messages of a topic."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = [reader.read_next(10_000) for _ in range(count)]
    reader.close()
    return messages


def contents(client, topic):
    """Return the contents of all messages of a topic."""
    return [message.data() for message in drain(client.create_reader(topic, pulsar.MessageId.earliest).read_next)]


def send_entries(client, topic, count=25):
    """Send unbatched messages, and return their positions."""
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"%d" % number) for number in range(count)]
    producer.close()
    return [Position(each.ledger_id(), each.entry_id()) for each in ids]


def mark_delete(admin, topic, subscription="s"):
    """Return the mark-delete position of a subscription."""
    return admin.internal_stats(topic).cursors[subscription].mark_delete_position
