"""Loops that receive or send messages: the official client, ours without and with the native core, and Java.

    python -m benchmarks.loop [--rounds 9] [--messages 200000] [--save] [--url URL ADMIN_URL]

Starts its own broker. Each run has a fresh process, in turn; a figure is the median of nanoseconds of processor time
per message: of the looping thread, and of the whole process. Ratios are of consecutive runs. `--save` writes
RESULTS-loop.md beside this program. Needs the extras `bench` and `testing`, and Java.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Final

import pulsar

from benchmarks.brokers import broker_at
from benchmarks.report import machine, sentence
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.testing.java_program import Java

_HERE: Final = Path(__file__).parent
_WAYS: Final = {
    "receive": "`receive()`",
    "value": "`receive()` and `value()`",
    "fields": "`receive()`, six fields and the id",
    "acknowledge": "the same, and `acknowledge()`",
    "send": "`send_async()`, a callback each",
    **{f"acknowledge {count}": f"fields, id and `acknowledge()`, {count} partitions" for count in (4, 30, 300)},
    **{f"send {count}": f"`send_async()`, a callback each, {count} partitions" for count in (4, 30, 300)},
}
_SIDES: Final = {
    "pulsar": "pulsar-client",
    "pure": "pulsar_ext, in Python",
    "native": "pulsar_ext, native core",
    "java": "Java",
}
_BATCH: Final = 1000
_BATCHES: Final = {
    "batching_enabled": True,
    "batching_max_messages": _BATCH,
    "batching_max_publish_delay_ms": 10,
    "batching_max_allowed_size_in_bytes": 1 << 20,
    "max_pending_messages": 20 * _BATCH,
    "block_if_queue_full": True,
}
_PAGE: Final = """\
# Speed: loops that receive or send messages

Nanoseconds of processor time per message of 100 bytes, in batches of {batch}: of the looping thread, and of the whole
process, whose other threads read from the network and write to it. Received messages have a key. The fields are
`data()`, `partition_key()`, `properties()`, `publish_timestamp()`, `event_timestamp()` and `redelivery_count()`; the id
is `message_id()`. Each run has a fresh process, in turn; a figure is the median of {rounds} runs, and the ratio in
brackets that of the rates of consecutive runs, relative to pulsar-client. For Java, the third round in a process
counts, when its code is compiled.

{facts}

Repeat: `pip install -e '.[bench,testing]'`, then `python -m benchmarks.loop --save`.

{table}
"""


def main() -> int:
    """Measure, print, and save if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loop", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="runs of each side and path (9)")
    parser.add_argument("--messages", type=int, default=200_000, help="messages of a run (200,000)")
    parser.add_argument("--save", action="store_true", help="write RESULTS-loop.md beside this program")
    parser.add_argument("--url", nargs=2, metavar=("URL", "ADMIN_URL"), help="a running broker, instead of a new one")
    arguments = parser.parse_args()
    with broker_at(arguments.url) as (url, admin_url):
        topics = {
            partitions: _topics(url, admin_url, partitions, arguments.messages + 1) for partitions in (0, 4, 30, 300)
        }
        figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            for way in _WAYS:
                kind, _, partitions = way.partition(" ")
                topic = topics[int(partitions or 0)][kind == "send"]
                for side in _SIDES:
                    figures.setdefault((way, side), []).append(_run(side, url, topic, kind, arguments.messages))
    page = _page(figures, arguments.rounds)
    print(page)
    if arguments.save:
        (_HERE / "RESULTS-loop.md").write_text(page, encoding="utf-8")
    return 0


def _topics(url: str, admin_url: str, partitions: int, messages: int) -> tuple[str, str]:
    """Return a topic with messages, and an empty one."""
    first, other = (f"persistent://public/default/loop-{uuid.uuid4().hex[:8]}" for _ in range(2))
    if partitions:
        with PulsarAdmin(admin_url) as admin:
            admin.create_partitioned_topic(first, partitions)
            admin.create_partitioned_topic(other, partitions)
    _fill(url, first, messages)
    return first, other


