"""Measure batched producers: `python -m benchmarks.producer [--save] [--url … …] [--pairs N]`.

Starts its own broker, which deduplicates. Each way to send is measured in turn with the official client's batched
`send_async` with a Python callback, and the ratio is the median over the pairs: by wall clock, and by processor time of
this process, which does not depend on the load of the machine and its broker. Latency is that of single messages at a
low rate. `--save` writes RESULTS-producer.md beside this program.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import os
import platform
import statistics
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pulsar

import pulsar_ext
from benchmarks.brokers import broker_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DATA: Final = b"x" * 100
_OFFICIAL_MESSAGES: Final = 40_000
_MESSAGES: Final = 200_000
_DELAY_MS: Final = 10
_SETTINGS: Final[dict[str, Any]] = {
    "batching_enabled": True,
    "batching_max_messages": 1000,
    "batching_max_allowed_size_in_bytes": 1024 * 1024,
    "batching_max_publish_delay_ms": _DELAY_MS,
    "max_pending_messages": 20_000,
    "block_if_queue_full": True,
}
_GOALS: Final = {
    "send_async, a callback per message": 5.0,
    "send_async, a callback per message, deduplicating": 4.0,
    "send_many": 10.0,
    "send_many, deduplicating": 8.0,
}


class Rate(NamedTuple):
    """Messages per second, by the clock and by the processor."""

    wall: float
    processor: float


def main() -> int:
    """Measure, print, and save if asked to; return 1 if a goal is missed."""
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.producer", description=about)
    parser.add_argument("--save", action="store_true", help="write RESULTS-producer.md beside this program")
    parser.add_argument("--url", nargs=2, metavar=("URL", "ADMIN_URL"), help="a running broker that deduplicates")
    parser.add_argument("--pairs", type=int, default=7, help="number of pairs of runs; 7 by default")
    arguments = parser.parse_args()
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with broker_at(arguments.url, "dedup") as (url, admin_url):
        theirs = pulsar.Client(url, logger=logger)
        with pulsar_ext.Client(url, admin=admin_url, logger=logger) as ours:
            rows = [*_throughput(theirs, ours, arguments.pairs), *_latency(theirs, ours)]
        theirs.close()
    page = _page(rows, arguments.pairs)
    print(page)
    if arguments.save:
        Path(__file__).with_name("RESULTS-producer.md").write_text(page, encoding="utf-8")
    return 0 if all(row[-1] for row in rows) else 1


Row = tuple[str, str, str, str, bool]


def _throughput(theirs: Any, ours: Any, pairs: int) -> Iterator[Row]:
    ways: dict[str, Callable[[], Rate]] = {
        "send_async, a callback per message": lambda: _run(ours, _MESSAGES, _with_callbacks),
        "send_async, a callback per message, deduplicating": lambda: _run(ours, _MESSAGES, _with_callbacks, dedup=True),
        "send_many": lambda: _run(ours, _MESSAGES, _at_once),
        "send_many, deduplicating": lambda: _run(ours, _MESSAGES, _at_once, dedup=True),
    }
    _run(theirs, 5_000, _with_callbacks)  # warms the broker up
    found: dict[str, list[tuple[Rate, Rate]]] = {name: [] for name in ways}
    for turn in range(pairs):
        for name, way in ways.items():
            if turn % 2:
                own = way()
                official = _run(theirs, _OFFICIAL_MESSAGES, _with_callbacks)
            else:
                official = _run(theirs, _OFFICIAL_MESSAGES, _with_callbacks)
                own = way()
            found[name].append((official, own))
    official_rate = statistics.median(official.wall for pairs_of in found.values() for official, _ in pairs_of)
    yield "official send_async, a callback per message", f"{official_rate / 1000:.0f} k/s", "", "", True
    for name, pairs_of in found.items():
        wall = statistics.median(own.wall / official.wall for official, own in pairs_of)
        processor = statistics.median(own.processor / official.processor for official, own in pairs_of)
        goal = _GOALS[name]
        yield name, f"{wall:.1f}", f"{processor:.1f}", f"{goal:.0f}", max(wall, processor) >= goal


def _run(client: Any, messages: int, way: Callable[[Any, int], None], *, dedup: bool = False) -> Rate:
    more = {"deduplication": True, "producer_name": "bench"} if dedup else {}
    producer = client.create_producer(f"bench-{uuid.uuid4().hex}", **_SETTINGS, **more)
    gc.collect()
    processor, wall = time.process_time(), time.perf_counter()
    way(producer, messages)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    producer.close()
    return Rate(messages / wall, messages / processor)


def _with_callbacks(producer: Any, messages: int) -> None:
    reported = 0

    def callback(_result: Any, _message_id: Any) -> None:
        nonlocal reported
        reported += 1

    send_async = producer.send_async
    for _ in range(messages):
        send_async(_DATA, callback)
    producer.flush()
    if reported != messages:
        sys.exit(f"{reported} of {messages} messages have an outcome")


def _at_once(producer: Any, messages: int) -> None:
    producer.send_many([_DATA] * messages)


def _latency(theirs: Any, ours: Any) -> Iterator[Row]:
    medians = {}
    for _ in range(2):
        for name, client in (("official", theirs), ("pulsar_ext", ours)):
            producer = client.create_producer(f"bench-{uuid.uuid4().hex}", **_SETTINGS)
            delays = [_one(producer) for _ in range(100)]
            medians[name] = min(medians.get(name, 1e9), statistics.median(delays[10:]))
            producer.close()
    official, own = medians["official"] * 1000, medians["pulsar_ext"] * 1000
    yield (
        f"latency of one message at a time, delay {_DELAY_MS} ms: pulsar_ext, and official",
        f"{own:.1f} ms",
        f"{official:.1f} ms",
        "the official one",
        own <= official * 1.1,
    )


def _one(producer: Any) -> float:
    reported = threading.Event()
    began = time.perf_counter()
    producer.send_async(_DATA, lambda *_: reported.set())
    reported.wait()
    return time.perf_counter() - began


def _page(rows: list[Row], pairs: int) -> str:
    lines = ["| what | ratio by the clock | ratio by processor time | goal | |", "|---|---:|---:|---:|---|"]
    lines += [
        f"| {what} | {wall} | {processor} | {goal} | {'' if reached else 'missed'} |"
        for what, wall, processor, goal, reached in rows
    ]
    facts = f"{dt.datetime.now(dt.UTC).date()}, {os.cpu_count()} cores ({platform.machine()}), shared with the broker"
    load = os.getloadavg()[1]
    return "\n".join(
        [
            "# Speed: batched producers",
            "",
            f"{facts}; the load over five minutes was {load:.1f}. Python {platform.python_version()}, pulsar-client",
            f"{pulsar.__version__}. Messages of 100 bytes in batches of 1,000; the median over {pairs} pairs of runs,",
            "each compared with one of the official client. A goal is reached by either ratio: the clock also",
            "measures the broker and the machine's other load.",
            "",
            "Repeat: `python -m benchmarks.producer --save`.",
            "",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
