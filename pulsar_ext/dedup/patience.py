"""Asking again while a broker may be starting, or loading the topic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext.errors import AdminError, AdminNotFound, AdminUnauthorized
from pulsar_ext.ids.position import Position

from .stored import is_trimmed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import EntryMetadata, InternalStats, PulsarAdmin


_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_LASTING = (pulsar.ProducerBusy, pulsar.ProducerFenced, pulsar.TopicTerminated, pulsar.AuthorizationError)
"""What a broker says for a moment where a connection has just ended, or the topic moves, and else for good."""
_LASTING_SECONDS = 20.0
T = TypeVar("T")


class Patience:
    """Asks again while a broker may be starting, or loading the topic.

    Args:
        seconds: for how long.
        is_over: whether nobody waits any more.
    """

    def __init__(self, seconds: float, is_over: Callable[[], bool]) -> None:
        began = time.monotonic()
        self._deadline, self._lasting, self._is_over = began + seconds, began + _LASTING_SECONDS, is_over

    @property
    def is_over(self) -> bool:
        """Whether it is of no use to ask again."""
        return self._is_over() or time.monotonic() > self._deadline

    def __call__(self, ask: Callable[[], T], *, answers: tuple[type[Exception], ...] = ()) -> T:
        """Ask until there is an answer; `answers` are errors that are one, and so is that it is not permitted."""
        pause = _PAUSE_SECONDS
        while True:
            try:
                return ask()
            except AdminUnauthorized:
                raise
            except answers:
                raise
            except (AdminError, pulsar.PulsarException) as error:
                if self.is_over or (isinstance(error, _LASTING) and time.monotonic() > self._lasting):
                    raise
                threads.sleep(pause)
                pause = min(1.25 * pause, _LONGEST_PAUSE_SECONDS)


class PatientAdmin:
    """The two requests of a look-up, each asked with patience: a walk over many entries need not begin again.

    An entry that is not found was trimmed only if its ledger is not listed any more; a topic that moves to another
    broker, or whose bookie starts, has entries that are not found for a while.
    """

    def __init__(self, admin: PulsarAdmin, ask: Patience) -> None:
        self._admin, self._ask = admin, ask

    def internal_stats(self, topic: str) -> InternalStats:
        """Give the statistics of a topic."""
        return self._ask(lambda: self._admin.internal_stats(topic))

    def entry(self, topic: str, ledger_id: int, entry_id: int, **options: Any) -> EntryMetadata:
        """Give the headers of an entry.

        Raises:
            AdminNotFound: it was trimmed.
        """
        while True:
            try:
                return self._ask(
                    lambda: self._admin.entry(topic, ledger_id, entry_id, **options), answers=(AdminNotFound,)
                )
            except AdminNotFound:
                if self._ask.is_over or is_trimmed(self.internal_stats(topic), Position(ledger_id, entry_id)):
                    raise
                threads.sleep(_PAUSE_SECONDS)