def _fill(url: str, topic: str, messages: int) -> None:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, **{**_BATCHES, "batching_max_publish_delay_ms": 1000})
    for number in range(messages):
        producer.send_async(b"x" * 100, None, partition_key=f"k{number % 100}", event_timestamp=number + 1)
    producer.flush()
    client.close()


def _run(side: str, url: str, topic: str, way: str, messages: int) -> tuple[float, float]:
    """Return the nanoseconds per message of the thread and of the process, measured in a fresh process."""
    arguments = [url, topic, way, str(messages)]
    environment = dict(os.environ)
    if side == "java":
        java = Java.find()
        command = [str(java.program), "-cp", f"{java.jars}/*", str(_HERE / "java/Loop.java"), *arguments]
        environment.pop("JDK_JAVA_OPTIONS", None)  # the tests' options speed up the start and slow down a loop
    else:
        environment["PULSAR_EXT_NATIVE"] = "1" if side == "native" else "0"
        library = "pulsar" if side == "pulsar" else "pulsar_ext"
        command = [sys.executable, "-c", f"from benchmarks.loop import loop; loop({library!r}, *{arguments!r})"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    (result,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    thread, process = map(float, result.split()[1:3])
    return thread, process


def loop(library: str, url: str, topic: str, way: str, messages: str) -> None:
    """Receive messages in the way `way`, and print the cost per message."""
    lib = importlib.import_module(library)
    client = lib.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    if way == "send":
        run, end = _send, client.create_producer(topic, **_BATCHES)
    else:
        run = {"receive": _receive, "value": _value, "fields": _fields, "acknowledge": _acknowledge}[way]
        earliest = pulsar.InitialPosition.Earliest
        end = client.subscribe(topic, uuid.uuid4().hex, initial_position=earliest)
        end.receive()
    thread, process = time.thread_time(), time.process_time()
    run(end, int(messages))
    spent = time.thread_time() - thread, time.process_time() - process
    print("RESULT", *(seconds / int(messages) * 1e9 for seconds in spent), flush=True)
    client.close()


def _receive(consumer: pulsar.Consumer, messages: int) -> None:
    for _ in range(messages):
        consumer.receive()


def _value(consumer: pulsar.Consumer, messages: int) -> None:
    for _ in range(messages):
        consumer.receive().value()


def _read(message: pulsar.Message) -> None:
    message.data()
    message.partition_key()
    message.properties()
    message.publish_timestamp()
    message.event_timestamp()
    message.redelivery_count()
    message.message_id()


def _fields(consumer: pulsar.Consumer, messages: int) -> None:
    for _ in range(messages):
        _read(consumer.receive())


def _acknowledge(consumer: pulsar.Consumer, messages: int) -> None:
    for _ in range(messages):
        message = consumer.receive()
        _read(message)
        consumer.acknowledge(message)


def _send(producer: pulsar.Producer, messages: int) -> None:
    data, reported = b"x" * 100, 0

    def callback(_result: pulsar.Result, _message_id: pulsar.MessageId) -> None:
        nonlocal reported
        reported += 1

    for _ in range(messages):
        producer.send_async(data, callback)
    producer.flush()
    if reported != messages:
        sys.exit(f"{reported} of {messages} messages have an outcome")


def _figure(official: list[tuple[float, float]], runs: list[tuple[float, float]], at: int) -> str:
    """Return the median of runs, and in brackets that of their rates relative to the official client's."""
    ratio = statistics.median(theirs[at] / ours[at] for theirs, ours in zip(official, runs, strict=True))
    return f"{statistics.median(ours[at] for ours in runs):,.0f} ({ratio:.2f})"


def _page(figures: dict[tuple[str, str], list[tuple[float, float]]], rounds: int) -> str:
    names = " | ".join(_SIDES.values())
    rows = [f"| path | thread: {names} | process: {names} |", "|---|" + "--:|" * (2 * len(_SIDES))]
    for way, path in _WAYS.items():
        cells = (_figure(figures[way, "pulsar"], figures[way, side], at) for at in (0, 1) for side in _SIDES)
        rows.append(f"| {path} | {' | '.join(cells)} |")
    return _PAGE.format(batch=f"{_BATCH:,}", rounds=rounds, facts=sentence(machine()), table="\n".join(rows))


if __name__ == "__main__":
    sys.exit(main())
