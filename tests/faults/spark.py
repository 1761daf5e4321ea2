"""Spark under faults: archives of every kind of topic, and streams that lose and repeat nothing.

    python tests/faults/spark.py [--faults N] [--only archive|read|write] [--directory DIR] [--json]

`archive`: a topic of plain, batched, key-batched and chunked messages over several ledgers is read for each `splitBy`
with 1, 2 and 7 tasks: each message once.

`read`: a stream from such a topic to Parquet, which grows all the while. By turns the tasks' Python workers are killed
with SIGKILL, the broker is killed and restarted, the driver is killed and started again, the newest entry of the commit
log is deleted, and the Python process that plans the batches is killed; then a first batch is killed, and what was not
read expires. `write`: the first four, on an exactly-once stream from Parquet to a topic, which is read raw afterwards.
Nothing may be lost or be there twice; what expired is reported.

Starts a broker and drivers of its own, which need Java and pyspark. Exits with 1 if a count is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import pulsar as official

import pulsar_ext
from pulsar_ext.admin import PulsarAdmin, Retention
from pulsar_ext.testing import PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Outcome", "run_archive", "run_read", "run_write"]

_ANSWER_SECONDS: Final = 240.0
_SETTLE_SECONDS: Final = 300.0
_CHUNKED_BYTES: Final = 230_000
_EACH: Final = 40
_FED: Final = 20_000
_QUIET: Final = official.ConsoleLogger(official.LoggerLevel.Error)
_BATCHING: Final = {"batching_enabled": True, "batching_max_messages": 10}
_WORKERS: Final = {"worker": "pyspark.worker", "source": "python_streaming_source_runner"}
_KINDS: Final = {
    "plain": {},
    "batched": _BATCHING,
    "key-batched": {**_BATCHING, "batching_type": official.BatchingType.KeyBased},
    "chunked": {"chunking_enabled": True},
}


@dataclass
class Outcome:
    """What one run did: faults by kind, messages, and what went wrong."""

    run: str
    faults: dict[str, int] = field(default_factory=Counter)
    restarts: int = 0
    messages: int = 0
    lost: int = 0
    duplicated: int = 0
    unreported: int = 0

    @property
    def good(self) -> bool:
        """Whether nothing was lost or doubled, and each loss was reported that was made on purpose."""
        return not (self.lost or self.duplicated or self.unreported)

    def tell(self, kind: str) -> None:
        """Say which fault was made; the runs are long."""
        print(f"{time.strftime('%H:%M:%S')} {self.run}: {kind}", file=sys.stderr, flush=True)

    def count(self, found: list[int], wanted: range | list[int]) -> None:
        """Compare what is there with what should be."""
        counts = Counter(found)
        self.messages += len(wanted)
        self.lost += sum(1 for number in wanted if not counts[number])
        self.duplicated += sum(times - 1 for times in counts.values())
        self.tell(f"{self.messages} messages, {self.lost} lost, {self.duplicated} duplicated")


class Driver:
    """The Spark program, in a process of its own."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: Any = None

    def begin(self) -> None:
        """Start it, and wait until it has a session."""
        program = Path(__file__).with_name("spark_driver.py")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )
        self._answer()

    def ask(self, do: str, **order: Any) -> Any:
        """Give an order and wait for its answer."""
        self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if isinstance(answer, dict) and "failed" in answer:
            raise RuntimeError(f"the driver could not {do}: {answer['failed']}")
        return answer

    def _answer(self) -> Any:
        ready, _, _ = select.select([self._process.stdout], [], [], _ANSWER_SECONDS)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise RuntimeError(f"the driver did not answer; its log is {self._log}")
        return json.loads(line)

    def kill(self) -> None:
        """End it and its Java machine by SIGKILL; its Python workers have to notice by themselves."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        for child in children:
            if child.name() == "java":
                child.kill()
        self._process.kill()
        self._process.wait()

    def kill_workers(self, module: str) -> bool:
        """End its Python processes that run a module of pyspark by SIGKILL; False if there is none at the moment."""
        workers = []
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                command = child.cmdline()
                # The daemon that forks workers has the same command as they have, and stays.
                is_worker = "pyspark.daemon" not in command or child.parent().cmdline() == command
                if command and command[-1].endswith(module) and is_worker:
                    workers.append(child)
        for worker in workers:
            with contextlib.suppress(psutil.Error):
                worker.kill()
        return bool(workers)

    def end(self) -> None:
        """End it for good."""
        with contextlib.suppress(Exception):
            self.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def fill(service_url: str, admin: PulsarAdmin, topic: str, first: int, *, each: int = _EACH) -> int:
    """Send messages of every kind, whose values are their numbers; give the next number."""
    number = first
    client = pulsar_ext.Client(service_url, admin=admin, logger=_QUIET)
    with client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, options in _KINDS.items():
            producer = client.create_producer(topic, block_if_queue_full=True, **options)
            failed: list[Any] = []
            for index in range(each):
                size = _CHUNKED_BYTES if kind == "chunked" and index % 10 == 0 else 0
                producer.send_async(
                    str(number).encode().ljust(size),
                    lambda result, _id, failed=failed: result == official.Result.Ok or failed.append(result),
                    partition_key=f"k{index % 13}" if index % 4 else None,
                )
                number += 1
            producer.flush()
            producer.close()
            if failed:
                raise RuntimeError(f"{len(failed)} messages could not be sent: {failed[0]}")
    return number


def wait(until: Callable[[], Any], what: str, seconds: float = _SETTLE_SECONDS) -> Any:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not (found := until()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"it never came to it that {what}")
        time.sleep(0.2)
    return found


class Run:
    """A stream under faults: keeps it going, and does harm to it."""

    def __init__(self, outcome: Outcome, broker: Any, directory: Path, order: dict[str, Any]) -> None:
        self.outcome = outcome
        self._broker = broker
        self._order = order
        self.driver = Driver(directory / "driver.log")
        self.driver.begin()
        self.driver.ask("start", **order)

    def fault(self, kind: str) -> None:
        """Do harm once."""
        if kind in _WORKERS:
            wait(lambda: self.driver.kill_workers(_WORKERS[kind]), f"there is a process of {kind}", 60)
        elif kind == "broker":
            self._broker.kill()
            time.sleep(random.uniform(0, 2))
            self._broker.restart()
        elif kind == "driver":
            self.driver.kill()
            self.driver.begin()
            self.driver.ask("start", **self._order)
        elif kind == "commit":
            self.driver.ask("stop")
            drop_last_commit(Path(self._order["checkpoint"]))
            self.driver.ask("start", **self._order)
        self.outcome.faults[kind] += 1
        self.outcome.tell(kind)

    def planned(self) -> int:
        """Give how many batches were planned so far."""
        return len(list((Path(self._order["checkpoint"]) / "offsets").glob("[0-9]*")))

    def in_a_batch(self, before: int) -> None:
        """Wait until a batch is planned beyond so many, so that harm is done to something."""

        def begun() -> bool:
            self.keep_going()
            return self.planned() > before

        wait(begun, "a batch begins")
        time.sleep(random.uniform(0, 2))

    def keep_going(self) -> None:
        """Start the query again from its checkpoint if it has failed, as whoever runs it would."""
        if self.driver.ask("status").get("active"):
            return
        self.outcome.restarts += 1
        self.driver.ask("start", **self._order)

    def settle(self, numbers: Callable[[], list[int]], wanted: range) -> None:
        """Wait until everything has arrived, then a little longer for what must not come."""

        def arrived() -> bool:
            self.keep_going()
            return set(wanted) <= set(numbers())

        with contextlib.suppress(RuntimeError):
            wait(arrived, "everything has arrived")
        self.driver.ask("stop")
        self.outcome.count(numbers(), wanted)


def drop_last_commit(checkpoint: Path) -> None:
    """Delete the newest entry of a commit log, if there is one."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    if commits:
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)


