"""A program as a child process: logged to a file, and under a guard.

The guard ends it when the process that started it is gone, however that ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from . import guard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["GuardedProgram"]

_HALT_SECONDS: Final = 20.0
_KILL_SECONDS: Final = 10.0


class GuardedProgram:
    """One program, started and ended any number of times; all its runs log to one file.

    Args:
        directory: where it runs; must exist.
        name: names its log there, `name.log`.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_at = 0

    @property
    def pid(self) -> int | None:
        """The id of the process group that it runs in, None when it does not run."""
        return self._process.pid if self._process is not None and self.is_running() else None

    def is_running(self) -> bool:
        """Return whether the process is alive now."""
        return self._process is not None and self._process.poll() is None

    def log_offset(self) -> int:
        """Return the size of the log in bytes."""
        return self._log.stat().st_size if self._log.is_file() else 0

    def log_text(self, since: int = 0) -> str:
        """Return the log from that byte on, all of it by default."""
        if not self._log.is_file():
            return ""
        with self._log.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def has_said(self, text: str) -> bool:
        """Return whether it has logged that text since it was started the last time."""
        return text in self.log_text(self._begun_at)

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it, and return without waiting for what it does.

        Args:
            command: the program and its arguments.
            environment: its whole environment; by default this process's.
        """
        guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command]
        self._begun_at = self.log_offset()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                guarded,
                cwd=self._directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def finish(self, seconds: float) -> int | None:
        """Wait for its end; return its exit status, or None if it still runs after so many seconds."""
        if self._process is None:
            return None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def halt(self) -> None:
        """End it in good order, and by SIGKILL if that takes too long; do nothing when it does not run."""
        if self._process is not None and self.is_running():
            self._process.terminate()
            self.finish(_HALT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it by SIGKILL; do nothing when it does not run."""
        if self._process is None:
            return
        if self.is_running():
            self._process.send_signal(signal.SIGUSR1)
            if self.finish(_KILL_SECONDS) is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._process = None
