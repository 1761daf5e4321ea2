"""Calls on a C++ consumer of several topics that would deadlock or crash if they were made like others.

A C++ consumer of several topics or partitions locks its list of them to start a seek of each. With that lock held it
copies the callback, and may call it, which needs the GIL. A thread in `is_connected()` holds the GIL and waits for that
lock: a deadlock. The blocking seek needs no callback, but accepts one result only: if two topics fail, the second one
crashes the process.

To unsubscribe, such a consumer iterates over that list. If the last broker's response arrives before the C++ client
listens for it, the calling thread handles it during that iteration and empties the list, which crashes the process. The
network thread handles no responses while it runs a call. With `io_threads` above 1 there are several network threads,
and another one may handle a broker's response.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from operator import call
from typing import Final, TypeVar

import pulsar

from . import threads
from .answer import Answer
from .messages import InnerClient, InnerConsumer, InnerMessageId, InnerReader
from .results import Result

T = TypeVar("T")
# Brokers create no topic for the name of a partition, and respond even without the permission for it.
_PARTITION: Final = "persistent://public/default/pulsar-ext-asks-partition-0"


class SeekGate:
    """Runs one call at a time on a C++ consumer: a question that holds the GIL, or the start of a seek."""

    def __init__(self, client: InnerClient) -> None:
        self._client = client
        self._lock = threads.Lock()

    def ask(self, question: Callable[[], object]) -> object:
        done: list[object] = []
        try:
            # Only C code between acquire and release: a signal handler may seek, and would wait for its own thread.
            done.extend(map(call, (self._lock.acquire, question, self._lock.release)))
        finally:
            if len(done) == 1:  # the question raised
                self._lock.release()
        return done[1]

    def ask_uninterrupted(self, question: Callable[[], T]) -> T:
        """Call a question on a thread that no signal handler interrupts; this takes a fifth of the time."""
        with self._lock:
            return question()

    def seek_starter(
        self, inner: InnerConsumer | InnerReader, target: InnerMessageId | int
    ) -> Callable[[Answer], None]:
        """Return a function that starts a seek; its first result is a failure of one topic or the success of all.

        The seek starts on its own thread, where no signal handler can interrupt the callback.
        """

        def begin(answer: Answer) -> None:
            def run() -> None:
                try:
                    with self._lock:
                        inner.seek_async(target, answer)
                except Exception as error:  # noqa: BLE001  # raised where the result is awaited
                    answer(error)

            try:
                threads.start(run, name="pulsar_ext-seek")
            except RuntimeError:  # the interpreter is shutting down and starts no more threads
                run()

        return begin

    def unsubscribe_starter(self, inner: InnerConsumer) -> Callable[[Answer, list[int]], None]:
        """Return a function that starts to unsubscribe a C++ consumer; its last argument gets an item at the start."""
        return partial(_call_on_network_thread, self._client, inner.unsubscribe_async)


def _call_on_network_thread(
    client: InnerClient, begin: Callable[[Answer], object], answer: Answer, begun: list[int]
) -> None:
    """Start a call on the network thread, in the callback of a broker's response to a partition lookup.

    The lookup runs on its own thread, where no signal handler can interrupt a callback.
    """

    def run() -> None:
        asking, overtook = threading.get_ident(), True

        def on_outcome(result: Result, _: object) -> None:
            nonlocal overtook
            if threading.get_ident() == asking and result == pulsar.Result.Ok:
                overtook = True
                return
            try:
                begin(answer)
            except Exception as error:  # noqa: BLE001  # raised where the result is awaited
                answer(error)

        try:
            while overtook:
                overtook = False
                client.get_topic_partitions_async(_PARTITION, on_outcome)
        except Exception as error:  # noqa: BLE001  # raised where the result is awaited
            answer(error)

    try:
        # Not `Thread.start()`: a Ctrl-C during it may leave a lock held that the new thread needs before it runs.
        begun.extend(map(threads.start_in_c, (run,), ((),)))
    except RuntimeError:  # the interpreter is shutting down and starts no more threads
        begun.append(0)
        run()
