"""Interruption of this process, as by Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading


@contextlib.contextmanager
def interruptions():
    """Send this process SIGINT every 10 ms, 2,000 times; it is ignored while the yielded list is empty."""
    waiting, finished = [], threading.Event()

    def interrupt():
        for _ in range(2_000):  # no more: on a busy machine nothing else would be done
            if finished.wait(0.01):
                return
            os.kill(os.getpid(), signal.SIGINT)

    def on_signal(*_):
        if waiting:
            raise KeyboardInterrupt

    # A Ctrl-C inside a callback of the interpreter is only reported, and one more would interrupt pytest's report.
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    previous = signal.signal(signal.SIGINT, on_signal)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield waiting
    finally:
        finished.set()
        thread.join()
        signal.signal(signal.SIGINT, previous)
        sys.unraisablehook = hook
