"""What a topic stores, as the tests of producers look at it."""

from __future__ import annotations

import pulsar_ext as pulsar


def entries(admin, topic):
    """The metadata of every entry of a topic, in order."""
    stats = admin.internal_stats(topic)
    sizes = [ledger.entries for ledger in stats.ledgers]
    sizes[-1] = stats.current_ledger_entries
    return [
        admin.entry(topic, ledger.ledger_id, entry_id)
        for ledger, size in zip(stats.ledgers, sizes, strict=True)
        for entry_id in range(size)
    ]


def read(client, topic, count):
    """The first messages of a topic."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = [reader.read_next(10_000) for _ in range(count)]
    reader.close()
    return messages
