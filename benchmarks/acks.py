"""Measure acknowledging and receiving many: `python -m benchmarks.acks [--rounds N] [--only NAME] [--json] [--save] …`.

Starts its own broker. Each path is compared in turn with the official client's loop, and the ratio is the median over
the pairs. Then a proxy that reads the frames counts the acknowledgement commands that either client sends for 1,000
messages. `--save` writes RESULTS-acks.md beside this program. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import sys
import time
import uuid
from dataclasses import asdict
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pulsar
import pulsar.schema

import pulsar_ext
from benchmarks.ack_counter import AckCountingProxy
from benchmarks.brokers import broker_at
from benchmarks.measure import Case, Result, Side, measure, open_sides
from benchmarks.steps import fill
from pulsar_ext._native.handles import inner_of
from pulsar_ext.testing import Profile

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALLS: Final = 200_000
_QUEUED: Final = 150_000
_QUEUED_FEWER: Final = 20_000
"""Used if a run is long enough with them: unbatched, or without acknowledgements, which are sent every 100 ms."""
_QUEUED_SECONDS: Final = 1.5
_WARM: Final = 1000
_COUNTED: Final = 20_000
_BROKER: Final = Profile(
    "cached", "read messages stay in the cache", {"managedLedgerCacheEvictionTimeThresholdMillis": "3600000"}
)
_UNBATCHED, _FEW_UNBATCHED = "-unbatched", "-few-unbatched"
"""Topic suffixes. The second topic fits into one queue, because the broker could be slow enough in reading from disk to
send some of the messages during the run."""


class _Text(pulsar.schema.BytesSchema):
    """Schema of the application."""

    def decode(self, data: bytes) -> str:
        return data.decode()


@contextlib.contextmanager
def _subscribed(side: Side, suffix: str = "", **options: Any) -> Iterator[Any]:
    if side.lib is pulsar:
        options.pop("ack_group_time_ms", None)
    consumer = side.client.subscribe(
        side.topic + suffix,
        f"bench-{side.lib.__name__}",
        initial_position=side.lib.InitialPosition.Earliest,
        **{"receiver_queue_size": 5000} | options,
    )
    try:
        yield consumer
    finally:
        consumer.unsubscribe()
        consumer.close()


def _loop(consumer: Any, calls: int) -> None:
    receive, acknowledge = consumer.receive, consumer.acknowledge
    for _ in repeat(None, calls):
        acknowledge(receive())


def _receive_loop(consumer: Any, calls: int) -> None:
    receive = consumer.receive
    for _ in repeat(None, calls):
        receive()


def _native(consumer: Any, calls: int) -> None:
    """Receive by the C++ client's call alone, without making messages."""
    _receive_loop(inner_of(consumer), calls)


def _many(consumer: Any, calls: int, at_once: int = 100) -> None:
    left = calls
    while left > 0:
        left -= len(consumer.receive_many(min(left, at_once)))


def _thousand(consumer: Any, calls: int) -> None:
    _many(consumer, calls, 1000)


def _iterate(consumer: Any, calls: int) -> None:
    left = calls
    for _ in consumer:
        left -= 1
        if not left:
            break


def _many_acknowledged(consumer: Any, calls: int) -> None:
    left = calls
    while left > 0:
        messages = consumer.receive_many()
        consumer.acknowledge_many(messages)
        left -= len(messages)


def _bare(consumer: Any, calls: int) -> None:
    """Receive C++ messages, a hundred per call, without making messages."""
    receive, left = consumer.inner.batch_receive, calls
    while left > 0:
        left -= len(receive())


def _case(name: str, official: Any, ours: Any, goal: float, calls: int, suffix: str = "", **options: Any) -> Case:
    @contextlib.contextmanager
    def prepare(side: Side, calls: int) -> Iterator[Any]:
        with _subscribed(side, suffix, **options) as consumer:
            official(consumer, _WARM)  # completes one-time and periodic work before the run
            if "receiver_queue_size" in options:
                time.sleep(2 * _QUEUED_SECONDS if suffix else _QUEUED_SECONDS)
            run = official if side.lib is pulsar else ours
            yield lambda: run(consumer, calls)

    # All threads count: groups are sent by a separate thread.
    return Case(name, calls, prepare, goal, threads=True, alone="receiver_queue_size" in options)


def _queued(name: str, official: Any, ours: Any, goal: float, suffix: str = "", **options: Any) -> Case:
    """Return a case whose messages are in the client's queue before the run, independent of broker and network."""
    calls = _QUEUED_FEWER if suffix or official in (_receive_loop, _native) else _QUEUED
    size = 2 * (calls + 2 * _WARM)  # so that the client sends no flow permits during the run
    return _case(f"{name}, queued", official, ours, goal, calls, suffix, **options, receiver_queue_size=size)


