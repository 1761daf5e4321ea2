"""Steps in a process of their own, with a time limit: a hang or a crash is reported and stops nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ._place import Place

__all__ = ["Apart", "Outcome"]

_LOG_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a process ended: `ended` as in `Counts`, and what its function returned, None if it did not come that far."""

    ended: str
    value: Any = None


class Apart:
    """A running process that calls one function with one of the two clients; leaving the context ends it.

    Args:
        function: a function of a module, called with the client's module, an `Env` and the arguments.
        client: the client's module, by name.
        place: where the broker is.
        arguments: more arguments, as JSON has them.
        seconds: after which the process counts as hung and is killed.
        leader: whether it leads a process group, which then ends with it: for the outermost process.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        client: str,
        place: Place,
        *arguments: Any,
        seconds: float,
        leader: bool = False,
    ) -> None:
        self._deadline = time.monotonic() + seconds
        self._leader = leader
        self._directory = tempfile.TemporaryDirectory(prefix="pulsar-ext-")
        self._result = Path(self._directory.name, "result.json")
        self._log = Path(self._directory.name, "log")
        order = {
            "module": function.__module__,
            "function": function.__name__,
            "client": client,
            "place": asdict(place),
            "arguments": arguments,
            "result": str(self._result),
            # The last resort, should this process be gone by then.
            "alarm": int(seconds) + 5,
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pulsar_ext.reproduce._child"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=leader,
            )
        assert self._process.stdin is not None  # noqa: S101  # it is a pipe
        # A child that is dead already is recognised by its exit code.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(json.dumps(order).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self._kill()
        self._directory.cleanup()

    def outcome(self) -> Outcome:
        """Wait for the end of the process, at most until its time is over."""
        try:
            code = self._process.wait(max(self._deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self._kill()
            return Outcome("hung", self._read().get("value"))
        if self._leader:
            self._kill()  # a process that it forked may have stayed
        answer = self._read()
        if code < 0:
            return Outcome(f"crashed ({signal.Signals(-code).name})", answer.get("value"))
        if "error" in answer:
            return Outcome(f"error: {answer['error']}")
        if code != 0 or not answer:
            return Outcome(f"error: exit status {code}: {self._last_words()}")
        return Outcome("", answer["value"])

    def _read(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(self._result.read_text())
        except FileNotFoundError:
            return {}
        return answer

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][-_LOG_CHARACTERS:] if lines else "it said nothing"

    def _kill(self) -> None:
        if self._leader:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
