"""Opening a table view of ten thousand messages or more overflows a C++ thread's stack and ends the process."""

import pulsar as official

from ._support import Client, Counts, Env

_MESSAGES, _KEYS = 100_000, 100


def view(pulsar: Client, env: Env, topic: str) -> list[str]:
    """Open a table view and return its keys."""
    client = env.client(pulsar)
    keys: list[str] = []
    client.create_table_view(topic).for_each(lambda key, _: keys.append(key))
    client.close()
    return keys


def run(pulsar: Client, env: Env) -> Counts:
    """Send messages of a hundred keys, and open a table view in a separate process."""
    topic = env.topic()
    keys = [f"key {number}" for number in range(_KEYS)]
    with env.opened(official) as client:
        producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
        for number in range(_MESSAGES):
            producer.send_async(b"%d" % number, None, partition_key=keys[number % _KEYS])
        producer.flush()
    outcome = env.run_isolated(pulsar, view, topic, seconds=30.0)
    return Counts.of(keys, outcome.value or [], ended=outcome.ended)
