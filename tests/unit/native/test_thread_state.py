"""Thread states of the C++ client's threads, kept on each Python where that is shown to be right: no broker is needed.

A client whose address refuses every connection calls back on its own thread that it gives up.
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


def give_up(*callbacks):
    """Have a new client call functions on its thread, one after the other."""
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


def found_by_calls(keep):
    """What each call on the thread of one client finds that the call before left in a `threading.local`."""
    own, found = threading.local(), []

    def callback():
        keep()
        found.append((threading.get_ident(), getattr(own, "before", None)))
        own.before = len(found)

    give_up(*[callback] * CALLS)
    assert len({thread for thread, _ in found}) == 1
    assert found[0][0] != threading.get_ident()
    return [before for _, before in found]


@pytest.fixture
def places(monkeypatch):
    """Leave three places: the tests before may have taken all that a process has."""
    places = iter(range(3))
    monkeypatch.setattr(thread_state, "_places", places)
    return places


def test_a_kept_thread_state_is_that_of_each_later_call(places):
    """What is local to the thread is there in its next call, and a thread takes one place, however often it asks."""
    assert found_by_calls(keep_thread_state) == [None, 1, 2]
    assert list(places) == [1, 2]


def test_each_thread_has_its_own(places):
    """What was left of a thread that has ended is never found by another one."""
    assert [found_by_calls(keep_thread_state) for _ in range(2)] == [[None, 1, 2]] * 2
    assert list(places) == [2]


def test_none_is_kept_without_being_asked_or_without_a_place(places):
    """Each call has a thread state of its own then, as officially."""
    assert found_by_calls(int) == [None] * CALLS
    assert list(places) == [0, 1, 2]
    assert found_by_calls(keep_thread_state) == [None] * CALLS


def test_a_thread_of_pythons_own_takes_no_place(places):
    """Where the main thread, or one that Python started, asks, nothing is kept."""
    keep_thread_state()
    thread = threading.Thread(target=keep_thread_state)
    thread.start()
    thread.join()
    assert list(places) == [0, 1, 2]


def test_the_interpreter_ends_with_thread_states_that_were_kept():
    """A process ends by itself with status 0, though states of threads that are gone were left."""
    command = [sys.executable, __file__]
    ended = subprocess.run(command, check=False, timeout=HANG_SECONDS, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "kept 2\n", "")


if __name__ == "__main__":
    for _ in range(2):
        give_up(keep_thread_state, keep_thread_state)
    print("kept", thread_state._MOST - len(list(thread_state._places)))
