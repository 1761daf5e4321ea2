"""The threads that call back what waits for a time."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
import weakref

import pulsar
import pytest

from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.scheduler import ClientScheduler, Scheduler

SECONDS = 30


class Watched:
    """Answers each tick with the next of some waits, None behind the last; one that is an exception is raised."""

    def __init__(self, *waits):
        self.waits, self.ticks, self.closed = list(waits), [], False
        self.done = threading.Event()

    def tick(self, now):
        self.ticks.append(now)
        wait = self.waits.pop(0) if self.waits else None
        if isinstance(wait, BaseException):
            raise wait
        if wait is None:
            self.done.set()
        return wait

    def close(self):
        self.closed = True


@pytest.fixture
def scheduler():
    """One of its own."""
    return Scheduler("test-scheduler", logging.getLogger("test"), "It went wrong", lasting=True)


def test_what_is_watched_is_called_until_it_says_never(scheduler):
    """At once, and then after as many seconds as it answers."""
    one = Watched(0.01, 0.05)
    scheduler.watch(one)
    assert one.done.wait(SECONDS)
    assert len(one.ticks) == 3
    assert one.ticks[1] - one.ticks[0] >= 0.01
    assert one.ticks[2] - one.ticks[1] >= 0.05


def test_an_earlier_time_counts_and_a_later_one_does_not(scheduler):
    """Whatever was asked for before."""
    one = Watched()
    scheduler.watch(one, 3600)
    scheduler.watch(one, 0.01)
    scheduler.watch(one, 3600)
    assert one.done.wait(SECONDS)


def test_jobs_run_on_the_thread_and_an_error_ends_nothing(scheduler, caplog):
    """What a job raises is logged, and the next one runs."""
    names, done = [], threading.Event()
    scheduler.run(lambda: 1 / 0)
    scheduler.run(lambda: (names.append(threading.current_thread().name), done.set()))
    assert done.wait(SECONDS)
    assert names == ["test-scheduler"]
    assert "It went wrong" in caplog.text


def test_a_tick_that_raises_is_tried_again_and_one_that_is_closed_is_not(scheduler, caplog, monkeypatch):
    """An error is logged; AlreadyClosed ends it without a word."""
    monkeypatch.setattr("pulsar_ext._runtime.scheduler._RETRY_SECONDS", 0.01)
    closed, wrong = Watched(pulsar.AlreadyClosed("it is"), 0.01), Watched(ValueError("no"))
    scheduler.watch(closed)
    scheduler.watch(wrong)
    assert wrong.done.wait(SECONDS)
    assert len(wrong.ticks) == 2
    assert len(closed.ticks) == 1
    assert caplog.text.count("It went wrong") == 1


def test_nothing_that_is_watched_is_kept_alive(scheduler):
    """Neither before nor after a tick."""
    late, soon = Watched(), Watched(3600)
    scheduler.watch(late, 3600)
    scheduler.watch(soon)
    deadline = time.monotonic() + SECONDS
    while not soon.ticks and time.monotonic() < deadline:
        time.sleep(0.001)
    kept = [weakref.ref(late), weakref.ref(soon)]
    del late, soon
    while any(ref() is not None for ref in kept) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    assert [ref() for ref in kept] == [None, None]


def test_a_signal_handler_may_watch_and_run_inside_either(scheduler):
    """The lock is one that the thread which holds it may take again."""
    one, ran = Watched(), threading.Event()
    with scheduler._changed:
        scheduler.watch(one)
        scheduler.run(ran.set)
    assert one.done.wait(SECONDS)
    assert ran.wait(SECONDS)


def test_a_client_that_closes_closes_what_was_watched_and_watches_no_more():
    """Also what was not due for long."""
    scheduler = ClientScheduler("test-scheduler", logging.getLogger("test"), "It went wrong")
    one, late = Watched(None), Watched()
    scheduler.watch(one)
    assert one.done.wait(SECONDS)
    scheduler.watch(late, 3600)
    scheduler.close()
    assert one.closed
    assert late.closed
    another = Watched()
    scheduler.watch(another)
    assert not another.done.wait(0.05)


def test_a_client_has_a_thread_for_what_may_take_long_and_both_end_with_it():
    """It begins when something is asked for, holds up no acknowledgement, and is closed and refused like the other."""
    context = ClientContext(
        None, admin=None, make_admin=None, owns_admin=False, open_reader=None, operation_timeout_seconds=1
    )
    slow, quick, answer = Watched(), Watched(), threading.Event()
    before = set(threading.enumerate())
    context.inquiries.run(lambda: answer.wait(SECONDS))
    assert [one.name for one in set(threading.enumerate()) - before] == ["pulsar-ext-inquiries"]
    context.inquiries.watch(slow)
    context.scheduler.watch(quick)
    assert quick.done.wait(SECONDS)
    assert not slow.ticks
    answer.set()
    assert slow.done.wait(SECONDS)
    context.close_schedulers()
    assert slow.closed
    assert quick.closed
    context.after_fork(refusal := object())
    assert context.scheduler is context.inquiries is refusal


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_thread_of_its_own(scheduler):
    """Although the lock was held at the fork."""
    scheduler.watch(Watched(0.001, 0.001, 3600))
    held, go = threading.Event(), threading.Event()

    def hold():
        with scheduler._changed:
            held.set()
            go.wait(SECONDS)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(SECONDS)
    child = os.fork()
    if not child:
        one = Watched()
        scheduler.watch(one)
        os._exit(0 if one.done.wait(10) else 1)
    go.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
