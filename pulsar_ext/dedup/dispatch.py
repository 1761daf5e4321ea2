"""Pushing the batches of an effectively-once sender, so that it stops where it cannot know what is persisted.

A result other than an outcome, or none within `send_timeout_millis`, leaves open whether a batch is persisted. Nothing
may follow it then: what the broker takes next moves its number for this name past what may be missing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.results import name_of, result_of
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext._wire.batch_payload import property_field
from pulsar_ext.produce.batch import Batch, seal
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, persisted_entry

from .room import RoomDispatcher
from .stored import PREVIOUS_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.handles import ProducerHandle
    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.produce.batch import BatchGroup, BatchingConfig, InFlight
    from pulsar_ext.produce.outcome import PersistedEntry

    from .duplicates import DuplicateCheck
    from .sequence_ids import SequenceIds

__all__ = ["DedupDispatcher"]

_OK = pulsar.Result.Ok
_TOO_BIG = pulsar.Result.MessageTooBig
_TIMEOUT = pulsar.Result.Timeout
_CLOSED = pulsar.Result.AlreadyClosed
_GATHER_SECONDS = 0.02
"""How long the broker's first word of a duplicate waits for others, which are looked up with it."""

_LOOK_SECONDS = 0.05
"""How often it is checked which cluster the client is connected to, if that may change."""

_log = logging.getLogger("pulsar_ext")