def options_of(broker: Any, topic: str, **more: str) -> dict[str, str]:
    """Give the options of a read or a write."""
    return {"service.url": broker.service_url, "admin.url": broker.admin_url, "topic": topic, **more}


def run_archive(broker: Any, admin: PulsarAdmin) -> list[Outcome]:
    """Read a topic of every kind, shared in every way."""
    from pulsar_ext.spark import spark_session  # noqa: PLC0415  # the other runs have their session elsewhere

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
    run = Run(Outcome("read"), broker, directory, order)
    count = 0
    for number in range(faults):
        before = run.planned()
        count = fill(broker.service_url, admin, topic, count)
        run.in_a_batch(before)
        run.fault(("worker", "broker", "driver", "commit", "source")[number % 5])
        run.keep_going()
    run.settle(lambda: run.driver.ask("numbers", path=path), range(count))
    rest = [_first_batch(broker, admin, directory, run.driver), _expired(broker, admin, directory, run.driver)]
    run.driver.end()
    return [run.outcome, *rest]


def _first_batch(broker: Any, admin: PulsarAdmin, directory: Path, driver: Driver) -> Outcome:
    """Kill the driver while it does a first batch that began at the end of the topic."""
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
    outcome.tell("first batch")
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
    """Let messages expire that were not read, and their ledgers be deleted."""
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
    outcome.tell("expired")
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
    """Stream from Parquet to a topic, exactly once, under faults: one without partitions, and one of two."""
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
        "path": path,
        "checkpoint": str(directory / "checkpoint"),
        "options": options_of(broker, topic, guarantee="exactly-once"),
    }
    run = Run(outcome, broker, directory, order)
    count = 0
    for number in range(faults):
        before = run.planned()
        run.driver.ask("feed", path=path, first=count, count=_FED)
        count += _FED
        run.in_a_batch(before)
        run.fault(("worker", "broker", "driver", "commit")[number % 4])
        run.keep_going()
    run.settle(lambda: _raw(broker.service_url, topic, count), range(count))
    run.driver.end()
    return outcome


def _raw(service_url: str, topic: str, count: int) -> list[int]:
    """Read a topic with the official client."""
    client = official.Client(service_url, logger=_QUIET)
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
    """Run what is asked for, and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=20, help="how many on each stream (20)")
    parser.add_argument("--only", choices=("archive", "read", "write"))
    parser.add_argument("--directory", type=Path, help="keep data, checkpoints and logs there")
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
    if arguments.as_json:
        print(json.dumps([asdict(one) for one in outcomes], indent=1))
    else:
        print("| run | faults | restarts of the query | messages | lost | duplicated | loss not reported |")
        print("|---|---|---:|---:|---:|---:|---:|")
        for one in outcomes:
            faults = ", ".join(f"{times} {kind}" for kind, times in one.faults.items()) or "-"
            cells = one.restarts, one.messages, one.lost, one.duplicated, one.unreported
            print(f"| {one.run} | {faults} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return 0 if all(one.good for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
