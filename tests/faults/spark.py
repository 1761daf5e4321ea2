"""Spark under faults: archives of every kind of topic, and streams that neither lose nor repeat a message.

    python tests/faults/spark.py [--faults N] [--only archive|read|write] [--directory DIR] [--json]

`archive`: a topic of plain, batched, key-batched and chunked messages over several ledgers is read for each `splitBy`
with 1, 2 and 7 tasks: each message once.

`read`: a stream to Parquet from such a topic, to which messages are sent continuously. By turns, the tasks' Python
workers are killed with SIGKILL, the broker is killed and restarted, the driver is killed and restarted, the newest
entry of the commit log is deleted, and the Python process that plans the batches is killed; then a first batch is
killed, and unread messages expire. `write`: the first four, on an exactly-once stream from Parquet to a topic, which is
then read with the official client. No message may be lost or duplicated, and the loss of expired ones has to be
reported.

Starts a broker and drivers of its own, which need Java and pyspark. Exit status: 1 if a count is wrong.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pulsar as official
from seeded import SeededParser
from spark_steps import (
    QUIET,
    Driver,
    Outcome,
    Run,
    fill,
    options_of,
    print_outcomes,
    wait,
)

from pulsar_ext.admin import PulsarAdmin, Retention
from pulsar_ext.testing import PulsarProcess

__all__ = ["Outcome", "read_raw", "run_archive", "run_read", "run_write"]
_FED: Final = 20_000


def run_archive(broker: Any, admin: PulsarAdmin) -> list[Outcome]:
    """Read a topic of every kind of message, with every `splitBy`."""
    from pulsar_ext.spark import spark_session  # noqa: PLC0415  # the other runs have sessions in drivers

    topic = "persistent://public/faults/archive"
    count = 0
    for _ in range(3):
        count = fill(broker.service_url, admin, topic, count, each=100)
        admin.unload(topic)
    spark = spark_session("archive", master="local[2]", config={"spark.log.level": "OFF"})
    outcomes = []
    for split_by in ("partition", "entries", "keyHash"):
        for tasks in (1,) if split_by == "partition" else (1, 2, 7):
            more = {} if split_by == "partition" else {"minPartitions": str(tasks)}
            outcome = Outcome(f"archive, {split_by}, {tasks} task{'s' if tasks > 1 else ''}")
            read = spark.read.format("pulsar").options(**options_of(broker, topic, splitBy=split_by, **more))
            rows = read.option("columns", "value").load().collect()
            outcome.count([int(row.value) for row in rows], range(count))
            outcomes.append(outcome)
    spark.stop()
    return outcomes


def run_read(broker: Any, admin: PulsarAdmin, directory: Path, faults: int) -> list[Outcome]:
    """Stream from a topic to Parquet under faults."""
    topic = "persistent://public/faults/read"
    admin.create_partitioned_topic(topic, 2)
    path = str(directory / "read")
    order = {
        "direction": "read",
        "path": path,
        "checkpoint": str(directory / "read-checkpoint"),
        "options": options_of(broker, topic, startingOffsets="earliest", maxEntriesPerTrigger="60"),
    }
    run = Run(Outcome("read"), broker, Driver(directory / "driver.log"), order)
    count = 0
    for number in range(faults):
        before = run.planned()
        count = fill(broker.service_url, admin, topic, count)
        run.in_a_batch(before)
        run.fault(("worker", "broker", "driver", "commit", "source")[number % 5])
        run.keep_going()
    run.finish(lambda: run.driver.ask("numbers", path=path), range(count))
    rest = [_first_batch(broker, admin, directory, run.driver), _expired(broker, admin, directory, run.driver)]
    run.driver.end()
    return [run.outcome, *rest]


def _first_batch(broker: Any, admin: PulsarAdmin, directory: Path, driver: Driver) -> Outcome:
    """Kill the driver during a first batch that began at the end of the topic."""
    outcome = Outcome("read, first batch killed")
    topic = "persistent://public/faults/first"
    fill(broker.service_url, admin, topic, 0, each=5)
    checkpoint = directory / "first-checkpoint"
    order = {
        "direction": "read",
        "path": str(directory / "first"),
        "checkpoint": str(checkpoint),
        "options": options_of(broker, topic),
    }
    driver.ask("start", **order, slow=True)
    wait(lambda: admin.internal_stats(topic).cursors, "the query has a subscription")
    after = fill(broker.service_url, admin, topic, 1000, each=5)
    wait((checkpoint / "offsets" / "0").exists, "the first batch is planned")
    driver.kill()
    outcome.faults["first batch"] += 1
    outcome.log("first batch")
    after = fill(broker.service_url, admin, topic, after, each=5)
    driver.begin()
    driver.ask("start", **order)
    wanted = range(1000, after)
    with contextlib.suppress(RuntimeError):
        wait(lambda: set(wanted) <= set(driver.ask("numbers", path=order["path"])), "all arrived", 120)
    driver.ask("stop")
    outcome.count(driver.ask("numbers", path=order["path"]), wanted)
    return outcome


def _expired(broker: Any, admin: PulsarAdmin, directory: Path, driver: Driver) -> Outcome:
    """Let unread messages expire, and their ledgers be deleted."""
    outcome = Outcome("read, unread messages expired")
    topic = "persistent://public/expiring/topic"
    options = options_of(broker, topic, startingOffsets="earliest", predefinedSubscription="query")
    order = {
        "direction": "read",
        "path": str(directory / "expired"),
        "checkpoint": str(directory / "expired-checkpoint"),
        "options": options,
    }
    admin.create_topic(topic)
    driver.ask("start", **order)
    wait(lambda: admin.internal_stats(topic).cursors, "the query has a subscription")
    count = fill(broker.service_url, admin, topic, 0, each=5)
    wait(lambda: len(driver.ask("numbers", path=order["path"])) == count, "the query has read")
    driver.ask("stop")
    fill(broker.service_url, admin, topic, count, each=5)
    before = admin.internal_stats(topic).ledgers[-1].ledger_id
    admin.unload(topic)
    after = fill(broker.service_url, admin, topic, 1000, each=5)
    admin.expire_messages(topic, "query", admin.internal_stats(topic).last_confirmed_entry)

    def trimmed() -> bool:
        admin.trim(topic)
        return admin.internal_stats(topic).ledgers[0].ledger_id > before

    wait(trimmed, "the ledger is deleted", 60)
    outcome.faults["expired"] += 1
    outcome.log("expired")
    driver.ask("start", **order)
    status = wait(lambda: (found := driver.ask("status"))["error"] and found, "the loss is reported", 60)
    outcome.unreported += "was trimmed" not in status["error"]
    driver.ask("start", **{**order, "options": {**options, "failOnDataLoss": "false"}})
    wanted = [*range(count), *range(1000, after)]
    with contextlib.suppress(RuntimeError):
        wait(lambda: set(wanted) <= set(driver.ask("numbers", path=order["path"])), "the rest arrived", 120)
    driver.ask("stop")
    outcome.count(driver.ask("numbers", path=order["path"]), wanted)
    return outcome


def run_write(broker: Any, admin: PulsarAdmin, directory: Path, faults: int) -> list[Outcome]:
    """Stream exactly once from Parquet under faults, to a topic without partitions, and to one with two."""
    plain, parted = "persistent://public/written/plain", "persistent://public/written/parted"
    admin.create_topic(plain)
    admin.create_partitioned_topic(parted, 2)
    return [
        _write(broker, plain, directory / "plain", Outcome("write"), faults),
        _write(broker, parted, directory / "parted", Outcome("write, 2 partitions"), faults),
    ]


def _write(broker: Any, topic: str, directory: Path, outcome: Outcome, faults: int) -> Outcome:
    directory.mkdir()
    path = str(directory / "feed")
    order = {
        "direction": "write",
        "files": 1,
        "path": path,
        "checkpoint": str(directory / "checkpoint"),
        "options": options_of(broker, topic, guarantee="exactly-once"),
    }
    run = Run(outcome, broker, Driver(directory / "driver.log"), order)
    count = 0
    for number in range(faults):
        before = run.planned()
        run.driver.ask("feed", path=path, first=count, count=_FED, files=1)
        count += _FED
        run.in_a_batch(before)
        run.fault(("worker", "broker", "driver", "commit")[number % 4])
        run.keep_going()
    run.finish(lambda: read_raw(broker.service_url, topic, count), range(count))
    run.driver.end()
    return outcome


def read_raw(service_url: str, topic: str, count: int) -> list[int]:
    """Read a topic with the official client."""
    client = official.Client(service_url, logger=QUIET)
    found = []
    try:
        reader = client.create_reader(topic, official.MessageId.earliest)
        with contextlib.suppress(official.Timeout):
            while True:
                found.append(int(reader.read_next(3000 if len(found) < count else 500).data()))
    finally:
        client.close()
    return found


def main() -> int:
    """Run the selected faults, and print the outcomes."""
    parser = SeededParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=20, help="number on each stream (20)")
    parser.add_argument("--only", choices=("archive", "read", "write"))
    parser.add_argument("--directory", type=Path, help="a directory to keep data, checkpoints and logs in")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory() as temporary,
        PulsarProcess("small-chunks", settings={"managedLedgerMaxEntriesPerLedger": 100}) as broker,
        PulsarAdmin(broker.admin_url, deadline_seconds=120.0, max_attempts=100) as admin,
    ):
        directory = arguments.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        for namespace in ("public/faults", "public/written", "public/expiring"):
            admin.create_namespace(namespace)
        for namespace in ("public/faults", "public/written"):
            admin.set_retention(namespace, Retention(-1, -1))
        admin.set_deduplication("public/written", value=True)
        if arguments.only in (None, "archive"):
            outcomes += run_archive(broker, admin)
        if arguments.only in (None, "read"):
            outcomes += run_read(broker, admin, directory, arguments.faults)
        if arguments.only in (None, "write"):
            outcomes += run_write(broker, admin, directory, arguments.faults)
    return print_outcomes(outcomes, as_json=arguments.as_json)


if __name__ == "__main__":
    sys.exit(main())
