"""Measure reading and writing by Spark beside the plain clients.

    python -m benchmarks.spark [--rows 10000,100000,1000000] [--rounds N] [--only read|write|growth|memory] [--save]

`read`: one task with all standard columns against a raw `pulsar.Reader` loop that touches the same fields of as many
messages, turn by turn; and two tasks against one. `write`: the sink, one task, against the official client's
`send_async` with a callback a message. `growth`: rows a second of a read of 10^4, 10^5, … rows. `memory`: the most
memory that a Python worker held while it read many large messages.

Starts a broker of its own; needs the extras `spark` and `testing`, and Java.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import psutil
import pulsar

from pulsar_ext.admin import PulsarAdmin, Retention
from pulsar_ext.client import Client
from pulsar_ext.keys import key_slot
from pulsar_ext.spark import spark_session
from pulsar_ext.testing import PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable

_RESULTS: Final = Path(__file__).with_name("RESULTS-spark.md")
_PAYLOAD: Final = 100
_KEYS: Final = 5000
_LARGE: Final = 1 << 20
_QUIET: Final = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
_SEQUENCE_AT: Final = len("Message(prod=") + len(", seq=")


class Bench:
    """One broker and one session, and what is measured on them."""

    def __init__(self, broker: Any, spark: Any) -> None:
        self.broker, self.spark = broker, spark
        self.client = Client(broker.service_url, admin=broker.admin_url, logger=_QUIET)
        self.official = pulsar.Client(broker.service_url, logger=_QUIET)
        self._filled: dict[tuple[int, int], str] = {}

    def topic(self, rows: int, size: int = _PAYLOAD) -> str:
        """Give a topic of so many messages with keys, batched by the client's defaults."""
        if (rows, size) not in self._filled:
            topic = f"persistent://public/default/spark-{rows}-{size}"
            options = {"batching_enabled": True, "block_if_queue_full": True, "send_timeout_millis": 0}
            producer = self.client.create_producer(topic, **options)
            body = b"x" * size
            for first in range(0, rows, 100_000):
                numbers = range(first, min(first + 100_000, rows))
                producer.send_many((body for _ in numbers), partition_keys=[f"key-{n % _KEYS}" for n in numbers])
            producer.close()
            self._filled[rows, size] = topic
        return self._filled[rows, size]

    def read(self, topic: str, tasks: int) -> None:
        """Read all standard columns by Spark into nothing."""
        frame = (
            self.spark.read.format("pulsar")
            .option("service.url", self.broker.service_url)
            .option("admin.url", self.broker.admin_url)
            .option("topic", topic)
            .option("minPartitions", str(tasks))
            .load()
        )
        frame.write.format("noop").mode("overwrite").save()

    def raw(self, topic: str, rows: int) -> None:
        """Read as many messages by the official reader, and touch what the standard columns are made of."""
        reader = self.official.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
        for _ in range(rows):
            message = reader.read_next()
            key, producer, text = message.partition_key(), message.producer_name(), str(message._message)  # noqa: SLF001
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

    def write(self, rows: int, topic: str, **options: str) -> None:
        """Write generated rows by Spark, in one task."""
        frame = self.spark.range(0, rows, 1, 1).selectExpr(
            f"repeat('x', {_PAYLOAD}) value", "concat('key-', id % 5000) __key"
        )
        where = {"service.url": self.broker.service_url, "admin.url": self.broker.admin_url, "topic": topic}
        frame.write.format("pulsar").options(**where, **options).mode("append").save()

    def send(self, rows: int, topic: str) -> None:
        """Send as many messages by the official `send_async`."""
        producer = self.official.create_producer(
            topic, batching_enabled=True, block_if_queue_full=True, max_pending_messages=10_000
        )
        body, done = b"x" * _PAYLOAD, []
        for number in range(rows):
            producer.send_async(body, lambda result, _: done.append(result), partition_key=f"key-{number % _KEYS}")
        producer.flush()
        producer.close()


def timed(work: Callable[[], None]) -> float:
    """Give the seconds that something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ratios(one: Callable[[], None], other: Callable[[], None], rounds: int) -> tuple[float, float, float]:
    """Run two by turns: the median seconds of each, and the median of how much faster the first is."""
    pairs = [(timed(one), timed(other)) for _ in range(rounds)]
    ones, others = zip(*pairs, strict=True)
    return statistics.median(ones), statistics.median(others), statistics.median(b / a for a, b in pairs)


class Watch:
    """Looks at the Python workers' memory while something runs."""

    def __init__(self) -> None:
        self.most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                try:
                    if "pyspark" in " ".join(child.cmdline()):
                        self.most = max(self.most, child.memory_info().rss)
                except psutil.Error:
                    continue


