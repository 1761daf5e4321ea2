"""Measure reads and writes with Spark, compared with plain clients.

    python -m benchmarks.spark [--only read|write|growth|memory] [--save]

`read`: one task with all standard columns against a raw `pulsar.Reader` loop that reads the same fields of as many
messages, in alternating runs, with and without Spark around the task; a task, with all columns and with two, against
its messages without columns; and two tasks against one. `write`: the sink, one task, to one topic and to a partitioned
one, against the official client's `send_async` with a callback for each message. `growth`: writing and reading 10^5,
10^6, … rows, with the peak memory of a Python worker. `memory`: the peak memory while large messages are read, 10 GiB
in total.

The parts are independent; `--save` writes those that ran to RESULTS-spark.md and keeps the others. The program starts
its own broker, and needs the extras `spark` and `testing`, Java, and 2 GB of memory.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import re
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext._native.handles import inner_of
from pulsar_ext._native.messages import inner_message_of
from pulsar_ext.admin import PulsarAdmin, Retention
from pulsar_ext.client.client import Client
from pulsar_ext.errors import AdminConflict
from pulsar_ext.key_shared.hashing import key_slot
from pulsar_ext.spark import spark_session
from pulsar_ext.testing import PulsarProcess

from .processes import Cost, Watch, own, processes

if TYPE_CHECKING:
    from collections.abc import Callable

_RESULTS: Final = Path(__file__).with_name("RESULTS-spark.md")
_PAYLOAD: Final = 100
_KEYS: Final = 5000
_PARTITIONS: Final = 4
_FEWER: Final = 5
_LARGE: Final = 1 << 20
_BLOCK: Final = 4096
_WAIT_MILLIS: Final = 10_000
_SEQUENCE_AT: Final = len("Message(prod=") + len(", seq=")
_LARGE_MESSAGES: Final = (100, 1_000, 10_000)
_QUIET: Final = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
_HEAD: Final = """\
# Spark: rows a second

