"""Spark's standalone cluster as child processes: a master, and workers with their own directories.

The workers know nothing of the program that starts them: neither its checkout, nor its virtual environment, nor its
variables. Everything that tasks need must be sent to them, as to the machines of a real cluster.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from pulsar_ext.errors import BrokerStartError

from .broker import START_SECONDS, Startable
from .jars import find_java
from .java_program import GuardedProgram, ScratchDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HOST: Final = "127.0.0.1"
# Spark runs the copy of a slow task only on another host; Linux answers at every address of 127.0.0.0/8.
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
    # An application whose executors are killed on purpose must not fail because of that.
    "-Dspark.deploy.maxExecutorRetries=-1 "
    # The master drops a killed worker after ten seconds instead of a minute.
    "-Dspark.worker.timeout=10"
)
_POLL_SECONDS: Final = 0.1
_LINES: Final = 15


class SparkWorker(GuardedProgram):
    """Worker: a daemon, and the executors that it starts."""

    def __init__(self, directory: Path, command: list[str], environment: dict[str, str]) -> None:
        super().__init__(directory, "worker")
        self._command = command
        self._environment = environment

    def launch(self) -> None:
        """Start it without waiting for it."""
        self.start(self._command, self._environment)

    def is_registered(self) -> bool:
        """Return True if the master has registered it since its last start."""
        return self.is_running() and self.has_logged(_REGISTERED)

    def executors(self) -> list[psutil.Process]:
        """Return the Java machines of its executors."""
        return [child for child, command, _ in self._children_with_commands() if _EXECUTOR in command]

    def kill(self) -> None:
        """Kill it with all of its executors and their Python workers with SIGKILL, as a machine that fails."""
        children = self._children()
        super().kill()
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        psutil.wait_procs(children)

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python processes in which its executors run tasks; some may be idle."""
        # The daemon that forks them has the same command line.
        return [
            child
            for child, command, parents in self._children_with_commands()
            if command[-1:] == [_PYTHON_WORKER] and parents == command
        ]

    def _children_with_commands(self) -> Iterator[tuple[psutil.Process, list[str], list[str]]]:
        """Yield each child that is alive, its command line, and its parent's."""
        for child in self._children():
            with contextlib.suppress(psutil.Error):
                parent = child.parent()
                yield child, child.cmdline(), [] if parent is None else parent.cmdline()

    def _children(self) -> list[psutil.Process]:
        pid = self.pid
        try:
            return [] if pid is None else psutil.Process(pid).children(recursive=True)
        except psutil.Error:
            return []


class SparkCluster(Startable):
    """Standalone cluster on the loopback interface; it needs pyspark, and Java 17 or newer.

    Args:
        workers: number of workers.
        cores: number of cores of each worker for executors.
        memory: memory of each worker for executors, such as `1g`.
        daemon_memory: Java heap of the master and of each worker's daemon.
        start_timeout: seconds within which the workers must be registered.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 2,
        memory: str = "1g",
        daemon_memory: str = "256m",
        start_timeout: float = START_SECONDS,
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
        """Directory with a subdirectory of each part; None if it is not running."""
        return self._home.path if self._home is not None else None

    def _is_started(self) -> bool:
        return self._home is not None

    def restart(self, worker: SparkWorker) -> None:
        """Start a killed worker again, and return when it is registered.

        Raises:
            BrokerStartError: it takes too long; the error has the last lines of its log.
        """
        worker.launch()
        self._wait(worker.is_registered, worker.log_text)

    def stop(self) -> None:
        """Stop everything, and remove its files; do nothing if it is not running."""
        for worker in self.workers:
            worker.kill()
        if self._master is not None:
            self._master.kill()
        if self._home is not None:
            self._home.remove()
        self._home = self._master = None
        self.workers = ()

    def _start(self) -> None:
        spec = find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise BrokerStartError("pyspark is missing: pip install 'pulsar-ext[spark]'")
        spark = Path(spec.origin).parent
        self._home = ScratchDirectory("pulsar-ext-spark-")
        home = self._home.path
        environment = self._environment(spark, home)
        command = [str(spark / "bin" / "spark-class")]
        directory = _new_directory(home / "master")
        self._master = GuardedProgram(directory, "master")
        any_port = ["--port", "0", "--webui-port", "0"]
        self._master.start([*command, _MASTER, "--host", _HOST, *any_port], environment)
        log_text = self._master.log_text
        self._wait(lambda: _MASTER_URL.search(log_text()), log_text)
        self.master_url = _MASTER_URL.findall(log_text())[-1]
        for number in range(self._count):
            directory = _new_directory(home / f"worker-{number}")
            host = _WORKER_HOST.format(number + 1)
            arguments = ["--host", host, *any_port, *self._offer, "--work-dir", str(directory), self.master_url]
            worker = SparkWorker(directory, [*command, _WORKER, *arguments], environment)
            self.workers += (worker,)
            worker.launch()
        for worker in self.workers:
            self._wait(worker.is_registered, worker.log_text)

    def _environment(self, spark: Path, home: Path) -> dict[str, str]:
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
