"""Keeping the beginning of a seek apart from what would wait for it with Python's lock held.

A C++ consumer of several topics or partitions begins a seek of each with its list of them locked. It copies the
callback there, and may call it, for which it needs Python's lock. Whoever asks it whether it is connected has Python's
lock, and waits for that list: both would wait for ever. Its blocking seek needs no callback, but takes one answer only:
where two topics fail, the second answer ends the process.
"""

from __future__ import annotations

from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any

from . import threads
from .network_thread import begin_on_network_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from .answer import Answer

__all__ = ["GatedConsumer", "SeekGate"]


class SeekGate:
    """What one consumer asks its C++ consumer with Python's lock held, and how it begins a seek: one at a time.

    Args:
        client: the C++ client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threads.Lock()

    def ask(self, question: Callable[[], Any]) -> Any:
        """Ask the C++ consumer something, with Python's lock held."""
        done: list[Any] = []
        try:
            # Nothing but C from the lock on: the handler of a signal may seek, and would wait for who it interrupts.
            done.extend(map(call, (self._lock.acquire, question, self._lock.release)))
        finally:
            if len(done) == 1:  # the question raised
                self._lock.release()
        return done[1]

    def ask_uninterrupted(self, question: Callable[[], Any]) -> Any:
        """Ask on a thread that no signal's handler interrupts, which takes a fifth of the time."""
        with self._lock:
            return question()

    def seeking(self, inner: Any, target: Any) -> Callable[[Answer], None]:
        """Give what begins a seek, and has its first answer: a failure of one topic, or the success of all.

        It is done on a thread of its own, where no signal's handler can interrupt the callback.

        Args:
            inner: the C++ consumer.
            target: a C++ id, or a publish time in milliseconds.
        """

        def begin(answer: Answer) -> None:
            def run() -> None:
                try:
                    with self._lock:
                        inner.seek_async(target, answer)
                except Exception as error:  # noqa: BLE001  # raised where the answer is waited for
                    answer(error)

            try:
                threads.start(run, name="pulsar_ext-seek")
            except RuntimeError:  # the interpreter is ending and starts no threads any more
                run()

        return begin

    def unsubscribing(self, inner: Any) -> Callable[[Answer, list[int]], None]:
        """Give what begins an unsubscription of a C++ consumer; what it gets last has an item once it has begun."""
        return partial(begin_on_network_thread, self._client, inner.unsubscribe_async)


class GatedConsumer:
    """What a consumer is asked with Python's lock held; it stands before the official class."""

    inner: Any
    _gate: SeekGate

    def is_connected(self) -> bool:
        """Tell whether it is connected to the broker, on every topic and partition."""
        connected: bool = self._gate.ask(self.inner.is_connected)
        return connected
