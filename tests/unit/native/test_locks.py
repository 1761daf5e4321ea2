"""Locks are free after a signal handler raises anywhere in the `with` block that acquires them."""

from __future__ import annotations

import threading

import pytest

from pulsar_ext._native.locks import Lock, OwnedLock


@pytest.fixture(scope="module")
def points(fault_module):
    """Return the module that raises a signal at one point of a call."""
    return fault_module("interrupt_points")


def is_free(lock):
    """Return whether another thread can acquire a lock."""
    took = []

    def take():
        with lock:
            took.append(True)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(5)
    return bool(took)


@pytest.mark.usefixtures("_ctrl_c_raises")
@pytest.mark.parametrize("kind", [Lock, OwnedLock])
def test_ctrl_c_leaves_no_lock_held(points, kind):
    """After a Ctrl-C at any point of a block with a loop, another thread can acquire the lock."""
    lock = kind()

    def hold():
        with lock:
            for number in range(3):
                str(number)

    places, _ = points.points_of(hold)
    assert places
    interrupted = 0
    for place in places:
        lock = kind()
        one = points.Interruption(place)
        one.make(hold)
        assert one.arrived
        interrupted += isinstance(one.error, KeyboardInterrupt)
        assert is_free(lock), one.place
    assert interrupted


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_ctrl_c_leaves_a_held_lock_held_once(points):
    """After a Ctrl-C during a second acquisition, a lock is held exactly once."""
    lock = OwnedLock()

    def hold_again():
        with lock:
            pass

    places, _ = points.points_of(hold_again)
    for place in places:
        with lock:
            points.Interruption(place).make(hold_again)
            assert lock.is_held
        assert is_free(lock), place
