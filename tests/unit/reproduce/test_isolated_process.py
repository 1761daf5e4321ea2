"""Isolated processes, and the outcome of each way to end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from pulsar_ext.reproduce import Place
from pulsar_ext.reproduce._support import IsolatedProcess, Outcome

_NOWHERE = Place("pulsar://localhost:1", "http://localhost:1", "public/none")
_PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """Let the other process import this file."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


def return_arguments(pulsar, _env, *arguments):
    return [pulsar.__name__, *arguments]


def fail(_pulsar, _env):
    raise LookupError("two\nlines")


def abort(_pulsar, _env):
    os.abort()


def exit_silently(_pulsar, _env):
    os._exit(3)


def hang(_pulsar, _env, pid_file):
    child = os.fork()
    if child:
        Path(pid_file).write_text(str(child))
    time.sleep(3600)


def fork_and_return(_pulsar, _env):
    child = os.fork()
    if not child:
        time.sleep(3600)
    return child


def _is_gone(pid):
    # A killed process that its parent has not waited for stays as a zombie until init reaps it.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def _outcome(function, *arguments, seconds=_PATIENCE, client="pulsar"):
    with IsolatedProcess(function, client, _NOWHERE, *arguments, seconds=seconds, leader=True) as process:
        return process.outcome()


@pytest.mark.parametrize("client", ["pulsar", "pulsar_ext"])
def test_value_is_returned(client):
    """A function is called with the client's module and its arguments, and its value is returned."""
    assert _outcome(return_arguments, "a", 1, client=client) == Outcome("", [client, "a", 1])


def test_error_is_reported_in_one_line():
    """An exception is reported by its type and text."""
    assert _outcome(fail) == Outcome("error: LookupError: two lines")


def test_crash_is_reported_by_its_signal():
    """A process that a signal ends is a crash, not an error."""
    assert _outcome(abort) == Outcome("crashed (SIGABRT)")


def test_silent_end_is_an_error():
    """A process that ends without an answer is an error."""
    assert _outcome(exit_silently).ended.startswith("error: exit status 3")


def test_hanging_process_ends_with_its_children(tmp_path):
    """A process beyond its time is reported as hung, and it and its forked processes are ended."""
    pid_file = tmp_path / "pid"
    for seconds in (1.5, 5.0, 30.0, _PATIENCE):  # on a busy machine it may end before it forks
        assert _outcome(hang, str(pid_file), seconds=seconds) == Outcome("hung")
        if pid_file.exists():
            break
    deadline = time.monotonic() + _PATIENCE
    while not _is_gone(int(pid_file.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _is_gone(int(pid_file.read_text()))


def test_forked_processes_end_with_a_good_process():
    """A forked child of a process that returned is ended."""
    child = _outcome(fork_and_return).value
    deadline = time.monotonic() + _PATIENCE
    while not _is_gone(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _is_gone(child)


def test_leaving_the_context_ends_the_process(tmp_path):
    """An exception between start and outcome, such as a Ctrl-C, ends the process."""
    process = IsolatedProcess(hang, "pulsar", _NOWHERE, str(tmp_path / "pid"), seconds=60, leader=True)
    with pytest.raises(KeyboardInterrupt), process:
        signal.raise_signal(signal.SIGINT)
    assert _is_gone(process._process.pid)
