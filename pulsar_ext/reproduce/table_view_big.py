"""Opening a table view of some ten thousand messages overflows the stack of a C++ thread, and the process is gone."""

from __future__ import annotations

import pulsar as official

from ._support import Client, Counts, Env

CLAIM = "a table view shows every key of its topic, however many messages there are"
REFERENCE = "docs/reproduce.md#table-view-big"

_MESSAGES, _KEYS = 100_000, 100
_SECONDS = 30.0


def view(pulsar: Client, env: Env, topic: str) -> list[str]:
    """Open a table view and give its keys."""
    client = env.client(pulsar)
    keys: list[str] = []
    client.create_table_view(topic).for_each(lambda key, _: keys.append(key))
    client.close()
    return keys


def run(pulsar: Client, env: Env) -> Counts:
    """Send messages of a hundred keys, and open a table view in a process of its own."""
    topic, client = env.topic(), env.client(official)
    keys = [f"key {number}" for number in range(_KEYS)]
    try:
        producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
        for number in range(_MESSAGES):
            producer.send_async(b"%d" % number, None, partition_key=keys[number % _KEYS])
        producer.flush()
    finally:
        client.close()
    outcome = env.apart(pulsar, view, topic, seconds=_SECONDS)
    return Counts.of(keys, outcome.value or [], ended=outcome.ended)
