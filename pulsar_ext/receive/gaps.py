"""Chunked messages that a C++ reader skips after a lost connection.

When it reconnects, it continues inside the first message of its queue, even if that has several chunks, and it keeps
the chunks of incomplete messages, to which the repeated ones do not fit. It never delivers these messages. So after a
lost connection, each message is compared with the preceding one. If entries between them are missing, the C++ reader is
replaced by one that begins after the last delivered message.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Final

import pulsar

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import InnerMessage, InnerMessageId, InnerReader
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.scheduler import CONNECTION_POLL_SECONDS, UNNOTICED_SECONDS
from pulsar_ext._wire.message_id_data import MessageIdData, decode
from pulsar_ext.chunks.leftovers import first_incomplete
from pulsar_ext.errors import AdminError, PulsarExtError
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from .filter import FilteredSource
from .native import ReaderReopener, is_of_several
from .order import OutdatedError, ReceiveOrder, Transition, raise_unless
from .seek_positions import place_before
from .source import Source

_SILENT_SECONDS: Final = 1.0
"""Seconds without a message after which it is checked whether the C++ reader has skipped the last one."""
Place = tuple[int, int, int]
"""Ledger, entry and batch index of a message; a chunked message is where its last chunk is."""


def follows(data: MessageIdData, before: Place) -> bool:
    """Return whether no entry is between a place and a later message (pure)."""
    first = data.first_chunk or data
    return first.ledger_id == before[0] and before[1] <= first.entry_id <= before[1] + 1


class GaplessSource(FilteredSource):
    """Source of a reader of one topic; after a lost connection, it checks that no message is missing.

    A connection that was not polled in time may have been lost. If the start is `MessageId.latest`, messages before the
    first delivered one cannot be missed.
    """

    _sure_until = math.inf
    """Time until which a lost connection would be known, by the last poll; infinite if there is nothing to check."""
    _is_polled = _is_asked = False
    _last: InnerMessage | None = None
    _last_but_one: InnerMessage | None = None
    """The last two messages: two threads may note theirs in the wrong order."""
    _checks = False
    """Whether the next message is checked, for any of the following reasons."""
    _doubts = False
    """Whether messages may be missing."""
    is_missing_one = False
    """Whether a message is missing, so that all messages are dropped until the C++ reader has been replaced."""
    _until: Place | None = None
    """Place up to which messages are dropped, because they were delivered by the previous C++ reader."""
    _accepted = _ticked = 0
    """Number of entries whose messages were accepted since the last loss, and at the last tick."""

    def __init__(self, source: Source, context: ClientContext, order: ReceiveOrder, topic: str) -> None:
        super().__init__(source, self.takes)
        self._context, self._order, self._topic = context, order, topic
        self._partition = TopicName.parse(topic).partition_index
        self._lock = Lock()

    def begin(
        self, reopener: ReaderReopener, inner: Callable[[], InnerReader], queue_size: int, *, is_single: bool
    ) -> None:
        """Begin to poll the connection of the C++ reader that `inner` returns.

        Without `is_single`, it is checked first whether the topic has partitions: a C++ reader of several cannot begin
        at an id, and to poll its connection could wait forever for its own callbacks.
        """
        self._reopener, self._inner, self._queue_size = reopener, inner, queue_size
        self._sure_until = time.monotonic() + UNNOTICED_SECONDS
        if is_single:
            self._begin_polls()
        else:
            self._context.inquiries.watch(self, CONNECTION_POLL_SECONDS)

    def _begin_polls(self) -> None:
        self._is_polled = True
        self._context.connection_polls.begin(self)

    def __next__(self) -> InnerMessage:
        if not self._checks:
            timed = self._timed
            for inner, now in timed:
                if self._checks or now > self._sure_until or timed is not self._timed:
                    if timed is self._timed:
                        self._unseen.append(inner)
                    break
                self._last_but_one, self._last = self._last, inner  # no call: a Ctrl-C would lose the message
                return inner
            else:
                raise StopIteration
        return super().__next__()

    def takes(self, inner: InnerMessage) -> bool:
        """Return whether a C++ message is the next one; if so, note that the application gets it."""
        if self.accepts(inner):
            self.note(inner)
            return True
        return False

    def note(self, inner: InnerMessage) -> None:
        """Note that the application gets a C++ message."""
        self._last_but_one, self._last = self._last, inner

    def accepts(self, inner: InnerMessage) -> bool:
        """Return whether a C++ message is the next one for the application."""
        if not self._checks:
            if time.monotonic() <= self._sure_until:
                return True
            self._doubt()
        with self._lock:
            return not self.is_missing_one and self._is_next(decode(inner.message_id().serialize()))

    def _is_next(self, data: MessageIdData) -> bool:
        if self._until is not None:
            if (data.ledger_id, data.entry_id, data.batch_index) <= self._until:
                return False
            self._until = None
        if self._doubts:
            before = self._newest()
            if before is not None and not follows(data, before):
                self.is_missing_one = True
                self._context.inquiries.watch(self)
                return False
            # Only messages that were in the C++ queue, or whose chunks followed them, can be missing.
            self._accepted += before is None or before[:2] != (data.ledger_id, data.entry_id)
            self._doubts = self._accepted <= self._queue_size + 1
        self._checks = self._doubts
        return True

    def _newest(self) -> Place | None:
        """Return the place of the last delivered message, or before the first one; None if that is unknown."""
        noted = [one.message_id() for one in (self._last_but_one, self._last) if one is not None]
        start = self._reopener.start
        if not noted and start == InnerMessageId.latest:
            return None
        return max((one.ledger_id(), one.entry_id(), one.batch_index()) for one in noted or [start])

    def _doubt(self) -> None:
        """Check the next messages: the connection may have been lost."""
        with self._lock:
            self._accepted = 0
            if not self._doubts:
                self._doubts = self._checks = True
                self._context.inquiries.watch(self, _SILENT_SECONDS)

    def is_connection_unchanged(self, now: float) -> bool:
        """Poll the connection; always return True, as a change is handled here."""
        if self._sure_until < math.inf and not self._order.is_retired:
            if now > self._sure_until or not self._inner().is_connected():
                self._doubt()
            self._sure_until = now + UNNOTICED_SECONDS
        return True

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # by counts alone
        """Replace the C++ reader if it has skipped a message, also if that was the last one of the topic."""
        if self._sure_until == math.inf:  # closed
            return None
        try:
            if not self._is_polled:
                if is_of_several(self._topic, self._context.opener.get_topic_partitions):
                    self.close()
                else:
                    self._begin_polls()
                return None
            self._order.reopen()  # the last replacement may have failed
            if not (self._doubts or self.is_missing_one):
                return None
            if not self.is_missing_one:
                self._ask_for_last()
                return _SILENT_SECONDS
            with (
                contextlib.suppress(OutdatedError),
                self._order.run_transition(Transition.REPLACEMENT, lambda: raise_unless(lambda: self.is_missing_one)),
            ):
                self._reopener.move_after(self._restart())
        except (PulsarExtError, pulsar.PulsarException):  # unreachable
            return _SILENT_SECONDS
        return None

    def _ask_for_last(self) -> None:
        """Ask whether the broker has a message, if none has arrived for a while: it may be the one that was skipped."""
        ticked, self._ticked = self._ticked, self._accepted
        if self._is_asked or ticked != self._accepted or not self._inner().is_connected() or self._newest() is None:
            return
        inner, accepted = self._inner(), self._accepted

        def on_answer(result: pulsar.Result, has_more: bool) -> None:
            keep_thread_state()
            self._is_asked = False
            with self._lock:
                if result != pulsar.Result.Ok or (accepted, inner) != (self._accepted, self._inner()):
                    return
                if has_more:
                    self.is_missing_one = self._doubts
                    self._context.inquiries.watch(self)
                else:
                    self._doubts, self._checks = False, self._until is not None

        self._is_asked = True
        inner.has_message_available_async(on_answer)

    def _restart(self) -> InnerMessageId:
        """Return the C++ id after which the next C++ reader begins: before messages that were incomplete then."""
        before = self._newest()
        if before is None or (self._last is None and self._last_but_one is None):
            return self._reopener.start
        with contextlib.suppress(AdminError):
            first = first_incomplete(self._context.admin_api(), self._topic, Position(*before[:2]))
            if first is not None:
                self._until = before
                return place_before(InnerMessageId(self._partition, *first, -1))
        return InnerMessageId(self._partition, *before)

    def on_before(self, transition: Transition, /) -> None:
        """End with the reader."""
        if transition is Transition.CLOSE:
            self.close()

    def on_after(self, transition: Transition, /) -> None:
        """Drop the kept messages, and after a seek, the places; the next C++ reader, once it is open, skips nothing."""
        super().on_after(transition)
        if transition is not Transition.REPLACEMENT:
            self._last = self._last_but_one = self._until = None
        self._doubts = self.is_missing_one = False
        self._checks = self._until is not None

    def on_reopen(self, *_: object) -> None:
        """Receive from the reopened C++ reader."""
        super().on_reopen()
        self._timed = zip(self._each, iter(time.monotonic, None), strict=False)
        """Messages with the times at which they arrived, without Python code in between."""
        if self._sure_until < math.inf:
            self._sure_until = time.monotonic() + UNNOTICED_SECONDS

    def close(self) -> None:
        """Check nothing any more."""
        self._sure_until, self._checks, self._doubts, self.is_missing_one = math.inf, False, False, False
        self._context.connection_polls.end(self)
