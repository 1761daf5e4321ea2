"""Serialization of seeks and of calls that hold the GIL, which would deadlock otherwise.

A C++ consumer of several topics or partitions locks its list of them to start a seek of each. With that lock held it
copies the callback, and may call it, which needs the GIL. A thread in `is_connected()` holds the GIL and waits for that
lock: a deadlock. The blocking seek needs no callback, but accepts one result only: if two topics fail, the second one
crashes the process.
"""

from __future__ import annotations

from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any

from . import threads
from .network_thread import call_on_network_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from .answer import Answer

__all__ = ["GatedConsumer", "SeekGate"]


class SeekGate:
    """Runs one call at a time on a C++ consumer: a question that holds the GIL, or the start of a seek.

    Args:
        client: the C++ client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threads.Lock()

    def ask(self, question: Callable[[], Any]) -> Any:
        """Call a question, which holds the GIL, and return its answer."""
        done: list[Any] = []
        try:
            # Only C code between acquire and release: a signal handler may seek, and would wait for its own thread.
            done.extend(map(call, (self._lock.acquire, question, self._lock.release)))
        finally:
            if len(done) == 1:  # the question raised
                self._lock.release()
        return done[1]

    def ask_uninterrupted(self, question: Callable[[], Any]) -> Any:
        """Call a question on a thread that no signal handler interrupts; this takes a fifth of the time."""
        with self._lock:
            return question()

    def seek_starter(self, inner: Any, target: Any) -> Callable[[Answer], None]:
        """Return a function that starts a seek; its first result is a failure of one topic or the success of all.

        The seek starts on its own thread, where no signal handler can interrupt the callback.

        Args:
            inner: the C++ consumer.
            target: a C++ id, or a publish time in milliseconds.
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

    def unsubscribe_starter(self, inner: Any) -> Callable[[Answer, list[int]], None]:
        """Return a function that starts to unsubscribe a C++ consumer; its last argument gets an item at the start."""
        return partial(call_on_network_thread, self._client, inner.unsubscribe_async)


class GatedConsumer:
    """Consumer methods that hold the GIL; a base class before the official one."""

    inner: Any
    _gate: SeekGate

    def is_connected(self) -> bool:
        """Return whether the consumer is connected to the broker on every topic and partition."""
        connected: bool = self._gate.ask(self.inner.is_connected)
        return connected
