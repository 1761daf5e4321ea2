"""One of several workers that share a topic by key: each key is handled by one of them, in order.

    python examples/share_by_key.py pulsar://localhost:6650 orders 0 2    # in one terminal
    python examples/share_by_key.py pulsar://localhost:6650 orders 1 2    # in another

The slots of keys are split into as many parts as there are workers, and each worker takes the part of its number. A
worker that is killed leaves its part alone until it is started again; the others go on.
"""

from __future__ import annotations

import sys

import pulsar_ext as pulsar


def main(service_url: str, topic: str, number: str, workers: str) -> None:
    """Handle the messages of one part of the keys, until none came for five seconds."""
    mine = pulsar.KeyHashRanges.full().split(int(workers))[int(number)]
    with pulsar.Client(service_url) as client:
        consumer = (
            client.new_consumer()
            .topic(topic)
            .subscription_name("orders")
            .key_shared_policy(pulsar.KeySharedPolicy.sticky_hash_range().ranges(*mine))
            .require_full_cover(wait_seconds=60)  # until the other workers are there
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
    if len(sys.argv) != 5:  # noqa: PLR2004  # the broker, a topic, and which worker this is
        sys.exit(__doc__)
    main(*sys.argv[1:])