Repeat: `pip install -e '.[spark,testing]'`, then `python -m benchmarks.spark --save`, which writes this page, or a part
of it with `--only`. Messages have 100 bytes and a key, in batches of 1,000. The broker, Spark's Java side and the
Python workers share the machine. µs are microseconds of processor time per row: of the Python workers, of Spark's Java
side, and of the whole process of a plain client. A ratio is the median over pairs of alternating runs, in sessions that
have read before; a session's first read takes some seconds more, in which Python processes start.
"""


class Bench:
    """Broker and session, and the runs that are measured on them."""

    def __init__(self, broker: Any, rows: int, rounds: int, growth: list[int]) -> None:
        self.broker, self.rows, self.rounds, self.growth = broker, rows, rounds, growth
        self.spark: Any = spark_session("bench", master="local[2]", config={"spark.log.level": "OFF"})
        self.where = {"service.url": broker.service_url, "admin.url": broker.admin_url}
        self.client = Client(broker.service_url, admin=broker.admin_url, logger=_QUIET)
        self.official = pulsar.Client(broker.service_url, logger=_QUIET)

    def fill(self, name: str, rows: int, size: int = _PAYLOAD, **options: Any) -> str:
        """Create a topic with `rows` messages that have keys."""
        topic = f"persistent://public/default/{name}"
        options = {"batching_enabled": True, "block_if_queue_full": True, "send_timeout_millis": 0, **options}
        producer = self.client.create_producer(topic, **options)
        body = b"x" * size
        for first in range(0, rows, 100_000):
            numbers = range(first, min(first + 100_000, rows))
            producer.send_many((body for _ in numbers), partition_keys=[f"key-{n % _KEYS}" for n in numbers])
        producer.close()
        return topic

    def read(self, topic: str, tasks: int = 1) -> Cost:
        """Read all standard columns by Spark, without a sink."""
        frame = self.spark.read.format("pulsar").options(**self.where, topic=topic, minPartitions=str(tasks)).load()
        return self._spent(lambda: frame.write.format("noop").mode("overwrite").save())

    def task(self, topic: str, **options: str) -> Cost:
        """Read the same rows as a task, in this process and without Spark."""
        from pulsar_ext.spark.options import READ, parse_options  # noqa: PLC0415  # only for this run
        from pulsar_ext.spark.schema import full_schema  # noqa: PLC0415
        from pulsar_ext.spark.source import PulsarBatchReader  # noqa: PLC0415

        settings = parse_options({**self.where, "topic": topic, **options}, READ)
        reader = PulsarBatchReader(settings, full_schema(settings))

        def run() -> None:
            for partition in reader.partitions():
                for _ in reader.read(partition):
                    pass

        return own(run)

    def raw(self, topic: str) -> Cost:
        """Read as many messages with the official reader, and read the fields of the standard columns."""

        def run() -> None:
            reader = self.official.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
            for _ in range(self.rows):
                message: Any = reader.read_next()
                key, producer = message.partition_key(), message.producer_name()
                text = str(inner_message_of(message))  # the only source of the sequence id
                begin = _SEQUENCE_AT + len(producer)
                int(text[begin : text.index(",", begin)])
                message.data()
                message.topic_name()
                message.message_id().serialize()
                message.publish_timestamp()
                message.event_timestamp()
                message.properties()
                message.ordering_key()
                key_slot(key)
            reader.close()

        return own(run)

    def messages(self, topic: str) -> Cost:
        """Read as many messages as a task does, without columns."""
        from pulsar_ext.spark.message_block import read_block  # noqa: PLC0415  # only for this run

        def run() -> None:
            reader = self.official.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
            left = self.rows
            while left:
                left -= len(read_block(inner_of(reader), min(left, _BLOCK), _LARGE, _WAIT_MILLIS))
            reader.close()

        return own(run)

    def topic(self, topic: str, partitions: int) -> str:
        """Create a topic with `partitions` partitions, unless it exists or the number is 0; return its name."""
        with contextlib.suppress(AdminConflict), PulsarAdmin(self.broker.admin_url) as admin:
            if partitions:
                admin.create_partitioned_topic(topic, partitions)
        return topic

    def write(self, rows: int, topic: str, **options: str) -> Cost:
        """Write generated rows by Spark, in one task."""
        frame = self.spark.range(0, rows, 1, 1).selectExpr(
            f"repeat('x', {_PAYLOAD}) value", f"concat('key-', id % {_KEYS}) __key"
        )
        writer = frame.write.format("pulsar").options(**self.where, topic=topic, **options).mode("append")
        return self._spent(writer.save)

    def send(self, rows: int, topic: str) -> Cost:
        """Send as many messages with the official `send_async`."""

        def run() -> None:
            producer = self.official.create_producer(
                topic, batching_enabled=True, block_if_queue_full=True, max_pending_messages=10_000
            )
            body, done = b"x" * _PAYLOAD, []
            for number in range(rows):
                producer.send_async(body, lambda result, _: done.append(result), partition_key=f"key-{number % _KEYS}")
            producer.flush()
            producer.close()

        return own(run)

    def close(self) -> None:
        """Disconnect and end the session."""
        self.client.close()
        self.official.close()
        self.spark.stop()

    @staticmethod
    def _spent(work: Callable[[], object]) -> Cost:
        """Run a Spark job, and return its cost."""
        before, began = processes(), time.perf_counter()
        work()
        clock, after = time.perf_counter() - began, processes()
        spent = {"java": 0.0, "python": 0.0}
        for key, seconds in after.items():
            spent[key[1]] += seconds - before.get(key, 0.0)
        return Cost(clock, **spent)


def _ratios(rows: int, rounds: int, one: Callable[[], Cost], other: Callable[[], Cost]) -> tuple[str, str, str]:
    """Run two functions in turn; return the cells of each, and the median speed-up of the first."""
    pairs = [(one(), other()) for _ in range(rounds)]

    def cells(costs: list[Cost]) -> str:
        clock = statistics.median(cost.clock for cost in costs)
        spent = [statistics.median(getattr(cost, of) for cost in costs) for of in ("python", "java")]
        micros = " + ".join(f"{seconds / rows * 1e6:.1f}" for seconds in spent if seconds)
        return f"{rows / clock:,.0f} | {micros}"

    ratio = statistics.median(second.clock / first.clock for first, second in pairs)
    return cells([first for first, _ in pairs]), cells([second for _, second in pairs]), f"{ratio:.2f}"


def part_read(bench: Bench) -> list[str]:
    """Compare reads."""
    topic = bench.fill("read", bench.rows)
    bench.read(topic, 2)
    rows = []
    for name, one, against, other, goal in (
        ("one task, all columns", lambda: bench.read(topic), "raw Reader", lambda: bench.raw(topic), "0.95"),
        ("the same task without Spark", lambda: bench.task(topic), "raw Reader", lambda: bench.raw(topic), ""),
        (
            "the same task without Spark",
            lambda: bench.task(topic),
            "its messages without columns",
            lambda: bench.messages(topic),
            "",
        ),
        (
            "value and __key without Spark",
            lambda: bench.task(topic, columns="value,__key"),
            "its messages without columns",
            lambda: bench.messages(topic),
            "",
        ),
        ("two tasks", lambda: bench.read(topic, 2), "one task", lambda: bench.read(topic), "1.70"),
    ):
        ours, theirs, ratio = _ratios(bench.rows, bench.rounds, one, other)
        rows.append(f"| {name} | {ours} | {against} | {theirs} | {ratio} | {goal} |")
    note = (
        "A task's messages without columns are a bound: the C++ client decodes them in its own threads, and the native "
        "core takes them from its queue. Two tasks can only be faster than one by the cores that one task, Spark's "
        "Java side and the broker leave idle; their processor time per row shows the cost of sharing."
    )
    head = "| read | rows/s | µs | against | rows/s | µs | ratio | goal |"
    return [note, "", head, "|---|---:|---:|---|---:|---:|---:|---:|", *rows]


def part_write(bench: Bench) -> list[str]:
    """Compare writes; the official client sends a fifth as many, because it is slow, at an equal rate."""
    lines = [
        "| write, one task | rows/s | µs | official send_async, rows/s | µs | ratio | goal |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    kinds = [(name, partitions) for partitions in (0, _PARTITIONS) for name in ("at-least-once", "exactly-once")]
    for name, partitions in kinds:
        turn = iter(range(1000))

        def topic(run: str, partitions: int = partitions) -> str:
            return bench.topic(f"persistent://public/dedup/{run}-{partitions}", partitions)

        def write(name: str = name, turn: Any = turn, topic: Callable[[str], str] = topic) -> Cost:
            run = f"{name}-{next(turn)}"
            more = {"guarantee": name, "producerName": run} if name == "exactly-once" else {}
            return bench.write(bench.rows, topic(run), **more)

        write()
        official = topic("official")

        def send(official: str = official) -> Cost:
            cost = bench.send(bench.rows // _FEWER, official)
            return Cost(_FEWER * cost.clock, _FEWER * cost.python)

        ours, theirs, ratio = _ratios(bench.rows, bench.rounds, write, send)
        what = f"{name}, {partitions} partitions" if partitions else name
        lines.append(f"| {what} | {ours} | {theirs} | {ratio} | {'10.00' if partitions else '3.00'} |")
    return lines


def part_growth(bench: Bench) -> list[str]:
    """Write and read increasing numbers of rows."""
    lines = [
        "| rows | written, rows/s | memory of a worker | read by one task, rows/s | memory of a worker |",
        "|---:|---:|---:|---:|---:|",
    ]
    warm = "persistent://public/default/warm"
    bench.write(1000, warm)
    bench.read(warm)
    found = []
    for count in bench.growth:
        topic = f"persistent://public/default/grown-{count}"
        with Watch() as writing:
            written = bench.write(count, topic)
        with Watch() as reading:
            read = bench.read(topic)
        found.append((count, written.clock, read.clock))
        cells = f"{count / written.clock:,.0f} | {writing.mib} | {count / read.clock:,.0f} | {reading.mib}"
        lines.append(f"| {count:,} | {cells} |")
    if len(found) > 1:
        (few, *least), (many, *most) = found[0], found[-1]
        slopes = [(long - short) / (many - few) for short, long in zip(least, most, strict=True)]
        fixed = [max(short - slope * few, 0.0) for short, slope in zip(least, slopes, strict=True)]
        note = (
            f"By a line through the first and the last row: writing takes {fixed[0]:.1f} s and {slopes[0] * 1e6:.1f} "
            f"µs per row, reading {fixed[1]:.1f} s and {slopes[1] * 1e6:.1f} µs per row."
        )
        lines += ["", note]
    return lines


def part_memory(bench: Bench) -> list[str]:
    """Read large messages, which are compressed on the topic and have their full size in a task."""
    lines = ["| messages of 1 MiB | read in all | memory of a worker | MiB/s |", "|---:|---:|---:|---:|"]
    for count in _LARGE_MESSAGES:
        options = {"batching_enabled": False, "compression_type": pulsar.CompressionType.LZ4}
        topic = bench.fill(f"large-{count}", count, _LARGE, **options)
        with Watch() as watch:
            cost = bench.read(topic)
        read = count * _LARGE / (1 << 20)
        lines.append(f"| {count:,} | {read / 1024:.1f} GiB | {watch.mib} | {read / cost.clock:,.0f} |")
    return lines


_PARTS: Final = {"read": part_read, "write": part_write, "growth": part_growth, "memory": part_memory}


def save(found: dict[str, str]) -> None:
    """Write the measured parts into the page, and keep the others."""
    before = _RESULTS.read_text(encoding="utf-8") if _RESULTS.exists() else ""
    kept = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", before, re.MULTILINE | re.DOTALL))
    parts = [f"## {name}\n\n{text.rstrip()}\n" for name in _PARTS if (text := found.get(name, kept.get(name)))]
    _RESULTS.write_text("\n".join([_HEAD, *parts]), encoding="utf-8")


def main() -> int:
    """Measure, print, and save with `--save`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=sorted(_PARTS))
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the compared runs")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of runs for each ratio (3)")
    parser.add_argument("--growth", default="100000,1000000,10000000", help="numbers of rows, smallest first")
    parser.add_argument("--save", action="store_true", help="write RESULTS-spark.md")
    arguments = parser.parse_args()
    growth = [int(count) for count in arguments.growth.split(",")]
    # The test harness limits compilation for a quick start; here the broker must not limit the clients.
    with (
        PulsarProcess(heap="512m", java_options=["-XX:TieredStopAtLevel=4"]) as broker,
        PulsarAdmin(broker.admin_url) as admin,
    ):
        admin.set_retention("public/default", Retention(-1, -1))
        admin.create_namespace("public/dedup")
        admin.set_deduplication("public/dedup", value=True)
        bench = Bench(broker, arguments.rows, arguments.rounds, growth)
        found = {}
        for name, part in _PARTS.items():
            if arguments.only in (None, name):
                load, began = os.getloadavg()[0], time.monotonic()
                lines = part(bench)
                when = (
                    f"{dt.datetime.now(dt.UTC).date()}, {os.cpu_count()} cores, load before {load:.1f}; {bench.rows:,} "
                    f"rows ({bench.rows // _FEWER:,} of send_async) and {bench.rounds} pairs where runs are compared; "
                    f"{time.monotonic() - began:.0f} s in all."
                )
                found[name] = "\n".join([when, "", *lines])
                print(f"## {name}\n\n{found[name]}\n", flush=True)
                if arguments.save:
                    save(found)
        bench.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