class DedupDispatcher(RoomDispatcher):
    """A `RoomDispatcher` that keeps the account of sequence ids.

    Args:
        handle: the C++ producer.
        context: of its client.
        config: how batches are made.
        sequence: the ids.
        timeout: after how many seconds without an answer the sender takes no more messages; 0 for never.
        duplicates: looks up what the broker calls duplicates.
        open_again: opens an official producer of the same name.
        cluster: number of the cluster that the producer was opened on.
    """

    def __init__(
        self,
        handle: ProducerHandle,
        context: ClientContext,
        config: BatchingConfig,
        sequence: SequenceIds,
        timeout: float,
        duplicates: DuplicateCheck,
        open_again: Callable[[], pulsar.Producer],
        cluster: int,
    ) -> None:
        super().__init__(handle, context, config, open_again, timeout)
        self._cluster, self._has_left_cluster = cluster, False
        self.sequence = sequence
        self._gave_up: Any = None
        """The result of what is in flight, once nothing is sent any more."""
        self._duplicates = duplicates
        self._last: PersistedEntry | None = None
        """Where the last batch is that was persisted and reported."""
        self._waiting: deque[_Outcome] = deque()
        """The outcomes that wait, from the first duplicate on, until it is looked up: they are reported in order."""
        self._looking_up = False
        self._possible_duplicates: dict[InFlight, list[SendCallback | None]] = {}
        if context.cluster.may_change:
            batch_scheduler.watch(self, _LOOK_SECONDS)

    def await_original(self, sequence_id: int, callback: SendCallback | None) -> bool:
        """Have a possible duplicate wait for the outcome of the message in flight; False if that is known by now."""
        with self.pending.changed:
            group = self.sequence.flying_with(sequence_id)
            if group is None:
                return False
            self._possible_duplicates.setdefault(group, []).append(callback)
            self.pending.accepted += 1
            return True

    # Batches

    def seal(self, group: BatchGroup) -> deque[Batch]:
        """Close a group, and decide in which order its batches are pushed."""
        batches = group.close()
        group.flight = self.sequence.push([batch.ids for batch in batches])
        return _ordered(batches, group.flight)

    def may_push(self) -> bool:
        """Whether a batch may follow those that were pushed: not where it would follow what may be missing."""
        return not self._is_elsewhere() and self.sequence.broken is None and super().may_push()

    def _is_elsewhere(self) -> bool:
        """Return if the client is connected to another cluster than at the opening; then nothing more is sent there.

        The C++ producer is closed before it is connected there: it would send again what has no outcome.
        """
        if self.context.cluster.number() == self._cluster:
            return False
        if not self._has_left_cluster:
            self._has_left_cluster = True
            self.sequence.fail("its client is connected to another cluster, and sequence ids belong to one cluster")
            threads.start(self._abort, name="pulsar_ext-cluster")
        return True

    def push_batch(self, batch: Batch) -> None:
        """Hand a batch to the C++ producer, if anything may be sent."""
        if batch.unsent is None:
            if batch.message is None:
                batch.note = property_field(PREVIOUS_ID, str(self.sequence.pushed))
            if self.timeout:
                batch_scheduler.watch(self, self.timeout)
        super().push_batch(batch)
        if batch.unsent is not None and not batch.refused and batch.carried is not None:
            self.sequence.pushed = max(self.sequence.pushed, batch.carried)

    def fly(self, batch: Batch) -> None:
        """Count a message as on its way that is not pushed here, and let nothing else enter until `land`.

        Where a signal's handler ended this in between, it may be called again, and does the rest.
        """
        if batch.flight is not None:
            return
        if not self.pending.held:
            self.pending.held = True
            self.pending.accepted += 1
        number = batch.ids[0]
        self.sequence.pushed = number
        self.take_off(batch)
        batch.flight = self.sequence.flying_with(number) or self.sequence.push([batch.ids])

    def land(self, batch: Batch, result: Any, entry: PersistedEntry | None) -> None:
        """Report the outcome of a message that was pushed elsewhere."""
        self.pending.held = False
        result = self._of_this_cluster(result)
        if result in (_OK, _TOO_BIG) or result is DUPLICATE_MESSAGE:
            self.deliver(batch, result, entry)
        else:
            self.failed(batch, result)

    def part(self, group: BatchGroup) -> None:
        """Part the first of a group's batches, which is larger than the broker allows, and was not sent at all."""
        assert group.sealed is not None  # noqa: S101  # it is being pushed
        assert group.flight is not None  # noqa: S101  # likewise
        batch = group.sealed[0]
        if batch.count == 1:
            self.sequence.refuse(group.flight, batch.ids[0])
        else:
            self.sequence.part(group.flight)
        super().part(group)
        group.sealed = _ordered(list(group.sealed), group.flight)

    def tick(self, now: float) -> float | None:
        """Push what waited long enough, and give up on what was pushed too long ago; the scheduler's call."""
        left = self._push_due(now)
        if self.closed or not self.context.cluster.may_change:
            return left
        if self._is_elsewhere():
            return None
        return _LOOK_SECONDS if left is None else min(left, _LOOK_SECONDS)

    def _push_due(self, now: float) -> float | None:
        if self.pending.held:
            return None  # a message in chunks is on its way, with a deadline of its own
        left = super().tick(now)
        if not self.timeout or self._gave_up is not None or self.waits_for_room:
            return left
        # At once: others take out what has its outcome.
        unanswered = next((batch for batch in list(self._flying) if batch.began < inf), None)
        if unanswered is None:
            return left
        oldest = unanswered.began + self.timeout - now
        if oldest > 0:
            return oldest if left is None else min(left, oldest)
        self._gave_up = _TIMEOUT
        self.sequence.fail(
            f"the broker has not answered within {self.timeout:g} s (send_timeout_millis), so that it is not known "
            "whether what was sent is persisted"
        )
        # Nothing that waits for a connection may be sent any more once Timeout is reported.
        threads.start(self._abort, name="pulsar_ext-timeout")
        return left

    def _abort(self) -> None:
        with contextlib.suppress(pulsar.PulsarException):
            self.handle.inner.close()

    # Outcomes

    def on_outcome(self, batch: Batch, result: Any, inner: Any) -> None:
        """Take the outcome of a batch, unless another cluster may have given it."""
        super().on_outcome(batch, self._of_this_cluster(result), inner)

    def _of_this_cluster(self, result: Any) -> Any:
        """Return a result, in the place of a success that another cluster may have given that of a closed producer.

        The C++ client may be faster than the look at the cluster, and send again there what is in flight.
        """
        return _CLOSED if result == _OK and self._is_elsewhere() else result

    def give_up(self, error: BaseException) -> None:
        """Take note that there was no room in time, so that it is not known what of the batches in flight is there."""
        self._gave_up = result_of(error)
        self.sequence.fail(
            f"the broker has refused the producer for {self.timeout:g} s, with {type(error).__name__}, so that it is "
            "not known whether what was sent is persisted"
        )

    def doubt(self, result: Any) -> None:
        """Let nothing follow a result that leaves open whether a batch is persisted.

        This must not wait until its senders know: what is sent until then would leave a hole before it.
        """
        self.sequence.fail(f"a message failed with {name_of(result)}, so that it is not known whether it is persisted")

    def settled(self, batch: Batch, inner: Any) -> None:
        """Take the id of a batch that is persisted; one that is called a duplicate has none, and is looked up."""
        outcome: _Outcome
        if inner.ledger_id() < 0:  # sent again after a broken connection, and persisted the first time, if that is true
            batch.began = inf  # it is answered, and the look-up has a time of its own
            outcome = batch, DUPLICATE_MESSAGE, None
        else:
            outcome = batch, _OK, persisted_entry(inner, self.config.partition, batched=batch.message is None)
            if not self._looking_up:
                self._last = outcome[2]
                self.deliver(*outcome)
                return
        with self.pending.changed:
            self._waiting.append(outcome)
            begins, self._looking_up = not self._looking_up, True
        if begins:
            threads.start(self._look_up, name="pulsar_ext-duplicates")

    def _look_up(self) -> None:
        """Report what waits, in order, each duplicate once it is known whether it is one."""
        threads.sleep(_GATHER_SECONDS)
        while True:
            with self.pending.changed:
                outcomes = tuple(self._waiting)
                if not outcomes:
                    self._looking_up = False
                    return
            known = self._known([batch for batch, result, _ in outcomes if result is DUPLICATE_MESSAGE])
            for batch, result, entry in outcomes:
                if result is not DUPLICATE_MESSAGE:
                    self._last = entry
                self.deliver(batch, *known.get(batch, (result, entry)))
                self._waiting.popleft()

    def _known(self, told: list[Batch]) -> dict[Batch, tuple[Any, PersistedEntry | None]]:
        """Look up batches that are called duplicates; give what became of those that were none."""
        if not told:
            return {}
        try:
            return self._duplicates.outcomes(told, self._last, lambda: self.finished)
        except BaseException as error:  # noqa: BLE001  # their senders must get an answer
            _log.exception("What the broker calls a duplicate could not be looked up")
            self.sequence.fail(
                "the broker calls messages duplicates, and the topic could not be asked for them, or what it does not "
                f"hold could not be sent under another name ({error}). Look there for those that failed, and send what "
                "is missing by a producer of a new name"
            )
            return dict.fromkeys(told, (pulsar.Result.UnknownError, None))

    def settle(self, deadline: float) -> None:
        """Wait for outcomes; for what is looked up also without a connection, because it may be lost otherwise."""
        super().settle(deadline)
        while self._looking_up and time.monotonic() < deadline:
            self.pending.wait_for(lambda: not self._looking_up, _GATHER_SECONDS)

    def failed(self, batch: Batch, result: Any) -> None:
        """Take the result of a batch that has failed; never on a C++ thread that holds the producer's lock."""
        if self._gave_up is not None and result == _CLOSED:
            result = self._gave_up
        self.doubt(result)
        self.deliver(batch, result, None)

    def report(self, batch: Batch, result: Any, entry: PersistedEntry | None) -> None:
        """Report the outcome of each message of a batch, and then of those that may be duplicates of its group."""
        duplicates: list[SendCallback | None] = []
        with self.pending.changed:
            if batch.flight is not None and self.sequence.complete(batch.flight):
                duplicates = self._possible_duplicates.pop(batch.flight, [])
        super().report(batch, result, entry)
        if duplicates:
            known = result if result not in (_OK, _TOO_BIG) else DUPLICATE_MESSAGE
            reported = Batch()
            reported.callbacks, reported.count = duplicates, len(duplicates)
            super().report(reported, known, None)


_Outcome = tuple[Batch, Any, "PersistedEntry | None"]


def _ordered(batches: list[Batch], flight: InFlight) -> deque[Batch]:
    """Give a group's batches in the order to push, each with the id that it carries."""
    ordered: deque[Batch] = deque()
    for index, carried in seal([batch.ids for batch in batches]) if batches else ():
        batch = batches[index]
        batch.carried, batch.flight = carried, flight
        ordered.append(batch)
    if ordered:
        ordered[-1].carried = flight.highest  # of what was pushed before as well
    return ordered
