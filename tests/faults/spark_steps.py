"""Common parts of the runs of Spark under faults: drivers, faults, messages to send, and counts."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import pulsar as official

import pulsar_ext

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import PulsarAdmin

__all__ = [
    "ANSWER_SECONDS",
    "BATCHING",
    "CHUNKED_BYTES",
    "EACH",
    "KINDS",
    "QUIET",
    "WAIT_SECONDS",
    "WORKERS",
    "Driver",
    "Outcome",
    "Run",
    "drop_last_commit",
    "fill",
    "options_of",
    "print_outcomes",
    "wait",
]

ANSWER_SECONDS: Final = 240.0
WAIT_SECONDS: Final = 300.0
CHUNKED_BYTES: Final = 230_000
EACH: Final = 40
QUIET: Final = official.ConsoleLogger(official.LoggerLevel.Error)
BATCHING: Final = {"batching_enabled": True, "batching_max_messages": 10}
WORKERS: Final = {"worker": "pyspark.worker", "source": "python_streaming_source_runner"}
KINDS: Final = {
    "plain": {},
    "batched": BATCHING,
    "key-batched": {**BATCHING, "batching_type": official.BatchingType.KeyBased},
    "chunked": {"chunking_enabled": True},
}


@dataclass
class Outcome:
    """The outcome of one run: faults by kind, messages, and what went wrong."""

    run: str
    faults: dict[str, int] = field(default_factory=Counter)
    restarts: int = 0
    messages: int = 0
    lost: int = 0
    duplicated: int = 0
    unreported: int = 0

    @property
    def good(self) -> bool:
        """True if nothing was lost or duplicated, and every intended loss was reported."""
        return not (self.lost or self.duplicated or self.unreported)

    def log(self, event: str) -> None:
        """Print an event with the time, because the runs are long."""
        print(f"{time.strftime('%H:%M:%S')} {self.run}: {event}", file=sys.stderr, flush=True)

    def count(self, found: list[int], wanted: range | list[int]) -> None:
        """Compare the received numbers with the expected ones."""
        counts = Counter(found)
        self.messages += len(wanted)
        self.lost += sum(1 for number in wanted if not counts[number])
        self.duplicated += sum(times - 1 for times in counts.values())
        self.log(f"{self.messages} messages, {self.lost} lost, {self.duplicated} duplicated")


def print_outcomes(outcomes: list[Outcome], *, as_json: bool) -> int:
    """Print outcomes, as JSON or as the table of RESULTS-spark.md; return the exit status."""
    if as_json:
        print(json.dumps(list(map(vars, outcomes)), indent=1))
    else:
        _print_table(outcomes)
    return 0 if all(one.good for one in outcomes) else 1


def _print_table(outcomes: list[Outcome]) -> None:
    print("| run | faults | restarts of the query | messages | lost | duplicated | loss not reported |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for one in outcomes:
        faults = ", ".join(f"{times} {kind}" for kind, times in one.faults.items()) or "-"
        cells = one.restarts, one.messages, one.lost, one.duplicated, one.unreported
        print(f"| {one.run} | {faults} | {' | '.join(f'{cell:,}' for cell in cells)} |")


class Driver:
    """The Spark program `spark_driver.py`, in a process of its own.

    Args:
        log: file of its output.
        session: the master and the configuration of a session that is not local.
    """

    def __init__(self, log: Path, session: dict[str, Any] | None = None) -> None:
        self._log = log
        self._session = session or {}
        self._process: Any = None

    def begin(self) -> None:
        """Start the driver, and wait until it has a session."""
        program = Path(__file__).with_name("spark_driver.py")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program), json.dumps(self._session)],
                cwd=self._log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )
        self._answer()

    def ask(self, do: str, **order: Any) -> Any:
        """Send an order and return its answer."""
        self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if isinstance(answer, dict) and "failed" in answer:
            raise RuntimeError(f"the driver failed to {do}: {answer['failed']}")
        return answer

    def _answer(self) -> Any:
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise RuntimeError(f"the driver did not answer; its log is {self._log}")
        return json.loads(line)

    def kill(self) -> None:
        """Kill the driver and its JVM by SIGKILL; its Python workers have to notice by themselves."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        for child in children:
            if child.name() == "java":
                child.kill()
        self._process.kill()
        self._process.wait()

    def kill_workers(self, module: str) -> bool:
        """Kill its Python processes that run a module of pyspark by SIGKILL; return False if none runs now."""
        workers = []
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                command = child.cmdline()
                # The daemon that forks the workers has the same command line, and is not killed.
                is_worker = "pyspark.daemon" not in command or child.parent().cmdline() == command
                if command and command[-1].endswith(module) and is_worker:
                    workers.append(child)
        for worker in workers:
            with contextlib.suppress(psutil.Error):
                worker.kill()
        return bool(workers)

    def end(self) -> None:
        """Kill the driver with all processes of its session."""
        with contextlib.suppress(Exception):
            self.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def fill(service_url: str, admin: PulsarAdmin, topic: str, first: int, *, each: int = EACH) -> int:
    """Send messages of every kind, whose values are their numbers; return the next number."""
    number = first
    client = pulsar_ext.Client(service_url, admin=admin, logger=QUIET)
    with client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, options in KINDS.items():
            producer = client.create_producer(topic, block_if_queue_full=True, **options)
            failed: list[Any] = []
            for index in range(each):
                size = CHUNKED_BYTES if kind == "chunked" and index % 10 == 0 else 0
                producer.send_async(
                    str(number).encode().ljust(size),
                    lambda result, _id, failed=failed: result == official.Result.Ok or failed.append(result),
                    partition_key=f"k{index % 13}" if index % 4 else None,
                )
                number += 1
            producer.flush()
            producer.close()
            if failed:
                raise RuntimeError(f"{len(failed)} sends failed: {failed[0]}")
    return number


def wait(until: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS) -> Any:
    """Wait until a condition holds; return its value."""
    deadline = time.monotonic() + seconds
    while not (found := until()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"timeout after {seconds:.0f} s, waiting until {what}")
        time.sleep(0.2)
    return found


class Run:
    """A stream under faults: injects faults, and restarts the query if it fails."""

    def __init__(self, outcome: Outcome, broker: Any, driver: Driver, order: dict[str, Any]) -> None:
        self.outcome = outcome
        self._broker = broker
        self._order = order
        self.driver = driver
        self.driver.begin()
        self.driver.ask("start", **order)

    def fault(self, kind: str) -> None:
        """Inject a fault."""
        if kind in WORKERS:
            wait(lambda: self.driver.kill_workers(WORKERS[kind]), f"there is a process of {kind}", 60)
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
        self.outcome.log(kind)

    def planned(self) -> int:
        """Return the number of batches planned so far."""
        return len(list((Path(self._order["checkpoint"]) / "offsets").glob("[0-9]*")))

    def in_a_batch(self, before: int) -> None:
        """Wait until another batch is planned, so that a fault hits one; `before` is the number planned before."""

        def begun() -> bool:
            self.keep_going()
            return self.planned() > before

        wait(begun, "a batch begins")
        time.sleep(random.uniform(0, 2))

    def keep_going(self) -> None:
        """Restart the query from its checkpoint if it has failed, as its operator would."""
        if self.driver.ask("status").get("active"):
            return
        self.outcome.restarts += 1
        self.driver.ask("start", **self._order)

    def finish(self, numbers: Callable[[], list[int]], wanted: range) -> None:
        """Wait until everything has arrived, stop the query, and count."""

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
    """Return the options of a read or a write."""
    return {"service.url": broker.service_url, "admin.url": broker.admin_url, "topic": topic, **more}
