"""Locks that a signal's handler leaves free, wherever it raises in the `with` block that takes them."""

from __future__ import annotations

import threading

import pytest

from pulsar_ext._native.locks import Lock, OwnedLock


@pytest.fixture(scope="module")
def points(fault_module):
    """The module that has a signal arrive at one point of a call."""
    return fault_module("interrupt_points")


def is_free(lock):
    """Whether another thread can take a lock."""
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
def test_a_ctrl_c_leaves_no_lock_held(points, kind):
    """Interrupted at each point of a block, with a loop in it, another thread can take the lock behind it."""
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
def test_a_ctrl_c_leaves_a_lock_that_was_held_before_held_once(points):
    """Interrupted at each point where it is taken again, it is let go as often as it was taken."""
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
