"""The batches of a producer that are on their way, what became of them, and the wait for it at the end."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext.ids.message_id import id_in_batch

from .exclusive import Exclusive
from .outcome import deliver_each, persisted_entry
from .pending import PendingMessages

if TYPE_CHECKING:
    from pulsar_ext._native.answer import Answer
    from pulsar_ext._native.handles import ProducerHandle
    from pulsar_ext._runtime.context import ClientContext

    from .batch import Batch
    from .config import BatchingConfig
    from .outcome import PersistedEntry

__all__ = ["FlyingBatches"]

_OK, _TOO_BIG = pulsar.Result.Ok, pulsar.Result.MessageTooBig

_log = logging.getLogger("pulsar_ext")


class FlyingBatches(Exclusive):
    """Those that were pushed and have no outcome yet. Outcomes only ever take `pending.changed`.

    Args:
        handle: the C++ producer.
        context: of its client.
        config: how batches are made.
    """

    def __init__(self, handle: ProducerHandle, context: ClientContext, config: BatchingConfig) -> None:
        super().__init__()
        self.handle = handle
        self.context = context
        self.config = config
        self.pending = PendingMessages(config.limit)
        self.closed = False
        self.finished = False
        """Whether nothing is left to do of a close."""
        self.forgotten = False
        """Whether the client was shut down, so that nothing is sent any more and no outcome comes."""
        self._flying: dict[Batch, None] = {}
        """The oldest first; whoever takes one out reports what became of it."""

    def stay(self) -> None:
        """Stay alive until everything has its outcome: were this dropped, what is pending would vanish with it."""
        _unsettled[self] = None

    def take_off(self, batch: Batch) -> None:
        """Count a batch as on its way, once: it is about to be pushed, or would be but for a Ctrl-C."""
        if batch.began:
            return
        self.stay()
        batch.accepted = self.pending.accepted
        batch.began = time.monotonic()
        # No call in between: who has a time is noted, and the scheduler finds no batch without one.
        self._flying[batch] = None

    # Outcomes

    def on_outcome(self, batch: Batch, result: Any, inner: Any) -> None:
        """Take the outcome of a batch: the native callback, out of which nothing may be raised."""
        keep_thread_state()
        try:
            if result == _OK:
                self.settled(batch, inner)
            elif result == _TOO_BIG:
                batch.refused = True  # said while it is pushed, on the thread that pushes it
            else:
                self.doubt(result)
                self.context.outcomes.run(partial(self.failed, batch, result))
        except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
            _log.exception("The outcome of a batch could not be delivered")

    def doubt(self, result: Any) -> None:
        """Take note of a result that leaves open whether a batch is persisted, before its senders know."""

    def settled(self, batch: Batch, inner: Any) -> None:
        """Take the id of a batch that is persisted."""
        self.deliver(batch, _OK, persisted_entry(inner, self.config.partition, batched=batch.message is None))

    def failed(self, batch: Batch, result: Any) -> None:
        """Take the result of a batch that has failed; never on a C++ thread that holds the producer's lock."""
        self.deliver(batch, result, None)

    def deliver(self, batch: Batch, result: Any, entry: PersistedEntry | None) -> None:
        """Report what became of a batch, unless that is done; the arguments are those of `report`."""
        if self._flying.pop(batch, self) is None:
            self.report(batch, result, entry)

    def report(self, batch: Batch, result: Any, entry: PersistedEntry | None) -> None:
        """Report the outcome of each message of a batch.

        Args:
            batch: closed.
            result: of all its messages.
            entry: where it is persisted, if it is.
        """
        pending, count = self.pending, batch.count
        pending.release(count, batch.burden)
        if batch.outcome is not None:
            last = id_in_batch((*entry, count - 1), count) if isinstance(entry, tuple) else entry
            batch.outcome.many(result, count, last)
        else:
            self.context.callbacks.run(deliver_each, batch.callbacks, result, entry, count)
        pending.fail(result, batch.accepted)
        if pending.complete(count):
            _unsettled.pop(self, None)
            if pending.completed < pending.accepted:  # a message has come meanwhile
                self.stay()

    # The end

    def settle(self, deadline: float) -> None:
        """Wait for outcomes while the connection lasts, until `deadline`, a monotonic time in seconds."""
        while not self.pending.wait_for(self._is_settled, 0.02):
            if time.monotonic() >= deadline or not self.handle.is_connected():
                return

    def begin_close(self) -> Answer:
        """Begin to close the C++ producer, which fails what is still on its way."""
        return self.context.senders.answer_to(self.handle.inner.close_async)

    def conclude(self, deadline: float) -> None:
        """Wait until what failed is reported, until `deadline`, a monotonic time in seconds."""
        self.pending.wait_for(self._is_settled, max(deadline - time.monotonic(), 0))
        _unsettled.pop(self, None)
        self.finished = True

    def _is_settled(self) -> bool:
        """Whether everything has its outcome."""
        return self.pending.completed >= self.pending.accepted


_unsettled: dict[FlyingBatches, None] = {}
"""Those with messages whose outcome is not known yet."""
