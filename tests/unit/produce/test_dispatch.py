"""One thread at a time, also where a signal's handler interrupts it: played here by a call from within."""

from __future__ import annotations

import threading

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.produce.dispatch import Exclusive


def test_what_interrupts_waits_for_the_interrupted_work():
    """It is done right behind it, in the order in which it came."""
    exclusive, done = Exclusive(), []

    def interrupted():
        assert exclusive.exclusively(done.append, 2) is None
        assert exclusive.exclusively(done.append, 3) is None
        done.append(1)
        return "result"

    assert exclusive.exclusively(interrupted) == "result"
    assert done == [1, 2, 3]


def test_what_interrupts_work_that_fails_is_done_with_the_next():
    """Nothing is lost when a handler raises through the work."""
    exclusive, done = Exclusive(), []

    def interrupted():
        exclusive.exclusively(done.append, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exclusive.exclusively(interrupted)
    assert done == []
    exclusive.exclusively(lambda: None)
    assert done == [1]


def test_a_wait_is_refused_where_it_would_wait_for_the_interrupted_work():
    """On the thread of that work only."""
    exclusive = Exclusive()

    def interrupted():
        with pytest.raises(InvalidUse, match="flush in a signal's handler"):
            exclusive.refuse_inside("flush")
        thread = threading.Thread(target=exclusive.refuse_inside, args=("flush",))
        thread.start()
        thread.join()

    exclusive.exclusively(interrupted)
    exclusive.refuse_inside("flush")


def test_others_may_enter_while_it_is_unlocked():
    """From any thread, and on this one."""
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
