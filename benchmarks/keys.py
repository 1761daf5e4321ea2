"""Measure key slots, readers of key ranges, and a group of them: `python -m benchmarks.keys [--save] [--url … …]`.

Starts its own broker. Slots are measured by processor time, that is, per core; readers in turn with the plain reader,
and the ratio is the median over the pairs. `--save` writes RESULTS-keys.md beside this program.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import platform
import statistics
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pulsar
import pyarrow as pa

import pulsar_ext
from benchmarks.brokers import broker_at
from pulsar_ext import KeyHashRanges, MessageId, key_slot, key_slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KEYS: Final = 1_000_000
_MESSAGES: Final = 200_000
_SHARED: Final = 100_000
_REPEATS: Final = 7
_PAIRS: Final = 11
_PARTS: Final = 4


def main() -> int:
    """Measure, print, and save if asked to; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keys", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write RESULTS-keys.md beside this program")
    parser.add_argument("--url", nargs=2, metavar=("URL", "ADMIN_URL"), help="a running broker")
    arguments = parser.parse_args()
    rows = list(_slots())
    with broker_at(arguments.url) as (url, admin_url):
        client = pulsar_ext.Client(url, admin=admin_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        with client:
            rows += _readers(client)
            rows += _group(client, admin_url)
    page = _page(rows)
    print(page)
    if arguments.save:
        Path(__file__).with_name("RESULTS-keys.md").write_text(page, encoding="utf-8")
    return 0 if all(reached for *_, reached in rows) else 1


Row = tuple[str, str, str, bool]


def _slots() -> Iterator[Row]:
    texts = [f"order-{number:06}" for number in range(_KEYS)]
    arrow = pa.array(texts)
    cases: list[tuple[str, Callable[[], Any], float]] = [
        ("key_slot(str), one by one", lambda: [key_slot(text) for text in texts], 2e6),
        ("key_slots(list of str)", lambda: key_slots(texts), 10e6),
        ("key_slots(numpy, fixed-width bytes)", lambda: key_slots(fixed), 10e6),
        ("key_slots(Arrow text)", lambda: key_slots(arrow), 10e6),
        ("key_slots(Arrow text, chunked)", lambda: key_slots(chunked), 10e6),
    ]
    import numpy as np  # noqa: PLC0415  # not needed by the library

    fixed, chunked = np.array(texts, "S"), pa.chunked_array([arrow[: _KEYS // 2], arrow[_KEYS // 2 :]])
    for name, run, goal in cases:
        rate = _KEYS / min(_processor_time(run) for _ in range(_REPEATS))
        yield name, f"{rate / 1e6:.1f} M/s a core", f"{goal / 1e6:.0f} M/s", rate >= goal


def _processor_time(run: Callable[[], Any]) -> float:
    before = time.process_time()
    run()
    return time.process_time() - before


def _readers(client: pulsar_ext.Client) -> Iterator[Row]:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    _fill(client, topic, _MESSAGES, pulsar.BatchingType.Default)
    sets = {
        "a reader of all 65,536 slots": [KeyHashRanges.full()],
        "a reader of slots 1 to 65,535, which all keys are in": [KeyHashRanges(["1-65535"])],
    }
    for name, [ranges] in sets.items():
        ratios = []
        for turn in range(_PAIRS):
            order = (None, ranges) if turn % 2 else (ranges, None)
            rates = {one is None: _read_rate(client, topic, one) for one in order}
            ratios.append(rates[False] / rates[True])
        ratio = statistics.median(ratios[1:])
        yield f"{name}, rate over the plain reader's", f"{ratio:.2f}", "0.80", ratio >= 0.8


def _read_rate(client: pulsar_ext.Client, topic: str, ranges: KeyHashRanges | None) -> float:
    options = {} if ranges is None else {"key_hash_ranges": ranges}
    with client.create_reader(topic, MessageId.earliest, receiver_queue_size=5000, **options) as reader:
        read_next = reader.read_next
        began = time.perf_counter()
        for _ in range(_MESSAGES):
            read_next()
        return _MESSAGES / (time.perf_counter() - began)


def _group(client: pulsar_ext.Client, admin_url: str) -> Iterator[Row]:
    for kind, batching in (("unbatched", None), ("KeyBased batches", pulsar.BatchingType.KeyBased)):
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        _fill(client, topic, _SHARED, batching)
        with pulsar_ext.PulsarAdmin(admin_url) as admin:
            size = admin.internal_stats(topic).total_size
            with client.create_reader_group(topic, MessageId.earliest, _PARTS) as group:
                if group.filtering != "broker":
                    sys.exit(repr(group))
                left = _SHARED
                while left:
                    for reader in group:
                        with contextlib.suppress(pulsar.Timeout):
                            for _ in range(1000):
                                reader.read_next(1)
                                left -= 1
                [out] = [
                    value.raw["bytesOutCounter"]
                    for name, value in admin.stats(topic).subscriptions.items()
                    if name.startswith("pulsar-ext")
                ]
        name = f"{_PARTS} tiled readers, {kind}, filtered by the {group.filtering}: broker bytes out over the topic's"
        yield name, f"{out / size:.2f}", "at most 1.10", out <= 1.1 * size


def _fill(client: pulsar_ext.Client, topic: str, count: int, batching: Any) -> None:
    settings = {} if batching is None else {"batching_enabled": True, "batching_type": batching}
    producer = client.create_producer(topic, block_if_queue_full=True, **settings)
    for number in range(count):
        producer.send_async(b"x" * 100, None, partition_key=f"order-{number % 5000:06}")
    producer.flush()
    producer.close()


def _page(rows: list[Row]) -> str:
    lines = ["| what | measured | goal | |", "|---|---:|---:|---|"]
    lines += [f"| {what} | {found} | {goal} | {'' if reached else 'missed'} |" for what, found, goal, reached in rows]
    facts = f"{dt.datetime.now(dt.UTC).date()}, {os.cpu_count()} cores ({platform.machine()}), shared with the broker"
    return "\n".join(
        [
            "# Speed: key slots and key ranges",
            "",
            f"{facts}, Python {platform.python_version()}. Slots: {_KEYS:,} keys of 12 characters, the best of",
            f"{_REPEATS} runs. Readers: {_MESSAGES:,} messages of 100 bytes with 5,000 keys, in default batches; the",
            f"median over {_PAIRS - 1} pairs.",
            "",
            "Repeat: `python -m benchmarks.keys --save`, with the extra `bench`, numpy and pyarrow.",
            "",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
