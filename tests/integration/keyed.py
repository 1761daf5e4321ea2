"""Topics with every kind of batch, for the tests of key ranges."""

from __future__ import annotations

import random
from itertools import pairwise

import pulsar

from pulsar_ext.key_shared.hash_ranges import KeyHashRange, KeyHashRanges
from pulsar_ext.key_shared.hashing import key_slot

WAIT_MILLIS = 15_000

KINDS = ("unbatched", "default", "key", "chunked", "keyless")
BATCHING = {"batching_enabled": True, "batching_max_messages": 50, "batching_max_publish_delay_ms": 60_000}
SETTINGS = {
    "unbatched": {},
    "default": BATCHING,
    "key": {**BATCHING, "batching_type": pulsar.BatchingType.KeyBased},
    "chunked": {"chunking_enabled": True},
    "keyless": BATCHING,
}
CHUNKED_BYTES = 150_000


def fill(client, topic, kind, count, keys=40, seed=1):
    """Send `count` messages whose payloads are their numbers from 0, and return their keys."""
    producer = client.create_producer(topic, block_if_queue_full=True, **SETTINGS[kind])
    rng = random.Random(seed)
    chosen = []
    for number in range(count):
        key = None if kind == "keyless" else f"key-{rng.randrange(keys)}"
        chosen.append(key)
        content = str(number).encode().ljust(CHUNKED_BYTES if kind == "chunked" and number % 3 == 0 else 0)
        producer.send_async(content, None, partition_key=key)
    producer.flush()
    producer.close()
    return chosen


def number_of(message):
    """Return the number that a message was sent with."""
    return int(message.data())


def tilings(keys):
    """Return divisions of the slots: 1, 2, 4 and 7 sets, one slot and the rest, and scattered ranges."""
    single = key_slot(keys[0] or "x")
    one_slot = KeyHashRanges([KeyHashRange(single, single)])
    rng = random.Random(3)
    cuts = [0, *sorted(rng.sample(range(1, 65536), 60)), 65536]
    scattered = [KeyHashRanges((a, b - 1) for a, b in list(pairwise(cuts))[part::3]) for part in range(3)]
    full = KeyHashRanges.full()
    return [full.split(1), full.split(2), full.split(4), full.split(7), [one_slot, one_slot.complement()], scattered]
