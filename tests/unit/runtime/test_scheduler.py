"""The threads that call scheduled objects."""

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
    """Returns the next of its waits at each tick, and None after the last; an exception among them is raised."""

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
    """Return a scheduler of this test."""
    return Scheduler("test-scheduler", logging.getLogger("test"), "It went wrong", lasting=True)


def test_scheduled_object_is_called_until_it_returns_none(scheduler):
    """A scheduled object is called at once, and then after the seconds that it returns."""
    one = Watched(0.01, 0.05)
    scheduler.watch(one)
    assert one.done.wait(SECONDS)
    assert len(one.ticks) == 3
    assert one.ticks[1] - one.ticks[0] >= 0.01
    assert one.ticks[2] - one.ticks[1] >= 0.05


def test_earlier_due_time_wins(scheduler):
    """The earliest requested time counts, in any order of the requests."""
    one = Watched()
    scheduler.watch(one, 3600)
    scheduler.watch(one, 0.01)
    scheduler.watch(one, 3600)
    assert one.done.wait(SECONDS)


def test_outdated_due_times_are_dropped(scheduler):
    """The queue stays small however often objects are scheduled again."""
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
def test_objects_are_due_at_their_earliest_time(requests):
    """Each object is due at the earliest requested time; the model is a dictionary of times."""
    scheduler = Scheduler("test-scheduler", logging.getLogger("test"), "It went wrong", lasting=True)
    scheduler._thread = threading.current_thread()  # so that no thread starts
    watched, model = [Watched() for _ in range(6)], {}
    with scheduler._changed:
        for which, seconds in requests:
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


def test_failed_job_does_not_end_the_thread(scheduler, caplog):
    """A job's exception is logged, and the next job runs."""
    names, done = [], threading.Event()
    scheduler.run(lambda: 1 / 0)
    scheduler.run(lambda: (names.append(threading.current_thread().name), done.set()))
    assert done.wait(SECONDS)
    assert names == ["test-scheduler"]
    assert "It went wrong" in caplog.text


def test_failed_tick_is_retried_unless_closed(scheduler, caplog, monkeypatch):
    """A failed tick is logged and retried; AlreadyClosed ends the ticks without a log line."""
    monkeypatch.setattr("pulsar_ext._runtime.scheduler._RETRY_SECONDS", 0.01)
    closed, wrong = Watched(pulsar.AlreadyClosed("it is"), 0.01), Watched(ValueError("no"))
    scheduler.watch(closed)
    scheduler.watch(wrong)
    assert wrong.done.wait(SECONDS)
    assert len(wrong.ticks) == 2
    assert len(closed.ticks) == 1
    assert caplog.text.count("It went wrong") == 1


def test_scheduled_objects_are_kept_weakly(scheduler):
    """The scheduler does not keep an object alive, neither before nor after a tick."""
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


def test_signal_handler_may_call_the_scheduler(scheduler):
    """The scheduler's lock is re-entrant, so a signal handler may use an interrupted scheduler."""
    one, ran = Watched(), threading.Event()
    with scheduler._changed:
        scheduler.watch(one)
        scheduler.run(ran.set)
    assert one.done.wait(SECONDS)
    assert ran.wait(SECONDS)


def test_closing_client_closes_scheduled_objects():
    """A closing client closes scheduled and kept objects once each, and schedules nothing any more."""
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


def test_client_has_a_thread_for_slow_requests():
    """The thread for slow requests starts on demand, delays no acknowledgement, and ends with the client."""
    nothing = dict.fromkeys(("admin", "make_admin", "owns_admin", "open_reader", "schema_info"))
    context = ClientContext(SimpleNamespace(_open_receivers_=list), operation_timeout_seconds=1, **nothing)
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
    context._after_fork_(raising := object())
    assert context.scheduler is context.inquiries is raising


def test_outcomes_are_reported_at_interpreter_shutdown(monkeypatch):
    """Without new threads, the batch thread runs each outcome's job once, also when threads can start later."""
    scheduler = OutcomeScheduler("test-scheduler", logging.getLogger("test"), "It went wrong")
    ran = queue.Queue()
    batch_scheduler.run(lambda: ran.put("batches"))
    assert ran.get(timeout=SECONDS) == "batches"
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail_to_start)
        scheduler.run(lambda: ran.put("an outcome"))
        assert ran.get(timeout=SECONDS) == "an outcome"
    scheduler.run(lambda: ran.put("another one"))
    assert ran.get(timeout=SECONDS) == "another one"
    scheduler.close()


def fail_to_start(_thread):
    """Raise as a thread does when its interpreter is shutting down."""
    raise RuntimeError("can't create new thread at interpreter shutdown")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_has_its_own_thread(scheduler):
    """A forked child starts its own thread although the lock was held at the fork."""
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
