"""Exclusive dispatch, with calls of a signal handler simulated by nested calls."""

from __future__ import annotations

import threading

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.produce.dispatch import Exclusive


def test_interrupting_calls_run_after_interrupted_work():
    """Deferred calls run right after the interrupted work, in order."""
    exclusive, done = Exclusive(), []

    def interrupted():
        assert exclusive.exclusively(done.append, 2) is None
        assert exclusive.exclusively(done.append, 3) is None
        done.append(1)
        return "result"

    assert exclusive.exclusively(interrupted) == "result"
    assert done == [1, 2, 3]


def test_deferred_calls_survive_failed_work():
    """Deferred calls run with the next work if a handler raises through the interrupted work."""
    exclusive, done = Exclusive(), []

    def interrupted():
        exclusive.exclusively(done.append, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exclusive.exclusively(interrupted)
    assert done == []
    exclusive.exclusively(lambda: None)
    assert done == [1]


def test_waiting_inside_interrupted_work_raises():
    """`raise_if_inside()` raises only on the thread of the interrupted work."""
    exclusive = Exclusive()

    def interrupted():
        with pytest.raises(InvalidUse, match="flush in a signal handler"):
            exclusive.raise_if_inside("flush")
        thread = threading.Thread(target=exclusive.raise_if_inside, args=("flush",))
        thread.start()
        thread.join()

    exclusive.exclusively(interrupted)
    exclusive.raise_if_inside("flush")


def test_unlocked_lets_other_calls_run():
    """Calls from any thread run while the lock is released."""
    exclusive, done = Exclusive(), []

    def enter():
        exclusive.exclusively(done.append, threading.current_thread().name)

    def call():
        thread = threading.Thread(target=enter, name="other")
        thread.start()
        thread.join(30)
        enter()

    exclusive.exclusively(exclusive.unlocked, call)
    assert done == ["other", threading.current_thread().name]