def _live(name: str, official: Any, ours: Any, goal: float = 0.0, suffix: str = "", **options: Any) -> Case:
    """Return a case whose messages come from the broker; fewer if each is an entry, because these are slow."""
    return _case(name, official, ours, goal, _CALLS // 5 if suffix else _CALLS, suffix, **options)


_SHARED: Final = {"consumer_type": pulsar.ConsumerType.Shared}
_LETTERS: Final = {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(3, "persistent://public/default/letters")}
_GROUPED: Final = {"ack_group_time_ms": 100}
_ONE: Final = "receive(), acknowledge(message)"
_ALONE: Final = "the C++ receive() alone"
_MANY: Final = "receive_many, acknowledge_many / receive(), acknowledge(message)"
CASES: Final = (
    _queued(f"{_ONE}, Exclusive, grouped", _loop, _loop, 1.5, **_GROUPED),
    _queued(f"{_ONE}, Exclusive, default", _loop, _loop, 1.5),
    _queued(f"{_ONE}, Shared", _loop, _loop, 1.5, **_SHARED),
    _queued(f"{_ONE}, Exclusive, grouped, unbatched", _loop, _loop, 1.5, _FEW_UNBATCHED, **_GROUPED),
    _queued(f"{_ONE}, Exclusive, default, unbatched", _loop, _loop, 0.98, _FEW_UNBATCHED),
    _queued(f"{_ONE}, Shared, unbatched", _loop, _loop, 0.98, _FEW_UNBATCHED, **_SHARED),
    _queued("receive_many() / receive()", _receive_loop, _many, 1.8),
    _queued("receive_many(1000) / receive()", _receive_loop, _thousand, 0.98),
    _queued("for message in consumer / receive()", _receive_loop, _iterate, 1.8),
    _queued(_MANY, _loop, _many_acknowledged, 1.8),
    _queued(
        "C++ batch_receive(), no message made of it / receive()",
        _receive_loop,
        _bare,
        0.0,
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(100, -1, 1),
    ),
    _queued(f"receive() / {_ALONE}", _native, _receive_loop, 0.8),
    _queued(f"receive_many() / {_ALONE}", _native, _many, 0.8),
    _queued(f"for message in consumer / {_ALONE}", _native, _iterate, 0.8),
    _queued(f"receive(), with a schema / {_ALONE}", _native, _receive_loop, 0.8, schema=_Text()),
    _queued(f"receive(), with a dead letter policy / {_ALONE}", _native, _receive_loop, 0.8, **_SHARED, **_LETTERS),
    _live(f"{_ONE}, Exclusive, grouped", _loop, _loop, 0.98, **_GROUPED),
    _live(f"{_ONE}, Exclusive, default", _loop, _loop, 0.98),
    _live(f"{_ONE}, Shared", _loop, _loop, 0.98, **_SHARED),
    _live(f"{_ONE}, Exclusive, grouped, unbatched", _loop, _loop, 0.98, _UNBATCHED, **_GROUPED),
    _live(f"{_ONE}, Shared, unbatched", _loop, _loop, 0.98, _UNBATCHED, **_SHARED),
    _live("receive_many() / receive()", _receive_loop, _many),
    _live("for message in consumer / receive()", _receive_loop, _iterate),
    _live(_MANY, _loop, _many_acknowledged),
)


def _count(lib: Any, url: str, admin_url: str, topic: str, **options: Any) -> tuple[float, float]:
    """Return the number of commands, and of their bytes, that a client sends for 1,000 messages."""
    proxy = AckCountingProxy(url)
    admin = {} if lib is pulsar else {"admin": admin_url}
    client = lib.Client(proxy.service_url, logger=_logger(), **admin)
    side = Side(lib, client, topic, topic)
    with _subscribed(side, "", **options) as consumer:
        _loop(consumer, _COUNTED)
        time.sleep(0.5)
        counts = proxy.commands, proxy.bytes
    client.close()
    proxy.close()
    return counts[0] / _COUNTED * 1000, counts[1] / _COUNTED * 1000


def _logger() -> Any:
    return pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def main() -> int:
    """Measure, print, and save if asked to; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.acks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25, help="pairs of runs for each path (25)")
    parser.add_argument("--only", default="", metavar="NAME", help="only paths whose name contains this")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--save", action="store_true", help="write RESULTS-acks.md beside this program")
    parser.add_argument("--url", nargs=2, metavar=("URL", "ADMIN_URL"), help="a running broker")
    arguments = parser.parse_args()
    if arguments.save and arguments.only:
        parser.error("--save writes the whole page: omit --only")
    if arguments.rounds < 2:  # quartiles need two
        parser.error(f"--rounds must be >= 2, got {arguments.rounds}")
    if not any(arguments.only in case.name for case in CASES):
        parser.error(f"no path has a name like {arguments.only!r}; paths: " + "; ".join(case.name for case in CASES))
    with broker_at(arguments.url, _BROKER) as (url, admin_url):
        results, counts = _measure(url, admin_url, arguments.rounds, arguments.only)
    page = _page(results, counts)
    if arguments.as_json:
        print(json.dumps({"results": [asdict(one) for one in results], "commands": counts}, indent=1))
    else:
        print(page)
    if arguments.save:
        Path(__file__).with_name("RESULTS-acks.md").write_text(page, encoding="utf-8")
    return 0 if all(result.reached for result in results) else 1


Counts = list[tuple[str, float, float, float, float]]


def _measure(url: str, admin_url: str, rounds: int, only: str) -> tuple[list[Result], Counts]:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    sides = partial(open_sides, url, topic, admin=admin_url)
    with sides() as (official, _):
        fill(official.client, topic, _CALLS + _COUNTED + _WARM)
        for suffix, count in ((_UNBATCHED, _CALLS // 2), (_FEW_UNBATCHED, _QUEUED_FEWER + 2 * _WARM)):
            producer = official.client.create_producer(topic + suffix, block_if_queue_full=True)
            for _ in repeat(None, count):
                producer.send_async(b"x" * 100, None)
            producer.flush()
    results = [measure(case, sides, rounds) for case in CASES if only in case.name]
    return results, [] if only else _count_commands(url, admin_url, topic)


def _count_commands(url: str, admin_url: str, topic: str) -> Counts:
    counts: Counts = []
    for name, suffix, options in (
        ("Exclusive, batches of 500", "", _GROUPED),
        ("Shared, batches of 500", "", _SHARED),
        ("Exclusive, unbatched", _UNBATCHED, _GROUPED),
        ("Shared, unbatched", _UNBATCHED, _SHARED),
    ):
        both = [_count(lib, url, admin_url, topic + suffix, **options) for lib in (pulsar, pulsar_ext)]
        counts.append((name, both[0][0], both[1][0], both[0][1], both[1][1]))
    return counts


def _page(results: list[Result], counts: Counts) -> str:
    lines = [
        "| path | pulsar ns | pulsar_ext ns | ratio | quartiles | CPU ratio | undisturbed | goal | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    lines += [
        f"| {one.name} | {one.official_ns:,.0f} | {one.ours_ns:,.0f} | {one.ratio:.2f} | "
        f"{one.low:.2f} to {one.high:.2f} | {one.cpu_ratio:.2f} | {one.undisturbed:.2f} | "
        f"{f'{one.goal:.2f}' if one.goal else ''} | {'' if one.reached else 'missed'} |"
        for one in results
    ]
    sent = [
        "| for 1,000 messages | pulsar: commands | pulsar_ext: commands | pulsar: bytes | pulsar_ext: bytes |",
        "|---|--:|--:|--:|--:|",
    ]
    sent += [f"| {name} | {a:.2f} | {b:.2f} | {c:,.0f} | {d:,.0f} |" for name, a, b, c, d in counts]
    facts = f"{dt.datetime.now(dt.UTC).date()}, {os.cpu_count()} cores ({platform.machine()}), shared with the broker"
    return "\n".join(
        [
            "# Speed: acknowledging, and receiving many",
            "",
            f"{facts}, Python {platform.python_version()}. Messages of 100 bytes, in batches of 500 unless noted",
            "otherwise. Ratios are medians over pairs of runs; the CPU ratio counts every thread of the process.",
            "",
            f"*queued*: {_QUEUED:,} messages, or {_QUEUED_FEWER:,} unbatched or not acknowledged, are in the client's",
            "queue before the run, so that only the client is measured. Differences between such runs come from other",
            "load on the machine, which shifts a median if it disturbs half of the runs. The goal is therefore for",
            "*undisturbed*, which compares the fastest fifth of either client's runs.",
            "",
            f"In the other paths, {_CALLS:,} messages, or {_CALLS // 5:,} unbatched, come from the broker through a",
            "queue of 5,000: the broker and the client's own threads limit both clients, and receiving several at once",
            "has no goal. The broker's cache keeps all messages: reading an unbatched one from its disk takes 20 to",
            "100 us for either client, and chance decides which runs read from the disk.",
            "",
            "`receive_many()` returns up to a hundred; a thousand do not fit into the processor's cache. *C++",
            "batch_receive()* is the native calls alone: no Python on top of them can be faster. *The C++ receive()",
            "alone* is the official client's call for one message, without making the Python message: its goal is",
            "1.25 times that time. Prefetched messages, some hundreds at once, take less than that call.",
            "",
            "Repeat: `python -m benchmarks.acks --save`, with the extra `bench`.",
            "",
            *lines,
            "",
            "Acknowledgement commands on the wire, counted by a proxy while messages are received and acknowledged one",
            f"by one ({_COUNTED:,} messages, as fast as they arrive):",
            "",
            *sent,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
