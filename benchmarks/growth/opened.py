"""Many openings: partitions, consumers and producers, the topics of a pattern, consumers of one loop."""

from __future__ import annotations

import asyncio
import importlib
import re
import time
import uuid
from itertools import islice
from typing import Any, Final

import pulsar

from benchmarks.growth.line import QUIET, Bench, Line, Watch, topics_for

__all__ = ["LINES"]

_RECEIVE_MILLIS: Final = 60_000
_MESSAGES: Final = 10
"""Number of messages for each asyncio consumer."""
_HELD_SECONDS: Final = 3.0
"""Time for which they stay open, so that their background memory is measured too."""
_POLL_SECONDS: Final = 0.02
_STEADY_SECONDS: Final = 10
_EARLIEST: Final = {"initial_position": pulsar.InitialPosition.Earliest}


def _prepare_partitions(bench: Bench) -> None:
    with bench.admin() as admin:
        admin.create_partitioned_topic(bench.topic, bench.size)
    _run_partitions(bench, Watch())  # makes the broker create the partitions' ledgers


def _run_partitions(bench: Bench, watch: Watch) -> None:
    """Open a consumer and a producer, send a message to each partition, and receive them."""
    routing = {"message_routing_mode": pulsar.PartitionsRoutingMode.RoundRobinDistribution}
    with bench.open() as client:
        with watch:
            consumer = client.subscribe(bench.topic, uuid.uuid4().hex)
            producer = client.create_producer(
                bench.topic, batching_enabled=False, max_pending_messages=2 * bench.size, **routing
            )
            for _ in range(bench.size):
                producer.send_async(b"x", None)
            producer.flush()
            partitions = {consumer.receive(_RECEIVE_MILLIS).topic_name() for _ in range(bench.size)}
        assert len(partitions) == bench.size
        consumer.unsubscribe()


def _topics_of(bench: Bench) -> list[str]:
    """Return each topic of `topics_for()` once."""
    return list(dict.fromkeys(islice(topics_for(bench), bench.size)))


def _send_to_each(bench: Bench, messages: int) -> None:
    with bench.open() as client:
        for topic in _topics_of(bench):
            producer = client.create_producer(topic)
            for _ in range(messages):
                producer.send(b"x")


def _prepare_handles(bench: Bench) -> None:
    with bench.admin() as admin:
        for topic in _topics_of(bench):
            admin.create_topic(topic)


def _run_consumers(bench: Bench, watch: Watch) -> None:
    """Open consumers and keep them; a hundred share a subscription."""
    shared = {"consumer_type": pulsar.ConsumerType.Shared}
    with bench.open() as client:
        with watch:
            opened = [client.subscribe(topic, "s", **shared) for topic in islice(topics_for(bench), bench.size)]
        time.sleep(_HELD_SECONDS)
        assert len(opened) == bench.size


def _run_producers(bench: Bench, watch: Watch) -> None:
    """Open producers and keep them."""
    with bench.open() as client:
        with watch:
            opened = [client.create_producer(topic) for topic in islice(topics_for(bench), bench.size)]
        time.sleep(_HELD_SECONDS)
        assert len(opened) == bench.size


def _namespace(bench: Bench) -> str:
    return bench.topic.removeprefix("persistent://").replace("default/", "")


def _prepare_pattern(bench: Bench) -> None:
    """Create topics in a dedicated namespace: a broker lists all topics of a namespace for a pattern."""
    with bench.admin() as admin, bench.open() as client:
        admin.create_namespace(_namespace(bench))
        for number in range(bench.size):
            producer = client.create_producer(f"persistent://{_namespace(bench)}/topic-{number}")
            producer.send(b"x")
            producer.close()


def _run_pattern(bench: Bench, watch: Watch) -> None:
    """Subscribe to a pattern and receive a message of each of its topics."""
    with bench.open() as client:
        pattern = re.compile(f"persistent://{_namespace(bench)}/topic-.*")
        with watch:
            consumer = client.subscribe(pattern, uuid.uuid4().hex, **_EARLIEST)
            topics = {consumer.receive(_RECEIVE_MILLIS).topic_name() for _ in range(bench.size)}
        assert len(topics) == bench.size