def measure(bench: Bench, only: str | None, rows: list[int], rounds: int) -> list[str]:
    """Measure what is asked for; give lines of Markdown."""
    lines: list[str] = []
    most = max(rows)
    if only in (None, "read"):
        topic = bench.topic(most)
        bench.read(topic, 1)
        spark, raw, ratio = ratios(lambda: bench.read(topic, 1), lambda: bench.raw(topic, most), rounds)
        two, one, gain = ratios(lambda: bench.read(topic, 2), lambda: bench.read(topic, 1), rounds)
        lines += ["| read | rows/s | against | rows/s | ratio | goal |", "|---|---:|---|---:|---:|---:|"]
        lines += [
            f"| one task, all columns | {most / spark:,.0f} | raw Reader | {most / raw:,.0f} | {ratio:.2f} | 0.95 |"
        ]
        lines += [f"| two tasks | {most / two:,.0f} | one task | {most / one:,.0f} | {gain:.2f} | 1.70 |", ""]
    if only in (None, "write"):
        lines += ["| write, one task | rows/s | official send_async | ratio | goal |", "|---|---:|---:|---:|---:|"]
        for name, options in (
            ("at-least-once", {}),
            ("exactly-once", {"guarantee": "exactly-once"}),
        ):
            turn = iter(range(1000))

            def write(options: dict[str, str] = options, name: str = name, turn: Any = turn) -> None:
                run = f"{name}-{next(turn)}"
                more = {**options, "producerName": run} if options else {}
                bench.write(most, f"persistent://public/dedup/{run}", **more)

            write()
            spark, send, ratio = ratios(write, lambda: bench.send(most, "persistent://public/dedup/official"), rounds)
            lines.append(f"| {name} | {most / spark:,.0f} | {most / send:,.0f} | {ratio:.2f} | 3.00 |")
        lines.append("")
    if only in (None, "growth"):
        lines += ["| rows | read, rows/s | written, rows/s |", "|---:|---:|---:|"]
        for count in rows:
            topic = bench.topic(count)
            read = timed(lambda topic=topic: bench.read(topic, 2))
            written = timed(lambda count=count: bench.write(count, f"persistent://public/default/grown-{count}"))
            lines.append(f"| {count:,} | {count / read:,.0f} | {count / written:,.0f} |")
        lines.append("")
    if only in (None, "memory"):
        lines += ["| messages | of | read in all | most memory of a Python worker |", "|---:|---:|---:|---:|"]
        for count in (200, 1000):
            topic = bench.topic(count, _LARGE)
            with Watch() as watch:
                bench.read(topic, 1)
            size = f"{count * _LARGE / (1 << 30):.1f} GiB"
            lines.append(f"| {count:,} | 1 MiB | {size} | {watch.most / (1 << 20):,.0f} MiB |")
        lines.append("")
    return lines


def main() -> int:
    """Measure, print, and save if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="100000,1000000,10000000", help="how many rows, smallest first")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs for each ratio (5)")
    parser.add_argument("--only", choices=("read", "write", "growth", "memory"))
    parser.add_argument("--ratio-rows", type=int, default=1_000_000, help="rows of the runs that are compared")
    parser.add_argument("--save", action="store_true", help="write RESULTS-spark.md")
    arguments = parser.parse_args()
    rows = [int(count) for count in arguments.rows.split(",")]
    compared = [arguments.ratio_rows]
    # The harness compiles little, for a quick start; here the broker must not be what limits the clients.
    with (
        PulsarProcess(heap="1g", java_options=["-XX:TieredStopAtLevel=4"]) as broker,
        PulsarAdmin(broker.admin_url) as admin,
    ):
        admin.set_retention("public/default", Retention(-1, -1))
        admin.create_namespace("public/dedup")
        admin.set_deduplication("public/dedup", value=True)
        spark = spark_session("bench", master="local[2]", config={"spark.log.level": "OFF"})
        bench = Bench(broker, spark)
        lines = []
        for part in ("read", "write", "growth", "memory"):
            if arguments.only in (None, part):
                found = measure(bench, part, rows if part == "growth" else compared, arguments.rounds)
                print("\n".join(found), flush=True)
                lines += found
        bench.client.close()
        bench.official.close()
        spark.stop()
    load = os.getloadavg()[0]
    where = (
        f"Measured on {dt.datetime.now(dt.UTC).date()}, {os.cpu_count()} cores, shared with the broker and Spark's "
        f"Java side; load of the machine at the end: {load:.0f}. Messages have {_PAYLOAD} bytes and a key, batched by "
        f"the client's defaults; ratios are medians of {arguments.rounds} pairs of runs, turn by turn, of "
        f"{arguments.ratio_rows:,} rows, Spark's planning included."
    )
    repeat = "Repeat: `pip install -e '.[spark,testing]'`, then `python -m benchmarks.spark --save`."
    facts = ["# Spark: rows a second", "", where, "", repeat, ""]
    print(where)
    text = "\n".join([*facts, *lines])
    if arguments.save:
        _RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
