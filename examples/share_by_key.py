"""Worker that shares a topic with others by key: each key is handled by one of them, in order.

    python examples/share_by_key.py pulsar://localhost:6650 orders 0 2    # in one terminal
    python examples/share_by_key.py pulsar://localhost:6650 orders 1 2    # in another

The slots of keys are split into as many parts as workers, and each worker takes the part of its number. The part of a
killed worker is not handled until it is restarted; the others continue.
"""

from __future__ import annotations

import sys

import pulsar_ext as pulsar


def main(service_url: str, topic: str, number: str, workers: str) -> None:
    """Handle the messages of one part of the keys, until none arrives for five seconds."""
    mine = pulsar.KeyHashRanges.full().split(int(workers))[int(number)]
    with pulsar.Client(service_url) as client:
        consumer = (
            client.new_consumer()
            .topic(topic)
            .subscription_name("orders")
            .key_shared_policy(pulsar.KeySharedPolicy.sticky_hash_range().ranges(*mine))
            .require_full_cover(wait_seconds=60)  # until the other workers have connected
            .subscribe()
        )
        while True:
            try:
                message = consumer.receive(5_000)
            except pulsar.Timeout:
                return
            print(f"{message.partition_key()} {message.data().decode()}", flush=True)
            consumer.acknowledge(message)


if __name__ == "__main__":
    if len(sys.argv) != 5:  # noqa: PLR2004  # the broker, a topic, and this worker's number
        sys.exit(__doc__)
    main(*sys.argv[1:])
