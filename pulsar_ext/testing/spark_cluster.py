"""Spark's own standalone cluster as child processes: a master, and workers with a directory each.

The workers know nothing of the program that starts them: neither its checkout, nor its virtual environment, nor its
variables. What tasks need has to be sent to them, as to the machines of a real cluster.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import psutil

from pulsar_ext.errors import BrokerStartError

from .jars import find_java
from .java_program import GuardedProgram, ScratchDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

_HOST: Final = "127.0.0.1"
# Spark runs the copy of a slow task on another host only; Linux answers at every address of 127.0.0.0/8.
_WORKER_HOST: Final = "127.0.0.{}" if sys.platform == "linux" else _HOST
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_PYTHON_WORKER: Final = "pyspark.worker"
_MASTER_URL: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = "Successfully registered with master"
_OPTIONS: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false "
    # An application whose executors are killed on purpose is not to be ended for that.
    "-Dspark.deploy.maxExecutorRetries=-1 "
    # A worker that was killed is given up after so many seconds, not after a minute.
    "-Dspark.worker.timeout=10"
)
_POLL_SECONDS: Final = 0.1
_LINES: Final = 15


class SparkWorker:
    """A worker: a daemon, and the executors that it starts."""

    def __init__(self, program: GuardedProgram, command: list[str], environment: dict[str, str]) -> None:
        self._program = program
        self._command = command
        self._environment = environment

    def launch(self) -> None:
        """Start it, without waiting for it."""
        self._program.start(self._command, self._environment)

    def is_registered(self) -> bool:
        """Return whether the master knows it since it was started the last time."""
        return self._program.is_running() and self._program.has_said(_REGISTERED)

    def is_running(self) -> bool:
        """Return whether its daemon is alive now."""
        return self._program.is_running()

    def log_text(self) -> str:
        """Return the daemon's log."""
        return self._program.log_text()

    def executors(self) -> list[psutil.Process]:
        """Return the Java machines of its executors."""
        found = []
        for child in self._children():
            with contextlib.suppress(psutil.Error):
                if _EXECUTOR in child.cmdline():
                    found.append(child)
        return found

    def kill(self) -> None:
        """End it with all of its executors and their Python workers by SIGKILL, as a machine that is gone."""
        children = self._children()
        self._program.kill()
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        psutil.wait_procs(children)

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python processes in which its executors run tasks; some may be idle."""
        found = []
        for child in self._children():
            with contextlib.suppress(psutil.Error):
                # The daemon that forks them has the same command line.
                parent = child.parent()
                if (
                    parent is not None
                    and child.cmdline()[-1:] == [_PYTHON_WORKER]
                    and parent.cmdline() == child.cmdline()
                ):
                    found.append(child)
        return found

    def _children(self) -> list[psutil.Process]:
        pid = self._program.pid
        try:
            return [] if pid is None else psutil.Process(pid).children(recursive=True)
        except psutil.Error:
            return []


class SparkCluster:
    """A standalone cluster on the loop-back interface; it needs pyspark, and Java 17 or newer.

    Args:
        workers: how many.
        cores: what each worker offers executors.
        memory: what each worker offers executors, as in `1g`.
        daemon_memory: the Java heap of the master and of each worker's daemon.
        start_timeout: seconds until the workers have to be registered.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 2,
        memory: str = "1g",
        daemon_memory: str = "256m",
        start_timeout: float = 180.0,
    ) -> None:
        self._count = workers
        self._offer = ["--cores", str(cores), "--memory", memory]
        self._daemon_memory = daemon_memory
        self._start_timeout = start_timeout
        self._home: ScratchDirectory | None = None
        self._master: GuardedProgram | None = None
        self.workers: tuple[SparkWorker, ...] = ()
        self.master_url = ""

    @property
    def directory(self) -> Path | None:
        """Where each part has a directory of its own; None when it does not run."""
        return self._home.path if self._home is not None else None

    def start(self) -> Self:
        """Start the master and the workers, and return when these are registered.

        Raises:
            BrokerStartError: pyspark or Java is missing, or one of them did not start; nothing is left running.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def restart(self, worker: SparkWorker) -> None:
        """Start a worker that was killed, and return when it is registered.

        Raises:
            BrokerStartError: that takes too long; the error has the last lines of its log.
        """
        worker.launch()
        self._wait(worker.is_registered, worker.log_text)

    def stop(self) -> None:
        """End everything, and remove its files; do nothing when it does not run."""
        for worker in self.workers:
            worker.kill()
        if self._master is not None:
            self._master.kill()
        if self._home is not None:
            self._home.remove()
        self._home = self._master = None
        self.workers = ()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        spec = find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise BrokerStartError("pyspark is missing: pip install 'pulsar-ext[spark]'")
        spark = Path(spec.origin).parent
        self._home = ScratchDirectory("pulsar-ext-spark-")
        home = self._home.path
        environment = self._environment(spark, home)
        command = [str(spark / "bin" / "spark-class")]
        place = _new_directory(home / "master")
        self._master = GuardedProgram(place, "master")
        any_port = ["--port", "0", "--webui-port", "0"]
        self._master.start([*command, _MASTER, "--host", _HOST, *any_port], environment)
        log_text = self._master.log_text
        self._wait(lambda: _MASTER_URL.search(log_text()), log_text)
        self.master_url = _MASTER_URL.findall(log_text())[-1]
        workers = []
        for number in range(self._count):
            place = _new_directory(home / f"worker-{number}")
            host = _WORKER_HOST.format(number + 1)
            arguments = ["--host", host, *any_port, *self._offer, "--work-dir", str(place), self.master_url]
            program = GuardedProgram(place, "worker")
            workers.append(SparkWorker(program, [*command, _WORKER, *arguments], environment))
            self.workers = tuple(workers)
            workers[-1].launch()
        for worker in workers:
            self._wait(worker.is_registered, worker.log_text)

    def _environment(self, spark: Path, home: Path) -> dict[str, str]:
        """Return all variables that daemons and executors have."""
        return {
            "PATH": f"{find_java().parent}{os.pathsep}{_PATH}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_DIRS": str(_new_directory(home / "local")),
            "SPARK_DAEMON_MEMORY": self._daemon_memory,
            "SPARK_DAEMON_JAVA_OPTS": _OPTIONS,
        }

    def _wait(self, until: Callable[[], object], log_text: Callable[[], str]) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not until():
            if time.monotonic() > deadline:
                tail = "\n".join(log_text().splitlines()[-_LINES:])
                raise BrokerStartError(f"Spark did not start within {self._start_timeout:.0f} s. Its log ends:\n{tail}")
            time.sleep(_POLL_SECONDS)


def _new_directory(path: Path) -> Path:
    path.mkdir()
    return path
