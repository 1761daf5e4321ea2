"""A worker that a poison message does not stop: what fails three times goes to a dead letter topic.

    python examples/poison.py pulsar://localhost:6650 orders

Each order is a number of cents. One that is no number is refused, comes again a second later, and after two more
attempts is sent to `orders-dead`, alone, with properties that say where it came from. Kill the worker at any point
and start it again: every order is either handled or among the dead letters.
"""

from __future__ import annotations

import sys

import pulsar_ext as pulsar


def main(service_url: str, topic: str) -> None:
    """Handle orders until none came for five seconds."""
    with pulsar.Client(service_url) as client:
        consumer = client.subscribe(
            topic,
            "billing",
            consumer_type=pulsar.ConsumerType.Shared,  # only there does the broker count redeliveries
            initial_position=pulsar.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=1_000,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-dead", initial_subscription_name="look"),
        )
        while True:
            try:
                message = consumer.receive(5_000)
            except pulsar.Timeout:
                return
            try:
                print(f"billed {int(message.data())}", flush=True)
            except ValueError:
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004  # the broker and a topic
        sys.exit(__doc__)
    main(*sys.argv[1:])
