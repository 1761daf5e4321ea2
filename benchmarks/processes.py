"""Cost of Spark and its workers: the processor time and the memory of their processes."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Cost", "Watch", "own", "processes", "spark_processes"]


@dataclass(frozen=True)
class Cost:
    """Seconds of a run: by the clock, and processor time of its Python workers and of Spark's Java side."""

    clock: float
    python: float
    java: float = 0.0


def own(work: Callable[[], None]) -> Cost:
    """Run a function in this process, and return its cost."""
    began, spent = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - began, time.process_time() - spent)


def processes() -> dict[tuple[int, str], float]:
    """Return the processor time of Spark's processes so far."""
    found = {}
    for child in spark_processes():
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            found[child.pid, "java" if child.name() == "java" else "python"] = times.user + times.system
    return found


def spark_processes() -> Iterator[psutil.Process]:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "spark" in " ".join(child.cmdline()).replace("benchmarks.spark", ""):
                yield child


class Watch:
    """Monitor of the Python workers' memory while a block runs."""

    def __init__(self) -> None:
        self.most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def mib(self) -> str:
        """Peak memory of one worker."""
        return f"{self.most / (1 << 20):,.0f} MiB"

    def _poll(self) -> None:
        while not self._ended.wait(0.1):
            for child in spark_processes():
                with contextlib.suppress(psutil.Error):
                    if child.name() != "java":
                        self.most = max(self.most, child.memory_info().rss)