def _prepare_awaited(bench: Bench) -> None:
    _send_to_each(bench, _MESSAGES)


def _run_awaited(bench: Bench, watch: Watch) -> None:
    """Open consumers on one loop at once; each receives and acknowledges ten messages, until the cursors show it.

    Both clients send acknowledgements after `acknowledge()` returns, while other consumers are still being opened.
    """
    asyncio.run(_await_all(bench, watch))


async def _await_all(bench: Bench, watch: Watch) -> None:
    module = importlib.import_module(f"{bench.client}.asyncio")
    client = module.Client(bench.url, logger=QUIET)

    async def receive(topic: str) -> Any:
        consumer = await client.subscribe(topic, uuid.uuid4().hex, **_EARLIEST)
        for _ in range(_MESSAGES):
            await consumer.acknowledge(await consumer.receive())
        return consumer

    with watch:
        opened = await asyncio.gather(*map(receive, islice(topics_for(bench), bench.size)))
        await asyncio.to_thread(_wait_until_empty, bench)
    for consumer in opened:
        await consumer.unsubscribe()
    await client.close()


def _wait_until_empty(bench: Bench) -> None:
    """Wait until no subscription of the topics has a backlog."""
    with bench.admin() as admin:
        for topic in _topics_of(bench):
            while any(one.backlog_entries for one in admin.stats(topic, precise_backlog=True).subscriptions.values()):
                time.sleep(_POLL_SECONDS)


def _prepare_steady(bench: Bench) -> None:
    _send_to_each(bench, _STEADY_SECONDS + 1)


def _run_steady(bench: Bench, watch: Watch) -> None:
    """Let each of many consumers receive and acknowledge a message per second; measures processor time."""
    with bench.open() as client:
        consumers = [
            client.subscribe(topic, uuid.uuid4().hex, receiver_queue_size=_STEADY_SECONDS + 1, **_EARLIEST)
            for topic in islice(topics_for(bench), bench.size)
        ]
        for consumer in consumers:
            consumer.acknowledge(consumer.receive(_RECEIVE_MILLIS))
        time.sleep(_HELD_SECONDS)
        began, before = time.monotonic(), time.process_time()
        for number, consumer in enumerate(consumers * _STEADY_SECONDS):
            time.sleep(max(began + number / bench.size - time.monotonic(), 0))
            consumer.acknowledge(consumer.receive(_RECEIVE_MILLIS))
        watch.seconds = time.process_time() - before
        for consumer in consumers:
            consumer.unsubscribe()


_HANDLES: Final = (1, 10, 100, 1_000, 2_000, 5_000)
LINES: Final = (
    Line(
        "partitions: consumer and producer opened, a message received from each",
        "partitions",
        (1, 10, 100, 300, 1_000),
        (1, 5, 25),
        _run_partitions,
        _prepare_partitions,
    ),
    Line("consumers of a process, opened", "consumers", _HANDLES, (1, 25, 100), _run_consumers, _prepare_handles),
    Line("producers of a process, opened", "producers", _HANDLES, (1, 25, 100), _run_producers, _prepare_handles),
    Line(
        "topics of a pattern: subscribed, a message received from each",
        "topics",
        (1, 10, 100, 300, 1_000),
        (1, 5, 25),
        _run_pattern,
        _prepare_pattern,
    ),
    Line(
        "awaited consumers of one loop: opened, ten messages received, acknowledged and confirmed by each",
        "consumers",
        (1, 10, 100, 300, 1_000),
        (1, 10, 50),
        _run_awaited,
        _prepare_awaited,
    ),
    Line(
        "consumers that acknowledge a message a second each, ten times: processor time",
        "consumers",
        (10, 100, 300, 1_000),
        (10, 50),
        _run_steady,
        _prepare_steady,
    ),
)
