"""Producers of every kind connected through a proxy that can be frozen, and the outcomes of their messages."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter

from chunked import THREE_CHUNKS, eventually

import pulsar_ext as pulsar

BATCHED = {"batching_enabled": True, "batching_max_publish_delay_ms": 60_000}
FULL = {"max_pending_messages": 4, "block_if_queue_full": True}
KINDS = {
    "direct": {},
    "direct, full": FULL,
    "direct to partitions": {"partitions": 3, **FULL},
    "chunked": {"chunking_enabled": True, "size": THREE_CHUNKS},
    "chunked, full": {"chunking_enabled": True, "size": THREE_CHUNKS, **FULL},
    "batched": BATCHED,
    "batched, full": BATCHED | FULL,
    "batched by key": {**BATCHED, "batching_type": pulsar.BatchingType.KeyBased},
    "partitions": {**BATCHED, "partitions": 3},
    "partitions, full": {**BATCHED, **FULL, "partitions": 3},
    "official partitions": {**BATCHED, "lazy_start_partitioned_producers": True, "partitions": 3},
    "dedup": {"deduplication": True},
    "dedup, batched": {"deduplication": True, **BATCHED},
    "dedup, full": {"deduplication": True, **BATCHED, **FULL},
    "dedup, partitions": {"deduplication": True, **BATCHED, "partitions": 3},
    "dedup, chunked": {"deduplication": True, "chunking_enabled": True, "size": 6_000_000},
}
WAIT_SECONDS = 20.0
"""Longer than any operation here that ends."""


class Sending:
    """A producer connected through a proxy, its messages, and their outcomes."""

    def __init__(self, factories, kind):
        broker_of, client_of, proxy_of, topic_of = factories
        settings = {"send_timeout_millis": 0, **KINDS[kind]}
        self.content = b"x" * settings.pop("size", 1)
        self.broker = broker = broker_of("dedup" if "deduplication" in settings else "small-chunks")
        topic = topic_of(broker=broker, partitions=settings.pop("partitions", 0))
        self.proxy = proxy_of(broker)
        self.client = client_of(broker, service_url=self.proxy.service_url)
        self.producer = self.client.create_producer(topic, producer_name="p", **settings)
        self.outcomes, self.sent, self.ended = {}, set(), Counter()
        self._numbers, self.over = itertools.count(), threading.Event()

    def send_async(self):
        number = next(self._numbers)
        self.sent.add(number)
        try:
            self.producer.send_async(
                self.content, lambda result, _: self.outcomes.setdefault(number, []).append(result)
            )
        except pulsar.PulsarException:
            self.sent.discard(number)
            raise

    def begin(self, use):
        """Start a call on a new thread, and count how it ends."""

        def run():
            try:
                use()
                self.ended["returned"] += 1
            except pulsar.PulsarException as error:
                self.ended[type(error).__name__] += 1

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def flush(self):
        """Send a message and flush."""
        self.send_async()
        self.producer.flush()

    def begin_loop(self, use):
        """Repeat a call on a new thread until it raises or `over` is set; a full queue does not end it."""

        def repeat():
            while not self.over.is_set():
                with contextlib.suppress(pulsar.ProducerQueueIsFull):
                    use()

        return self.begin(repeat)

    def has_each_outcome_once(self):
        """Return whether each callback was called exactly once."""
        return eventually(lambda: self.outcomes.keys() == self.sent) and all(
            len(outcomes) == 1 for outcomes in self.outcomes.values()
        )
