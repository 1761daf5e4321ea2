"""The sending process of `rejected_writes.py`: numbers to every topic, until its standard input ends.

    python tests/faults/rejected_writer.py CLIENT SERVICE_URL ADMIN_URL TOPIC...

Each topic's producer resumes after the last id that its client reports as persisted. At the end it waits for all
answers, and prints a line of JSON: for each topic the number of all sent messages, and the answers that were not `Ok`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from functools import partial
from typing import Any

import pulsar

import pulsar_ext

_QUIET = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)


class Stream:
    """The messages of one producer, and the answers that were not `Ok`."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.next = producer.last_sequence_id() + 1
        self.errors: dict[int, str] = {}

    def send(self, end: threading.Event) -> None:
        """Send numbers until the end, then wait until all have an answer."""
        while not end.is_set():
            number = self.next
            self.next += 1
            self._producer.send_async(b"%d" % number, partial(self._on_answer, number), sequence_id=number)
            if number % 50 == 0:
                time.sleep(0.005)
        self._producer.flush()

    def _on_answer(self, number: int, result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            self.errors[number] = result.name


def main(client_name: str, service_url: str, admin_url: str, *topics: str) -> None:
    """Send until the standard input ends."""
    ours = client_name == "pulsar_ext"
    client: Any = (
        pulsar_ext.Client(service_url, admin=admin_url, logger=_QUIET)
        if ours
        else pulsar.Client(service_url, logger=_QUIET)
    )
    settings: dict[str, Any] = {"block_if_queue_full": True, "max_pending_messages": 1_000, "send_timeout_millis": 0}
    if ours:
        settings["deduplication"] = True

    def opened(topic: str) -> Any:
        while True:
            try:
                return client.create_producer(topic, producer_name=topic.rpartition("/")[2], **settings)
            except (pulsar.PulsarException, pulsar_ext.AdminError):
                time.sleep(0.1)  # the broker may reject producers now

    streams = {topic: Stream(opened(topic)) for topic in topics}
    end = threading.Event()
    threads = [threading.Thread(target=stream.send, args=(end,)) for stream in streams.values()]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    end.set()
    for thread in threads:
        thread.join()
    client.close()
    print(json.dumps({topic: [stream.next, stream.errors] for topic, stream in streams.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
