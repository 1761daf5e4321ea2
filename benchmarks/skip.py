"""Skip N messages exactly, against receiving and acknowledging them with the official client.

    python -m benchmarks.skip [--count 1000000] [--rounds 3] [--kinds batched …]

Each round runs both, one after the other, on a fresh subscription of the same topic; the ratio is of that round. Topics
with one message per entry, which take the official client a minute, get a third of the rounds. Prints the table of
RESULTS-skip.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid

import pulsar

import pulsar_ext
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.testing import PulsarProcess

_TOPICS = (
    ("entry-index", "batched", "batches, the broker numbers messages"),
    ("entry-index", "unbatched", "one message an entry, the broker numbers messages"),
    ("plain", "unbatched", "one message an entry"),
    ("plain", "batched", "batches"),
    ("plain", "unloaded", "one message an entry, reloaded since"),
)

_WARM_UP = 300


def main() -> None:
    """Measure every topic and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profiles", nargs="+", default=["entry-index", "plain"])
    parser.add_argument("--kinds", nargs="+", default=["batched", "unbatched", "unloaded"])
    options = parser.parse_args()
    print("| topic | strategy | receive + acknowledge, s | skip, s | ratio, median (least) |\n|---|---|---|---|---|")
    for profile in options.profiles:
        # Like a broker that has run for some time: with the full compiler, and warm.
        with PulsarProcess(profile, heap="1g", java_options=["-XX:TieredStopAtLevel=4"]) as broker:
            quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            official = pulsar.Client(broker.service_url, logger=quiet)
            with (
                PulsarAdmin(broker.admin_url) as admin,
                pulsar_ext.Client(broker.service_url, admin=admin, logger=quiet) as ours,
            ):
                for wanted, kind, what in _TOPICS:
                    if wanted == profile and kind in options.kinds:
                        _measure(official, ours, admin, kind, what, options)
            official.close()


def _measure(
    official: pulsar.Client,
    ours: pulsar_ext.Client,
    admin: PulsarAdmin,
    kind: str,
    what: str,
    options: argparse.Namespace,
) -> None:
    topic = f"persistent://public/default/skip-{uuid.uuid4().hex[:8]}"
    admin.create_topic(topic)
    admin.create_subscription(topic, "keeps", "earliest")
    _fill(official, topic, options.count + options.count // 20, batched=kind == "batched")
    if kind == "unloaded":
        admin.unload(topic)
    count = _possible(ours, topic, options.count)
    for _ in range(_WARM_UP if kind == "batched" else 3):
        admin.create_subscription(topic, "warms", "earliest")
        ours.skip_messages(topic, "warms", count if kind == "batched" else min(count, 10_000))
        admin.delete_subscription(topic, "warms")
    loops, skips, strategy = [], [], ""
    for _ in range(options.rounds if kind == "batched" else -(-options.rounds // 3)):
        name = uuid.uuid4().hex
        admin.create_subscription(topic, name, "earliest")
        loops.append(_receive(official, topic, name, count))
        admin.delete_subscription(topic, name)
        admin.create_subscription(topic, name, "earliest")
        begin = time.perf_counter()
        result = ours.skip_messages(topic, name, count)
        skips.append(time.perf_counter() - begin)
        assert (result.skipped_messages, result.exact) == (count, True)
        strategy = result.strategy
        admin.delete_subscription(topic, name)
    ratios = [loop / skip for loop, skip in zip(loops, skips, strict=True)]
    print(
        f"| {what} | {strategy} | {statistics.median(loops):.2f} | {statistics.median(skips):.3f} "
        f"| {statistics.median(ratios):.1f} ({min(ratios):.1f}) |",
        flush=True,
    )
    admin.delete_topic(topic, force=True)


def _possible(client: pulsar_ext.Client, topic: str, count: int) -> int:
    """Return the next lower count that ends with a batch: the client ends some batches early."""
    try:
        client.skip_messages(topic, "keeps", count, dry_run=True)
    except pulsar_ext.SkipInsideMessage as error:
        return int(error.below)
    return count


def _fill(client: pulsar.Client, topic: str, count: int, *, batched: bool) -> None:
    producer = client.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_messages=1000,
        batching_max_publish_delay_ms=100,
        block_if_queue_full=True,
        max_pending_messages=5000,
    )
    content = b"x" * 100
    for _ in range(count):
        producer.send_async(content, _ignore)
    producer.flush()
    producer.close()


def _ignore(*_: object) -> None:
    """Ignore the outcome, for which the asynchronous send needs a callback."""


def _receive(client: pulsar.Client, topic: str, subscription: str, count: int) -> float:
    begin = time.perf_counter()
    consumer = client.subscribe(topic, subscription)
    for _ in range(count):
        consumer.acknowledge(consumer.receive())
    consumer.close()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
