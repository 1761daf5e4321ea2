"""Log lines of the C++ client as Python log records, on request: `Client(…, logger=logging.getLogger("pulsar"))`.

The official client calls Python from the C++ thread that logs. That thread may hold a lock for which Python waits, and
then both wait forever. Here the C++ client writes to a pipe as to a file, and a Python thread reads it. The C++ client
keeps the logger of the process's first client permanently, so there is one pipe, and one logger at a time.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
from datetime import datetime
from pathlib import Path

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.locks import Lock

from .condition import Flag

_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) ([A-Z]+) +\[(\d+)\] ([^:|]+):(\d+) \| (.*)", re.DOTALL)
_LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}
_PIPE_BYTES = 1024 * 1024
"""Size of the pipe; a C++ thread blocks only if that many bytes have not been read."""
_SET_SIZE = 1031
"""Linux's `F_SETPIPE_SZ`; on other systems a pipe keeps its size."""
_END = b"\0\n"
_END_SECONDS = 1.0


def log_through(logger: logging.Logger) -> pulsar.FileLogger:
    """Log the C++ client's lines through a logger, instead of the previous one."""
    global _pipe  # noqa: PLW0603  # the C++ client has one logger per process too
    with _lock:
        if _pipe is None:
            _pipe = _Pipe()
        _pipe.logger = logger
    level = logger.getEffectiveLevel()
    steps = ((logging.DEBUG, "Debug"), (logging.INFO, "Info"), (logging.WARNING, "Warn"))
    name = next((name for most, name in steps if level <= most), "Error")
    return pulsar.FileLogger(getattr(pulsar.LoggerLevel, name), _pipe.path)


def record_of(line: str, name: str) -> logging.LogRecord:
    """Return the log record of a line (pure).

    Its time, level and thread are the C++ client's, its module and line number those of the C++ source. A line in
    another format, such as the rest of a multi-line message, becomes an INFO record.
    """
    found = _LINE.fullmatch(line)
    if found is None:
        return logging.LogRecord(name, logging.INFO, "", 0, line, None, None)
    moment, level, thread, source, number, text = found.groups()
    record = logging.LogRecord(name, _LEVELS.get(level, logging.INFO), source, int(number), text, None, None)
    created = datetime.fromisoformat(moment).timestamp()
    record.created, record.msecs = created, round(created % 1 * 1000)
    record.thread, record.threadName = int(thread), "C++"
    return record


class _Pipe:
    """Reads the C++ client's log lines until the process ends."""

    def __init__(self) -> None:
        self.logger = logging.getLogger("pulsar")
        self._open()

    @property
    def path(self) -> str:
        """Path that the C++ client opens as a file."""
        return f"/dev/fd/{self._write}"

    def _open(self) -> None:
        self._read, self._write = os.pipe()
        with contextlib.suppress(ImportError, OSError):
            import fcntl  # noqa: PLC0415  # POSIX only

            fcntl.fcntl(self._write, _SET_SIZE, _PIPE_BYTES)
        self._ended = Flag()
        threads.start(self._run, self._read, self._ended, name="pulsar-ext log")

    def _run(self, read: int, ended: Flag) -> None:
        rest = b""
        while data := os.read(read, _PIPE_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line + b"\n" == _END:
                    ended.set()
                    return
                self._handle(line.decode("utf-8", "replace"))

    def _handle(self, line: str) -> None:
        logger = self.logger
        try:
            record = record_of(line, logger.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        except BaseException:  # from an application's filter: reading must continue
            with contextlib.suppress(BaseException):  # from another filter
                logging.getLogger("pulsar_ext").exception("A filter or handler of %s failed", logger.name)

    def end(self) -> None:
        """Handle the lines written so far; later ones are lost."""
        os.write(self._write, _END)
        self._ended.wait(_END_SECONDS)

    def reopen(self) -> None:
        """Open a new pipe in a forked process, as the read end of the old one belongs to the parent.

        Descriptors that the C++ client has opened are redirected to the new pipe.
        """
        old = os.fstat(self._write)
        written = [fd for fd in (int(path.name) for path in Path("/dev/fd").iterdir()) if _is_written(fd, old)]
        self._open()
        for fd in written:
            os.dup2(self._write, fd)


def _is_written(fd: int, pipe: os.stat_result) -> bool:
    import fcntl  # noqa: PLC0415  # POSIX only, as a fork is

    with contextlib.suppress(OSError):  # the descriptor of the directory listing is closed by now
        return os.path.samestat(os.fstat(fd), pipe) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    return False


_lock = Lock()
_pipe: _Pipe | None = None


def _after_fork() -> None:
    if _pipe is not None:
        _pipe.reopen()


def _end() -> None:
    if _pipe is not None:
        _pipe.end()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_end)
