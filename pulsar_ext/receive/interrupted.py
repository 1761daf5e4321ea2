"""What a thread had received when a Ctrl-C ended its call, kept for its next one; and who waits for a batch."""

from __future__ import annotations

import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pulsar_ext._native import threads

from .order import NOTHING, Part, Transition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext.message import Message

__all__ = ["LEAVING_SECONDS", "Interrupted"]

_LOOK_SECONDS = 0.005
LEAVING_SECONDS = {Transition.UNSUBSCRIPTION: 2.0, Transition.CLOSE: 0.5}
"""How many seconds those who wait for a batch are waited for: by default they do for 100 ms. An unsubscription forgets
who is left then; a close answers whoever surely waits."""


class Interrupted(Part):
    """What a thread had received when a Ctrl-C ended its call; its next call begins with it."""

    __slots__ = ("_has_ended", "_is_leaving", "ahead", "batches", "many")

    def __init__(self) -> None:
        self.many: dict[int, list[Message]] = {}
        """Of `receive_many()`, by thread."""
        self.batches: dict[int, list[Any]] = {}
        """Of `batch_receive()`, as C++ messages, by thread."""
        self.ahead: Iterator[Any] = NOTHING
        """The first messages of another C++ consumer, which its `batch_receive()` would not give."""
        self._is_leaving = self._has_ended = False

    @property
    def is_barred(self) -> bool:
        """Whether no thread may begin to wait for a batch."""
        return self._is_leaving or self._has_ended

    def bar(self) -> None:
        """Let no thread begin to wait for a batch any more."""
        self._has_ended = True

    def before(self, transition: Transition, /) -> None:
        """Let threads that wait for a batch come back: the C++ consumer may forget them."""
        if transition in LEAVING_SECONDS:
            self._is_leaving = True
            self.await_others(time.monotonic() + LEAVING_SECONDS[transition])

    def after(self, _: Transition, /) -> None:
        """Drop it: it comes again, or nothing is handed out any more."""
        self._is_leaving = False
        self.many.clear()
        self.batches.clear()

    def abandon(self, _: Transition, /) -> None:
        """Let threads wait again."""
        self._is_leaving = False

    def await_others(self, deadline: float) -> bool:
        """Wait for other threads that wait for a batch, until `deadline`; tell whether all of them have come back."""
        thread = get_ident()
        while any(one != thread and not batch for one, batch in list(self.batches.items())):
            if time.monotonic() >= deadline:
                return False
            threads.sleep(_LOOK_SECONDS)
        return True

    def renew(self, _: Any, ahead: Iterator[Any], /) -> None:
        """Keep what is ahead for those who receive batches."""
        self.ahead = ahead
