"""Conditions and flags whose waits a signal handler ends at any point, by raising."""

from __future__ import annotations

import threading

import pytest

from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._runtime.condition import Condition, Flag, raise_if_interrupting
from pulsar_ext.errors import InvalidUse


@pytest.fixture(scope="module")
def points(fault_module):
    """Return the module that interrupts a call at one point."""
    return fault_module("interrupt_points")


def is_free(lock):
    """Return whether another thread can acquire a lock."""
    took = []
    thread = threading.Thread(target=lambda: took.append(lock.acquire(timeout=5) and (lock.release() or True)))
    thread.start()
    thread.join()
    return took == [True]


@pytest.mark.usefixtures("_ctrl_c_raises")
@pytest.mark.parametrize("how", ["hold", "wait", "notify"])
def test_ctrl_c_leaves_no_lock_held_and_no_waiter(points, how):
    """After an interruption at any point, another thread can acquire the lock, and no waiter remains."""
    condition = Condition()

    def use():
        with condition:
            if how == "wait":
                condition.wait(0.001)
            elif how == "notify":
                condition.notify_all()

    places, _ = points.points_of(use)
    assert places
    for place in places:
        condition = Condition()
        one = points.Interruption(place)
        one.make(use)
        assert one.arrived
        assert one.error is None or isinstance(one.error, KeyboardInterrupt)
        assert is_free(condition), one.place
        assert not condition._waiters, one.place


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_flag_can_be_set_after_an_interrupted_wait(points):
    """After an interruption at any point, another thread can set the flag, and a new wait returns."""
    flag = Flag()

    def wait():
        flag.wait(0.001)

    places, _ = points.points_of(wait)
    assert places
    for place in places:
        flag = Flag()
        points.Interruption(place).make(wait)
        thread = threading.Thread(target=flag.set)
        thread.start()
        thread.join(5)
        assert not thread.is_alive()
        assert flag.wait(5)
        flag.set()
        assert flag.wait(0)


def test_flag_may_be_set_again_while_its_wait_ends():
    """A second `set()` while a wait ends leaves the flag set: this wait and the next one return."""
    flag = Flag()
    unset = flag._unset

    class SetAgain:
        release = staticmethod(unset.release)

        @staticmethod
        def acquire(timeout):
            came = unset.acquire(timeout=timeout)
            flag.set()
            return came

    flag._unset = SetAgain()
    flag.set()
    assert flag.wait(5)
    assert flag.wait(5)


def test_handler_interrupting_its_own_thread_raises():
    """The check raises on the thread that holds the lock only: a handler runs on the thread it interrupts."""
    condition = Condition()
    raise_if_interrupting("A close", condition.lock)
    with condition:
        with pytest.raises(InvalidUse, match="A close in a signal handler"):
            raise_if_interrupting("A close", OwnedLock(), condition.lock)
        found = []
        thread = threading.Thread(target=lambda: found.append(condition.lock.is_held))
        thread.start()
        thread.join()
        assert found == [False]
