"""The threads that call back what waits for a time."""

from __future__ import annotations

import gc
import logging
import math
import os
import queue
import threading
import time
import weakref
from types import SimpleNamespace

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.scheduler import ClientScheduler, OutcomeScheduler, Scheduler, batch_scheduler

SECONDS = 30


class Watched:
    """Answers each tick with the next of some waits, None behind the last; one that is an exception is raised."""

    def __init__(self, *waits):
        self.waits, self.ticks, self.closed = list(waits), [], 0
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
        self.closed += 1


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


def test_times_that_do_not_count_any_more_are_not_kept(scheduler):
    """However often something is asked for sooner than it was, the queue stays as long as what is due is many."""
    many = [Watched() for _ in range(50)]
    for after in range(4000, 3600, -1):
        for one in many:
            scheduler.watch(one, after)
        scheduler.run(lambda: None)
    last = threading.Event()
    scheduler.run(last.set)
    assert last.wait(SECONDS)
    with scheduler._changed:
        scheduler._soonest(0.0)
        assert len(scheduler._queue) <= 2 * len(many) + 100
        assert not any(one.ticks for one in many)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=60))
def test_each_is_due_at_the_earliest_time_that_was_asked_for(asked):
    """Whatever is asked for in whatever order: the model is a dictionary of times."""
    scheduler = Scheduler("test-scheduler", logging.getLogger("test"), "It went wrong", lasting=True)
    scheduler._thread = threading.current_thread()  # so that none begins
    watched, model = [Watched() for _ in range(6)], {}
    with scheduler._changed:
        for which, seconds in asked:
            scheduler.watch(watched[which], 1000 * seconds)
            model[which] = min(seconds, model.get(which, 99))
        left = sorted(model.values())
        now = time.monotonic()
        while left:
            assert scheduler._soonest(math.inf) - now == pytest.approx(1000 * left[0], abs=100)
            weak = scheduler._queue[0][2]
            assert model[watched.index(weak())] == left.pop(0)
            del scheduler._due[weak]
        assert scheduler._soonest(math.inf) == math.inf


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
    """Also what is not due for long, and what is kept though it is not watched; each once."""
    scheduler = ClientScheduler("test-scheduler", logging.getLogger("test"), "It went wrong")
    one, late, kept = Watched(None), Watched(), Watched()
    scheduler.watch(one)
    assert one.done.wait(SECONDS)
    scheduler.watch(late, 3600)
    scheduler.keep(late)
    scheduler.keep(kept)
    scheduler.close()
    assert (one.closed, late.closed, kept.closed) == (0, 1, 1)
    another = Watched()
    scheduler.watch(another)
    assert not another.done.wait(0.05)


def test_a_client_has_a_thread_for_what_may_take_long_and_both_end_with_it():
    """It begins when something is asked for, holds up no acknowledgement, and is closed and refused like the other."""
    nothing = dict.fromkeys(("admin", "make_admin", "owns_admin", "open_reader", "schema_info"))
    context = ClientContext(SimpleNamespace(_received_by_=list), operation_timeout_seconds=1, **nothing)
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
    slow.done.clear()
    context.inquiries.watch(slow, 3600)
    context.scheduler.keep(quick)
    context.close_schedulers()
    assert slow.closed
    assert quick.closed
    context._after_fork_(refusal := object())
    assert context.scheduler is context.inquiries is refusal


def test_outcomes_are_reported_where_no_thread_begins_any_more(monkeypatch):
    """The thread that is there for batches runs each job, once, also if another thread could begin later."""
    scheduler = OutcomeScheduler("test-scheduler", logging.getLogger("test"), "It went wrong")
    ran = queue.Queue()
    batch_scheduler.run(lambda: ran.put("batches"))
    assert ran.get(timeout=SECONDS) == "batches"
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse_to_start)
        scheduler.run(lambda: ran.put("an outcome"))
        assert ran.get(timeout=SECONDS) == "an outcome"
    scheduler.run(lambda: ran.put("another one"))
    assert ran.get(timeout=SECONDS) == "another one"
    scheduler.close()


def refuse_to_start(_thread):
    """Say what a thread says whose interpreter is ending."""
    raise RuntimeError("can't create new thread at interpreter shutdown")


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
