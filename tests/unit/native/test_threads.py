"""Locks, queues and threads work beside gevent's and eventlet's greenlets, in patched processes."""

import importlib.util
import subprocess
import sys
import textwrap

import pytest

PATCH = {
    "gevent": "from gevent import monkey, sleep, spawn; monkey.patch_all()",
    "eventlet": "import eventlet; eventlet.monkey_patch(); from eventlet import sleep, spawn",
}


@pytest.fixture(params=PATCH)
def run(request):
    """Return a function that runs a program in a process with patched threads and returns what it printed."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")

    def run(source):
        program = f"{PATCH[request.param]}\nfrom pulsar_ext._native import threads\n{textwrap.dedent(source)}"
        called = [sys.executable, "-W", "ignore", "-c", program]
        return subprocess.run(called, capture_output=True, text=True, timeout=60, check=True).stdout.split()

    return run


def test_thread_wakes_a_greenlet_while_others_run(run):
    """A release on a system thread ends a greenlet's wait, during which another greenlet runs."""
    assert run("""
        from pulsar_ext._runtime.condition import Condition, Flag
        steps, may_set, changed, queue = threads.Queue(), threads.Lock(), Condition(), threads.Queue()
        may_set.acquire()
        def other():
            print("ran")
            may_set.release()
        def notify():
            may_set.acquire()
            flag.set()
            with changed:
                changed.notify()
            queue.put("queued")
        flag = Flag()
        spawn(other)
        with changed:
            threads.start(notify, name="notify")
            flag.wait()
            print("set")
            print(changed.wait(60))
        print(queue.get(timeout=60))
    """) == ["ran", "set", "True", "queued"]


def test_re_entrant_lock_belongs_to_a_greenlet(run):
    """Another greenlet of the thread waits until the lock is released as many times as it was acquired."""
    assert run("""
        lock, free = threads.RLock(), threads.Lock()
        free.acquire()
        def other():
            print(lock.acquire(blocking=False))
            with lock:
                print("acquired")
            free.release()
        with lock, lock:
            spawn(other)
            sleep(0.01)
            print("held")
        free.acquire()
    """) == ["False", "held", "acquired"]


def test_waits_with_a_timeout_end(run):
    """A lock that is never released is not acquired, and an empty queue raises."""
    assert run("""
        import queue
        lock = threads.Lock()
        lock.acquire()
        print(lock.acquire(timeout=0.01))
        try:
            threads.Queue().get(timeout=0.01)
        except queue.Empty:
            print("empty")
    """) == ["False", "empty"]


def test_threads_beside_greenlets_are_reused(run):
    """Fifty calls, one after the other, do not use the descriptors of fifty hubs."""
    before, after = run("""
        import os, time
        from pulsar_ext._runtime.condition import Flag
        def call():
            time.sleep(0)  # the patched one
            done.set()
        for number in range(50):
            done = Flag()
            threads.start(call, name="call")
            done.wait()
            sleep(0.001)
            if number == 9 or number == 49:
                print(len(os.listdir("/proc/self/fd")))
    """)
    assert int(after) < int(before) + 10
