"""Worker that a poison message does not stop: a message that fails three times goes to a dead letter topic.

    python examples/poison.py pulsar://localhost:6650 orders

Each order is a number of cents. An order that is not a number is negatively acknowledged and redelivered a second
later. After two redeliveries it is sent to `orders-dead`, alone, with properties that name its origin. Kill the worker
at any point and start it again: every order is either handled or among the dead letters.
"""

from __future__ import annotations

import sys

import pulsar_ext as pulsar


def main(service_url: str, topic: str) -> None:
    """Handle orders until none arrives for five seconds."""
    with pulsar.Client(service_url) as client:
        consumer = client.subscribe(
            topic,
            "billing",
            consumer_type=pulsar.ConsumerType.Shared,  # the broker counts redeliveries only for Shared and Key_Shared
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
