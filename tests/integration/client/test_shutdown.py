"""A client that is shut down leaves nothing waiting: each send ends, and each callback is called once."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter

import pytest
from chunked import THREE_CHUNKS, eventually

import pulsar_ext as pulsar
import pulsar_ext.asyncio

pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")

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


class Sending:
    """A producer behind a link that can be frozen, what is sent with it, and every outcome."""

    def __init__(self, factories, kind):
        broker_of, client_of, proxy_of, topic_of = factories
        settings = {"send_timeout_millis": 0, **KINDS[kind]}
        self.content = b"x" * settings.pop("size", 1)
        broker = broker_of("dedup" if "deduplication" in settings else "small-chunks")
        topic = topic_of(broker=broker, partitions=settings.pop("partitions", 0))
        self.proxy = proxy_of(broker)
        self.client = client_of(broker, service_url=self.proxy.service_url)
        self.producer = self.client.create_producer(topic, producer_name="p", **settings)
        self.outcomes, self.sent, self.ended = {}, 0, Counter()

    def send_async(self):
        number, self.sent = self.sent, self.sent + 1
        self.producer.send_async(self.content, lambda result, _: self.outcomes.setdefault(number, []).append(result))

    def begin(self, use):
        """Begin a call on a thread of its own; how it ends is counted."""

        def run():
            try:
                use()
                self.ended["returned"] += 1
            except pulsar.PulsarException as error:
                self.ended[type(error).__name__] += 1

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def each_outcome_once(self):
        """Whether each callback was called, and none twice."""
        return eventually(lambda: len(self.outcomes) == self.sent) and all(
            len(one) == 1 for one in self.outcomes.values()
        )


@pytest.fixture
def sending(pulsar_broker_factory, pulsar_client_factory, pulsar_fault_proxy, pulsar_topic_factory):
    """Makes a `Sending`."""
    factories = (pulsar_broker_factory, pulsar_client_factory, pulsar_fault_proxy, pulsar_topic_factory)
    return lambda kind: Sending(factories, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_shutdown_ends_everything_that_waits(sending, kind):
    """On a frozen link, sends, flushes and those who wait for room raise AlreadyClosed, and callbacks report it."""
    one = sending(kind)
    one.producer.send(one.content)
    one.proxy.pause()
    many = [one.content] * 3
    uses = [lambda: one.producer.send(one.content), lambda: one.producer.send_many(many), one.producer.flush]
    one.send_async()
    threads = [one.begin(use) for use in uses for _ in range(2)]
    threads += [one.begin(lambda: [one.send_async() for _ in range(6)])]
    time.sleep(0.3)
    one.client.shutdown()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    assert one.ended == {"AlreadyClosed": 6, "returned": 1}
    assert one.each_outcome_once()
    assert {result for [result] in one.outcomes.values()} == {pulsar.Result.AlreadyClosed}
    with pytest.raises(pulsar.AlreadyClosed):
        one.producer.send(one.content)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["send", "send_many", "flush", "send_async"])
def test_a_signals_handler_may_shut_down_what_it_interrupts(sending, kind, call):
    """The thread that waits is the one whose handler shuts down: its call ends all the same."""
    one = sending(kind)
    one.proxy.pause()
    uses = {
        "send": lambda: one.producer.send(one.content),
        "send_many": lambda: one.producer.send_many([one.content] * 3),
        "flush": lambda: (one.send_async(), one.producer.flush()),
        "send_async": lambda: [one.send_async() for _ in range(6)],
    }
    before = signal.signal(signal.SIGALRM, lambda *_: one.client.shutdown())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        if call == "send_async":
            uses[call]()
            assert eventually(lambda: one.client.is_closed)
        else:
            with pytest.raises(pulsar.AlreadyClosed):
                uses[call]()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert one.each_outcome_once()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("official")])
def test_awaited_sends_end_with_a_shutdown(sending, kind):
    """Awaited sends, those that wait for room and flushes raise AlreadyClosed; nothing is left in the loop."""
    one = sending(kind)

    async def shut_down():
        settings = {"send_timeout_millis": 0, "batching_enabled": False, **KINDS[kind]}
        for unused in ("size", "partitions"):
            settings.pop(unused, None)
        url = one.proxy.service_url
        one.client.close()
        client = pulsar.asyncio.Client(url, admin=one.client.context.admin_api())
        producer = await client.create_producer(one.producer.topic(), producer_name="q", **settings)
        one.proxy.pause()
        sends = [asyncio.ensure_future(producer.send(one.content)) for _ in range(6)]
        await asyncio.sleep(0.5)
        sends += [asyncio.ensure_future(producer.flush()) for _ in range(2)]
        await asyncio.sleep(0.1)
        client.shutdown()
        return await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), WAIT_SECONDS)

    ended = asyncio.run(shut_down())
    assert [getattr(error, "error", lambda: None)() for error in ended] == [pulsar.Result.AlreadyClosed] * 8
