"""Spark's standalone cluster under faults: streams of two workers that neither lose nor repeat a message.

    python tests/faults/spark_cluster.py [--faults N] [--only read|write] [--directory DIR] [--json]

A master and two workers run as processes; their Python has the library's dependencies, and the driver sends the
library. Speculation and dynamic allocation are on. `read` streams from a topic of two partitions to Parquet, while
messages of every kind are sent. `write` streams exactly once from Parquet, three files a batch, to a topic that the
official client then reads.

By turns, N times each (20):

- executor: an executor is killed.
- worker: a worker is killed with its executors, and restarted up to 5 s later.
- driver: Python and Java of the driver are killed, and the query is restarted from its checkpoint.
- twice: the Python processes of one worker are stopped until Spark has started a copy of a task on the other worker,
  and then continue: two attempts of one task at the same time.

Exit status: 1 if a message was lost or doubled.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil
from seeded import SeededParser
from spark import read_raw
from spark_steps import Driver, Outcome, Run, fill, options_of, print_outcomes, wait

from pulsar_ext.admin import PulsarAdmin, Retention
from pulsar_ext.spark.shipping import pack
from pulsar_ext.testing import PulsarProcess, SparkCluster

__all__ = ["ClusterRun", "run_read", "run_write"]

KINDS: Final = ("executor", "worker", "driver", "twice")
_FED: Final = 20_000
_FILES: Final = 3
_COPY_SECONDS: Final = 60.0
_CONFIG: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "8",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "2",
    "spark.speculation.task.duration.threshold": "3s",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
}


class ClusterRun(Run):
    """A stream on a cluster.

    Args:
        outcome: its outcome.
        cluster: the cluster.
        directory: for the library and the driver's log.
        order: the driver's first order.
    """

    def __init__(self, outcome: Outcome, cluster: SparkCluster, directory: Path, order: dict[str, Any]) -> None:
        self._cluster = cluster
        library = directory / "pulsar_ext.zip"
        pack(library)
        sent = {"spark.files": str(library), "spark.submit.pyFiles": str(library)}  # what --py-files does
        session = {"master": cluster.master_url, "config": _CONFIG | sent}
        super().__init__(outcome, None, Driver(directory / f"{order['direction']}.log", session), order)

    def fault(self, kind: str) -> None:
        """Cause a fault."""
        if kind == "executor":
            wait(self._kill_executor, "there is an executor", 120)
        elif kind == "worker":
            worker = random.choice(self._cluster.workers)
            worker.kill()
            time.sleep(random.uniform(0, 5))
            self._cluster.restart(worker)
        elif kind == "twice":
            self.outcome.faults["twice, both ran"] += self._stop_a_task()
        else:
            super().fault(kind)
            return
        self.outcome.faults[kind] += 1
        self.outcome.log(kind)

    def _kill_executor(self) -> bool:
        executors = [one for worker in self._cluster.workers for one in worker.executors()]
        if executors:
            random.choice(executors).kill()
        return bool(executors)

    def _stop_a_task(self) -> bool:
        """Stop the Python of tasks until a copy of one has started, and continue it; return True if it started."""
        stopped = wait(self._stop_python, "there is a Python worker", 120)
        copied = False
        with contextlib.suppress(RuntimeError):
            copied = wait(lambda: self.driver.ask("copies"), "a copy has started", _COPY_SECONDS)
        for one in stopped:
            with contextlib.suppress(psutil.Error):
                one.resume()
        return copied

    def _stop_python(self) -> list[psutil.Process]:
        """Stop the Python processes of one worker, so that the copy runs on the other."""
        found = next((running for worker in self._cluster.workers if (running := worker.python_workers())), [])
        for one in found:
            with contextlib.suppress(psutil.Error):
                one.suspend()
        return found


def run_read(broker: Any, admin: PulsarAdmin, cluster: SparkCluster, directory: Path, faults: int) -> Outcome:
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
    run = ClusterRun(Outcome("cluster, read"), cluster, directory, order)
    count = 0
    for number in range(faults * len(KINDS)):
        before = run.planned()
        count = fill(broker.service_url, admin, topic, count)
        run.in_a_batch(before)
        run.fault(KINDS[number % len(KINDS)])
        run.keep_going()
    run.finish(lambda: run.driver.ask("numbers", path=path), range(count))
    run.driver.end()
    return run.outcome


def run_write(broker: Any, admin: PulsarAdmin, cluster: SparkCluster, directory: Path, faults: int) -> Outcome:
    """Stream exactly once from Parquet to a topic under faults."""
    topic = "persistent://public/written/cluster"
    admin.create_partitioned_topic(topic, 2)
    path = str(directory / "feed")
    order = {
        "direction": "write",
        "files": _FILES,
        "path": path,
        "checkpoint": str(directory / "write-checkpoint"),
        "options": options_of(broker, topic, guarantee="exactly-once"),
    }
    run = ClusterRun(Outcome("cluster, write"), cluster, directory, order)
    count = 0
    for number in range(faults * len(KINDS)):
        before = run.planned()
        run.driver.ask("feed", path=path, first=count, count=_FED, files=_FILES)
        count += _FED
        run.in_a_batch(before)
        run.fault(KINDS[number % len(KINDS)])
        run.keep_going()
    run.finish(lambda: read_raw(broker.service_url, topic, count), range(count))
    run.driver.end()
    return run.outcome


def main() -> int:
    """Run the selected streams, and print the outcomes."""
    parser = SeededParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=20, help="number of each kind on each stream (20)")
    parser.add_argument("--only", choices=("read", "write"))
    parser.add_argument("--directory", type=Path, help="a directory to keep data, checkpoints and logs in")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory() as temporary,
        PulsarProcess("small-chunks", settings={"managedLedgerMaxEntriesPerLedger": 100}) as broker,
        PulsarAdmin(broker.admin_url, deadline_seconds=120.0, max_attempts=100) as admin,
        SparkCluster() as cluster,
    ):
        directory = (arguments.directory or Path(temporary)).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        for namespace in ("public/faults", "public/written"):
            admin.create_namespace(namespace)
            admin.set_retention(namespace, Retention(-1, -1))
        admin.set_deduplication("public/written", value=True)
        for name, run in (("read", run_read), ("write", run_write)):
            if arguments.only in (None, name):
                outcomes.append(run(broker, admin, cluster, directory, arguments.faults))
    return print_outcomes(outcomes, as_json=arguments.as_json)


if __name__ == "__main__":
    sys.exit(main())
