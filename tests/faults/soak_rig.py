"""Common parts of the worker of `soak.py`: its broker, its flows, open objects, errors."""

from __future__ import annotations

import os
import random
import threading
import time
import traceback
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from soak_model import Flow, Taken

import pulsar_ext
from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ONCE", "PLAIN", "POISON", "Rig", "number_of", "place_of"]

PLAIN: Final = "persistent://public/default/"
ONCE: Final = "persistent://public/once/"
"""The namespace that deduplicates."""
POISON: Final = 500
"""Interval of messages that a flow with a dead letter policy negatively acknowledges until they are dead letters."""
_PAUSE_SECONDS: Final = 0.3
_QUIET: Final = official.FileLogger(official.LoggerLevel.Error, os.devnull)


def number_of(message: Any) -> int:
    return int(message.data().split(b" ", 1)[0])


def place_of(message: Any) -> tuple[int, int, int, int]:
    """Return the message's position on its topic."""
    message_id = message.message_id()
    return message_id.ledger_id(), message_id.entry_id(), message_id.partition(), message_id.batch_index()


class Rig:
    """The worker's side of a run.

    Args:
        url: of the proxy before the broker.
        admin_url: of the broker.
        seed: of all randomness here.
    """

    def __init__(self, url: str, admin_url: str, seed: int) -> None:
        self.url, self.admin_url, self.seed = url, admin_url, seed
        self.flows: dict[str, Flow] = {}
        self.errors: Counter[str] = Counter()
        self.did: Counter[str] = Counter()
        self.findings: list[str] = []
        self.consumers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.draining, self.over, self.reset = threading.Event(), threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []

    def client(self, module: Any = pulsar_ext) -> Any:
        """Open a client, blocking or of `pulsar_ext.asyncio`."""
        return module.Client(self.url, admin=self.admin_url, logger=_QUIET, operation_timeout_seconds=10)

    def flow(self, name: str, *, once: bool = False) -> Flow:
        """Return the flow of that name."""
        return self.flows.setdefault(name, Flow(name, (ONCE if once else PLAIN) + name, once=once))

    def dice(self, name: str) -> random.Random:
        """Return a separate source of random numbers."""
        return random.Random(f"{self.seed} {name}")

    def taken(self, taken: Taken, message: Any) -> int:
        """Record a delivery; return the message's number."""
        number = number_of(message)
        taken.deliver(number, place_of(message))
        return number

    def failed(self, error: BaseException) -> None:
        """Record an error: expected ones are counted, any other is a finding."""
        self.errors[type(error).__name__] += 1
        if isinstance(error, InvalidUse) or not isinstance(error, official.PulsarException):
            self.found("".join(traceback.format_exception(error)[-6:]))

    def found(self, problem: str) -> None:
        """Add a finding; only the first few are kept."""
        if len(self.findings) < 20:
            self.findings.append(problem)

    def keep_on(self, name: str, session: Callable[[], None], until: threading.Event) -> None:
        """Repeat a session on a thread; an error of the client ends one session."""

        def work() -> None:
            while not until.is_set():
                try:
                    session()
                except Exception as error:  # noqa: BLE001  # reported
                    self.failed(error)
                    time.sleep(_PAUSE_SECONDS)

        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the ends of all threads; a thread that does not end is a finding."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.found(f"the thread {thread.name} did not end")
