"""Conditions and flags whose waits a signal's handler ends at any point, by raising."""

from __future__ import annotations

import threading

import pytest

from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._runtime.condition import Condition, Flag, refuse_interrupting
from pulsar_ext.errors import InvalidUse


@pytest.fixture(scope="module")
def points(fault_module):
    """The module that has a signal arrive at one point of a call."""
    return fault_module("interrupt_points")


def is_free(lock):
    """Whether another thread can take a lock."""
    took = []
    thread = threading.Thread(target=lambda: took.append(lock.acquire(timeout=5) and (lock.release() or True)))
    thread.start()
    thread.join()
    return took == [True]


@pytest.mark.usefixtures("_ctrl_c_raises")
@pytest.mark.parametrize("how", ["hold", "wait", "notify"])
def test_a_ctrl_c_leaves_no_lock_held_and_no_waiter_behind(points, how):
    """Interrupted at each point: the lock can be taken by another thread, and who waits next is woken."""
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
def test_a_flag_can_be_set_whatever_interrupted_its_wait(points):
    """Interrupted at each point: another thread sets it, and a wait that begins then returns."""
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


def test_a_flag_may_be_set_again_while_its_wait_ends():
    """Set a second time between the end of a wait and its leaving the flag set: this wait returns, and the next one."""
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


def test_a_handler_is_refused_what_would_meet_its_own_thread():
    """It is refused on the thread that holds the lock, and only there: a handler runs on the thread it interrupts."""
    condition = Condition()
    refuse_interrupting("A close", condition.lock)
    with condition:
        with pytest.raises(InvalidUse, match="A close in a signal's handler"):
            refuse_interrupting("A close", OwnedLock(), condition.lock)
        found = []
        thread = threading.Thread(target=lambda: found.append(condition.lock.is_held))
        thread.start()
        thread.join()
        assert found == [False]
