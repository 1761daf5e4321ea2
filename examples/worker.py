"""Worker that stops cleanly: on SIGTERM or Ctrl-C it finishes the current message, and none is delivered twice.

    python examples/worker.py pulsar://localhost:6650 orders

The last acknowledgements are confirmed before the worker ends: the broker's cursor shows them. If it is killed instead,
unacknowledged messages are redelivered, and nothing is lost.
"""

from __future__ import annotations

import signal
import sys
import threading

import pulsar_ext as pulsar


def main(service_url: str, topic: str) -> None:
    """Handle messages until a signal arrives."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with pulsar.Client(service_url) as client:
        consumer = client.subscribe(
            topic,
            "work",
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        while not stop.is_set():
            try:
                message = consumer.receive(500)  # a timeout, so that the signal is noticed without messages
            except pulsar.Timeout:
                continue
            print(message.data().decode(), flush=True)
            consumer.acknowledge(message)
        consumer.flush_acks(confirm=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004  # the broker and a topic
        sys.exit(__doc__)
    main(*sys.argv[1:])
