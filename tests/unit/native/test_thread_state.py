"""Thread states of the C++ client's threads are kept correctly on each Python version; no broker is needed.

A client whose address accepts no connections calls its callbacks on its own thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import _pulsar
import pytest

from pulsar_ext._native import thread_state
from pulsar_ext._native.thread_state import keep_thread_state

HANG_SECONDS = 60
CALLS = 3


def run_on_client_thread(*callbacks):
    """Make a new client call functions on its thread, in order."""
    configuration, called = _pulsar.ClientConfiguration(), threading.Semaphore(0)
    configuration.operation_timeout_seconds(1)
    configuration.set_file_logger(_pulsar.LoggerLevel.Error, os.devnull)
    client = _pulsar.Client("pulsar://localhost:1", configuration)
    for callback in callbacks:

        def answer(*_, callback=callback):
            try:
                callback()
            finally:
                called.release()

        client.create_producer_async("t", _pulsar.ProducerConfiguration(), answer)
    for _ in callbacks:
        assert called.acquire(timeout=HANG_SECONDS)
    client.close()


def local_data_of_calls(keep):
    """Return the value that each call on a client's thread finds in a `threading.local`, set by the call before."""
    own, found = threading.local(), []

    def callback():
        keep()
        found.append((threading.get_ident(), getattr(own, "before", None)))
        own.before = len(found)

    run_on_client_thread(*[callback] * CALLS)
    assert len({thread for thread, _ in found}) == 1
    assert found[0][0] != threading.get_ident()
    return [before for _, before in found]


@pytest.fixture
def free_slots(monkeypatch):
    """Leave three slots: earlier tests may have used all slots of the process."""
    free_slots = iter(range(3))
    monkeypatch.setattr(thread_state, "_slots", free_slots)
    return free_slots


def test_each_thread_has_its_own_state(free_slots):
    """A thread's calls share local data, which no other thread finds, and one slot, whatever their number."""
    assert [local_data_of_calls(keep_thread_state) for _ in range(2)] == [[None, 1, 2]] * 2
    assert list(free_slots) == [2]


def test_no_thread_state_is_kept_without_a_free_slot(free_slots):
    """Each call has a new thread state if none is requested or no slot is free, as officially."""
    assert local_data_of_calls(int) == [None] * CALLS
    assert list(free_slots) == [0, 1, 2]
    assert local_data_of_calls(keep_thread_state) == [None] * CALLS


def test_python_threads_use_no_slot(free_slots):
    """Nothing is kept on the main thread or another Python thread."""
    keep_thread_state()
    thread = threading.Thread(target=keep_thread_state)
    thread.start()
    thread.join()
    assert list(free_slots) == [0, 1, 2]


def test_interpreter_exits_with_kept_thread_states():
    """A process exits with status 0 although thread states of ended threads remain."""
    command = [sys.executable, __file__]
    ended = subprocess.run(command, check=False, timeout=HANG_SECONDS, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "kept 2\n", "")


if __name__ == "__main__":
    for _ in range(2):
        run_on_client_thread(keep_thread_state, keep_thread_state)
    print("kept", thread_state._MAX_KEPT - len(list(thread_state._slots)))
