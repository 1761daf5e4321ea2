"""The effectively-once sender: every message is persisted exactly once, despite failures.

`sequence_ids.py` makes the decisions. This module sends new messages, and reports the outcome of messages that the
topic already has. If a batch gets an ambiguous result, or no answer within `send_timeout_millis`, it may or may not be
persisted. Nothing may be sent after it then: the next entry would raise the broker's last sequence id of the name above
a batch that may be missing.

**Full backlog quota.** With the policy `producer_exception`, the broker disconnects producers when the quota is full
and rejects them as they reconnect. The C++ client then fails every message in flight, and it is unknown which of them
are persisted. So this module closes the C++ producer and opens another one of the same name as soon as the broker
allows it. It resends the batches without an outcome, in order and with the same sequence ids; the broker drops
duplicates.

**Duplicates reported by the broker** are looked up, because the topic may not have them. If a broker cannot store a
message, it rejects the later messages in flight, closes its producers, and then reactivates the topic. For a moment the
connection still feeds a closed producer, and a later message may be stored after earlier ones were rejected (Pulsar
4.2.4: `ServerCnx.safelyRemoveProducer` removes a producer in a task of its own, and
`PersistentTopic.decrementPendingWriteOpsAndCheck` does not wait for it). When the client resends the earlier messages,
the broker reports them as duplicates, because it keeps only the highest id of a name, and they are lost. So every
message that was pushed once and is reported as a duplicate is looked up. A message that the topic does not have is sent
under another name, `name+1`, `name+2` and so on, since the broker would drop it under its own; it is then stored after
later messages. (`name~1` is for chunked messages. Entries of those names determine where a name resumes; entries of
`name+1` are out of order and do not.)

**Chunked messages** are deduplicated by their last chunk only. If the topic is reloaded while a message is incomplete,
the broker takes the message's id from the stored chunks and drops the rest, which the client reports as `Ok`. And if a
client resends an incomplete message, C++ consumers drop both parts, because their chunks have the same producer name
and id. So such a message is sent with nothing else in flight. After any failure the C++ producer is closed before it
can resend the message, and the topic is searched for its last chunk. If it is missing, the message is sent under
another producer name, `name~1`, `name~2` and so on, so that its chunks do not mix with the stored ones.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Final, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.handles import ProducerHandle, build_plain, inner_producer_of
from pulsar_ext._native.messages import InnerMessage, InnerMessageId, InnerProducer
from pulsar_ext._native.results import Result, name_of, raise_result, result_of
from pulsar_ext._native.signatures import check_sequence_id
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.callbacks import SendCallback
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext._wire.batch_payload import property_field
from pulsar_ext.errors import MessageIdUnresolved, ProducerBroken
from pulsar_ext.ids.message_id import MessageId, from_inner
from pulsar_ext.ids.position import Position
from pulsar_ext.produce.batch import Batch, BatchGroup, BatchingConfig, InFlight, ordered
from pulsar_ext.produce.batching import ReplacingSender, rebuilt_message
from pulsar_ext.produce.options import Options
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, OutcomeWaiter, PersistedEntry, persisted_entry
from pulsar_ext.produce.sender import close_quietly

from .opening import PREVIOUS_ID, Opening, RetryUntil, certainly_missing
from .sequence_ids import IdStatus, SequenceIds

NO_ROOM: Final = (pulsar.Result.ProducerBlockedQuotaExceededException, pulsar.Result.ProducerBlockedQuotaExceededError)
_OK, _CLOSED = pulsar.Result.Ok, pulsar.Result.AlreadyClosed
_TOO_BIG, _TIMEOUT = pulsar.Result.MessageTooBig, pulsar.Result.Timeout
_log = logging.getLogger("pulsar_ext")
_Outcome = tuple[Result, PersistedEntry | None]
T = TypeVar("T")


def _just_before(entry: PersistedEntry | None) -> Position | None:
    """Return the position before an entry, so that a look-up includes the entry."""
    if entry is None:
        return None
    ledger_id, entry_id = entry[:2] if isinstance(entry, tuple) else (entry.ledger_id(), entry.entry_id())
    return Position(ledger_id, entry_id - 1)


_GATHER_SECONDS = 0.02
"""Delay before a look-up, so that duplicates reported together are looked up together."""
_CLUSTER_CHECK_SECONDS = 0.05
"""The polling interval of the connected cluster, if it may change."""


class DedupSender(ReplacingSender):
    """A `BatchingSender` with sequence ids; it stops after `timeout` seconds without an answer or quota; 0 for none."""

    whole_batch_columns = frozenset({"sequence_id"})
    always_waits = True  # a message rejected by a full queue could not be sent after later ones

    def __init__(
        self,
        handle: ProducerHandle,
        context: ClientContext,
        config: BatchingConfig,
        opening: Opening,
        sequence: SequenceIds,
        timeout: float,
        cluster: int,
    ) -> None:
        super().__init__(handle, context, config, sequence)
        self.timeout, self.opening = timeout, opening
        self._cluster, self._has_left_cluster = cluster, False
        self.sequence = sequence
        self._final_result: Result | None = None
        """The result of all messages in flight, once sending has stopped; None before."""
        self._last_id: int = handle.last_sequence_id()
        """The broker's id of the name when the producer was opened; the opening found later ids up to it missing."""
        self._last: PersistedEntry | None = None
        """The position of the last batch reported as persisted."""
        self._waiting: deque[tuple[Batch, _Outcome]] = deque()
        """Outcomes held back, from the first duplicate until it is looked up, to report outcomes in order."""
        self._looking_up = False
        self._possible_duplicates: dict[InFlight, list[SendCallback | None]] = {}
        if context.cluster.may_change:
            batch_scheduler.watch(self, _CLUSTER_CHECK_SECONDS)

    def await_original(self, sequence_id: int, callback: SendCallback | None) -> bool:
        """Report a possible duplicate together with the message in flight; return False if that one is complete."""
        with self.pending.changed:
            group = self.sequence.in_flight_with(sequence_id)
            if group is None:
                return False
            self._possible_duplicates.setdefault(group, []).append(callback)
            self.pending.accepted += 1
            return True

    def seal(self, group: BatchGroup) -> deque[Batch]:
        """Close a group; return its batches in push order."""
        batches = group.close()
        group.in_flight = self.sequence.push([batch.ids for batch in batches])
        return _ordered(batches, group.in_flight)

    def may_push(self) -> bool:
        """Return whether a batch may be pushed: not after one that may be missing."""
        return not self._cluster_changed() and self.sequence.broken is None and super().may_push()

    def _cluster_changed(self) -> bool:
        """Return whether the client is connected to another cluster than at the opening, and stop sending if so.

        The C++ producer is closed before it reconnects there, where it would resend the messages in flight.
        """
        if self.context.cluster.number() == self._cluster:
            return False
        if not self._has_left_cluster:
            self._has_left_cluster = True
            self.sequence.fail("its client is connected to another cluster, and sequence ids belong to one cluster")
            threads.start(close_quietly, self.inner, name="pulsar_ext-cluster")
        return True

    def push_batch(self, batch: Batch) -> None:
        """Pass a batch to the C++ producer, if sending is allowed."""
        if batch.unsent is None:
            if batch.message is None:
                batch.entry_property = property_field(PREVIOUS_ID, str(self.sequence.pushed))
            if self.timeout:
                batch_scheduler.watch(self, self.timeout)
        super().push_batch(batch)
        if batch.unsent is not None and not batch.too_big and batch.entry_sequence_id is not None:
            self.sequence.pushed = max(self.sequence.pushed, batch.entry_sequence_id)

    def begin_exclusive_send(self, batch: Batch) -> None:
        """Record a message as in flight that another producer sends; nothing else may enter until `end_exclusive_send`.

        May be called again after a signal handler interrupted it, and then completes the rest.
        """
        if batch.in_flight is not None:
            return
        if not self.pending.paused:
            self.pending.paused = True
            self.pending.accepted += 1
        sequence_id = batch.ids[0]
        self.sequence.pushed = sequence_id
        self.mark_in_flight(batch)
        batch.in_flight = self.sequence.in_flight_with(sequence_id) or self.sequence.push([batch.ids])

    def end_exclusive_send(self, batch: Batch, result: Result, entry: PersistedEntry | None) -> None:
        """Report the outcome of a message that another producer sent."""
        self.pending.paused = False
        result = self._result_in_this_cluster(result)
        if result in (_OK, _TOO_BIG) or result is DUPLICATE_MESSAGE:
            self.deliver(batch, result, entry)
        else:
            self.failed(batch, result)

    def split_first(self, group: BatchGroup) -> None:
        """Split the first batch of a group, which exceeds the broker's size limit and was not sent."""
        assert group.sealed is not None  # noqa: S101  # it is being pushed
        assert group.in_flight is not None  # noqa: S101  # it is being pushed
        batch = group.sealed[0]
        if batch.count == 1:
            self.sequence.reject(group.in_flight, batch.ids[0])
        else:
            group.in_flight.unanswered += 1  # the batch is split in two
        super().split_first(group)
        group.sealed = _ordered(list(group.sealed), group.in_flight)

    def tick(self, now: float) -> float | None:
        """Push batches whose delay is over, and stop after the send timeout; called by the scheduler."""
        left = self._push_due(now)
        if self.closed or not self.context.cluster.may_change:
            return left
        if self._cluster_changed():
            return None
        return _CLUSTER_CHECK_SECONDS if left is None else min(left, _CLUSTER_CHECK_SECONDS)

    def _push_due(self, now: float) -> float | None:
        if self.pending.paused:
            return None  # a chunked message is in flight, with its own deadline
        left = super().tick(now)
        if not self.timeout or self._final_result is not None or self.replacing:
            return left
        # A copy: other threads remove batches that have an outcome.
        unanswered = next((batch for batch in list(self._in_flight) if batch.pushed_at < inf), None)
        if unanswered is None:
            return left
        oldest = unanswered.pushed_at + self.timeout - now
        if oldest > 0:
            return oldest if left is None else min(left, oldest)
        self._final_result = _TIMEOUT
        self.sequence.fail(
            f"the broker has not answered within {self.timeout:g} s (send_timeout_millis), so it is unknown "
            "whether the messages in flight are persisted"
        )
        # After Timeout is reported, messages waiting for a connection must not be sent.
        threads.start(close_quietly, self.inner, name="pulsar_ext-timeout")
        return left

    def on_outcome(self, batch: Batch, result: Result, inner: InnerMessageId) -> None:
        """Record the outcome of a batch, unless it will be resent to this cluster or was sent to another one."""
        keep_thread_state()
        result = self._result_in_this_cluster(result)
        if result in NO_ROOM and self._wait_for_room():
            return
        if not (self.replacing and result == _CLOSED) or self.closed or self.pending.barred:
            super().on_outcome(batch, result, inner)

    def _result_in_this_cluster(self, result: Result) -> Result:
        """Return a result; a success reported by another cluster becomes the result of a closed producer.

        The C++ client may reconnect before the cluster change is detected, and resend the messages in flight there.
        """
        return _CLOSED if result == _OK and self._cluster_changed() else result

    def _push_groups(self) -> None:
        if not self.replacing:
            super()._push_groups()

    def _wait_for_room(self) -> bool:
        """Start to wait for quota; return False if sending is no longer allowed."""
        if self.closed or self.pending.barred or not self.may_push():
            return False
        with self.pending.changed:
            begins, self.replacing = not self.replacing, True
        if begins:
            threads.start(self.replace, name="pulsar_ext-room")
        return True

    def reopen(self) -> pulsar.Producer:
        """Open a producer of the same name, once the quota allows it."""
        return self.retrying(partial(self.opening.open_as, self.opening.name))

    def retrying(self, ask: Callable[[], T]) -> T:
        """Retry a call within the send timeout, until the producer is closed."""
        return RetryUntil(self.timeout or 1e9, lambda: self.closed or self.pending.barred)(ask)

    def resend(self, batch: Batch) -> None:
        """Resend a batch, and restart its send timeout."""
        batch.pushed_at = time.monotonic()
        super().resend(batch)

    def give_up(self, error: BaseException) -> None:
        """Fail the messages in flight: the quota stayed full too long, and it is unknown which are persisted."""
        self._final_result = result_of(error)
        self.sequence.fail(
            f"the broker has rejected the producer for {self.timeout:g} s with {type(error).__name__}, so it is "
            "unknown whether the messages in flight are persisted"
        )
        self.fail_waiting()

    def note_uncertain(self, result: Result) -> None:
        """Stop sending after an ambiguous result: the batch may be persisted or not.

        This happens before the result is reported: messages sent until then would follow a possibly missing one.
        """
        self.sequence.fail(f"a message failed with {name_of(result)}, so it is unknown whether it is persisted")

    def persisted(self, batch: Batch, inner: InnerMessageId) -> None:
        """Report a persisted batch; one that the broker reports as a duplicate is looked up first."""
        outcome: _Outcome
        if inner.ledger_id() < 0:  # the broker reports a resent batch as a duplicate
            batch.pushed_at = inf  # answered; the look-up has its own timeout
            outcome = DUPLICATE_MESSAGE, None
        else:
            outcome = _OK, persisted_entry(inner, self.config.partition, batched=batch.message is None)
            if not self._looking_up:
                self._last = outcome[1]
                self.deliver(batch, *outcome)
                return
        with self.pending.changed:
            self._waiting.append((batch, outcome))
            begins, self._looking_up = not self._looking_up, True
        if begins:
            threads.start(self._look_up, name="pulsar_ext-duplicates")

    def _look_up(self) -> None:
        """Report the outcomes held back, in order, each duplicate after its look-up."""
        threads.sleep(_GATHER_SECONDS)
        while True:
            with self.pending.changed:
                outcomes = tuple(self._waiting)
                if not outcomes:
                    self._looking_up = False
                    return
            known = self._resolve_duplicates([batch for batch, (result, _) in outcomes if result is DUPLICATE_MESSAGE])
            for batch, outcome in outcomes:
                if outcome[0] is not DUPLICATE_MESSAGE:
                    self._last = outcome[1]
                self.deliver(batch, *known.get(batch, outcome))
                self._waiting.popleft()

    def _resolve_duplicates(self, reported: list[Batch]) -> dict[Batch, _Outcome]:
        """Look up batches reported as duplicates, send the missing ones, and return their outcomes."""
        if not reported:
            return {}
        ask = RetryUntil(4 * self.timeout or 1e9, lambda: self.finished)
        try:
            missing = self._missing(reported, ask)
            return self._send_missing(missing, ask) if missing else {}
        except BaseException as error:  # noqa: BLE001  # the senders must get an outcome
            _log.exception("Could not look up messages that the broker reports as duplicates")
            self.sequence.fail(
                "the broker reports messages as duplicates, and they could not be looked up, or missing ones not sent "
                f"under another name ({error}). Search the topic for the failed messages, and send the missing ones by "
                "a producer of a new name"
            )
            return dict.fromkeys(reported, (pulsar.Result.UnknownError, None))

    def _missing(self, reported: Sequence[Batch], ask: RetryUntil) -> list[Batch]:
        asked = {batch.entry_sequence_id for batch in reported if batch.entry_sequence_id is not None}
        lost = {sequence_id for sequence_id in asked if sequence_id <= self._last_id}
        if asked > lost:
            lookup = self.opening.lookup(ask)
            own = lookup.own_entries(lookup.stats(), after=_just_before(self._last))
            try:
                lost |= certainly_missing(asked - lost, (entry.sequence_id for entry in own))
            except MessageIdUnresolved as error:
                _log.warning("Could not look up messages that the broker reports as duplicates: %s", error)
        return [batch for batch in reported if batch.entry_sequence_id in lost]

    def _send_missing(self, missing: Sequence[Batch], ask: RetryUntil) -> dict[Batch, _Outcome]:
        first, last, number = missing[0].ids[0], missing[-1].ids[-1], 0
        while True:
            number += 1
            name = f"{self.opening.name}+{number}"
            producer = ask(partial(self.opening.open_as, name))
            try:
                if producer.last_sequence_id() >= first:
                    continue  # the name was used by an earlier recovery
                # One by one, so that no message is stored if an earlier one is not.
                sent = {batch: self._send_one(inner_producer_of(producer), batch) for batch in missing}
            finally:
                close_quietly(producer)
            _log.warning(
                "The broker reported messages of producer %s with sequence ids from %d to %d as duplicates, but %s "
                "did not have them: it had rejected them and stored later ones. They were sent under the name %s, "
                "and are stored after the later messages.",
                self.opening.name,
                first,
                last,
                self.opening.topic,
                name,
            )
            return sent

    def _send_one(self, producer: InnerProducer, batch: Batch) -> _Outcome:
        waiter: OutcomeWaiter[InnerMessageId] = OutcomeWaiter()
        producer.send_async(rebuilt_message(batch), waiter)
        if not waiter.known.wait(4 * self.timeout or 1e9):
            raise_result(_TIMEOUT)
        inner = waiter.wait(None)
        if inner.ledger_id() < 0:  # the receipt was lost with a connection
            return DUPLICATE_MESSAGE, None
        return _OK, persisted_entry(inner, self.config.partition, batched=batch.message is None)

    def await_outcomes(self, deadline: float) -> None:
        """Wait for outcomes, and for look-ups even while disconnected, because their messages may be lost otherwise."""
        super().await_outcomes(deadline)
        while self._looking_up and time.monotonic() < deadline:
            self.pending.wait_for(lambda: not self._looking_up, _GATHER_SECONDS)

    def failed(self, batch: Batch, result: Result) -> None:
        """Report a failed batch; never called on a C++ thread that holds the producer's lock."""
        if self._final_result is not None and result == _CLOSED:
            result = self._final_result
        self.note_uncertain(result)
        self.deliver(batch, result, None)

    def report(self, batch: Batch, result: Result, entry: PersistedEntry | None) -> None:
        """Report the outcome of each message of a batch, and then those of possible duplicates of its group."""
        duplicates: list[SendCallback | None] = []
        with self.pending.changed:
            if batch.in_flight is not None and self.sequence.complete(batch.in_flight):
                duplicates = self._possible_duplicates.pop(batch.in_flight, [])
        super().report(batch, result, entry)
        if duplicates:
            known = result if result not in (_OK, _TOO_BIG) else DUPLICATE_MESSAGE
            super().report(Batch(callbacks=duplicates, count=len(duplicates)), known, None)

    def send(self, content: object, *args: object, **kwargs: object) -> MessageId:
        """Send a message and wait until it is persisted; an `UnknownError` states the cause."""
        try:
            return super().send(content, *args, **kwargs)
        except pulsar.UnknownError as error:
            if self.sequence.broken is None:
                raise
            raise pulsar.UnknownError(f"{error}: {self.sequence.broken}") from None

    def last_sequence_id(self) -> int:
        """Return the sequence id up to which everything is persisted, -1 if none."""
        return self.sequence.published

    def last_sequence_id_pushed(self) -> int:
        """Return the highest sequence id of this producer, persisted or in flight."""
        return self.sequence.highest

    def admit(self, given: int | None, callback: SendCallback | None) -> int | None:
        """Admit the next message; return None if the topic already has it, or may have it. The lock is held."""
        if self.sequence.broken is not None:
            self.raise_if_broken()
        sequence_id, status = self.sequence.admit(given)
        if status is IdStatus.NEW:
            return sequence_id
        if status is IdStatus.DUPLICATE or not self.await_original(sequence_id, callback):
            self.reject(callback, DUPLICATE_MESSAGE)
        return None

    def admit_many(self, count: int, given: Sequence[int | None] | None) -> Sequence[int] | None:
        """Return the sequence ids of `count` messages; None if they must be admitted one by one."""
        self.raise_if_broken()
        if given is None:
            return self.sequence.admit_many(count)
        return given if self.sequence.admit_ascending(given) else None

    def raise_if_broken(self) -> None:
        """Raise if an earlier message may be missing."""
        if self.sequence.broken is not None:
            raise ProducerBroken(
                f"The producer {self.producer_name()} on {self.topic()} accepts no more messages: "
                f"{self.sequence.broken}. "
                "Close it, create it again with this name, and resume after last_sequence_id_published().",
                last_published=self.sequence.published,
            )


def _ordered(batches: Sequence[Batch], flight: InFlight) -> deque[Batch]:
    """Return a group's batches in push order, each with its entry's sequence id."""
    found = ordered(batches)
    for batch in found:
        batch.in_flight = flight
    if found:
        found[-1].entry_sequence_id = flight.highest  # includes batches of the group already pushed
    return found


_POLL_SECONDS = 0.005
_PAUSE_SECONDS = 0.2
_METADATA_BYTES = 4096


class ChunkedSender(DedupSender):
    """A `DedupSender` with `chunking_enabled`."""

    def post(self, content: object, callback: SendCallback | None, options: Options, *, patient: bool = True) -> None:
        """Send a message, with nothing else in flight if it may be chunked."""
        given = options.get("sequence_id")
        if given is not None:
            check_sequence_id(given)
        draft = self.handle.build(content, **options)
        sequence_id = self.sequence.upcoming if given is None else given
        opening = self.opening
        if draft.length() + _METADATA_BYTES < opening.chunk_bytes and sequence_id != opening.incomplete_id:
            super().post(content, callback, options, patient=patient)
            return
        data = None if draft.has_null_value() else draft.data()
        self.exclusively(self._post_chunked, data, callback, options)

    def _post_chunked(self, data: bytes | None, callback: SendCallback | None, options: Options) -> None:
        """Start to send a message with nothing else in flight; the lock is held exactly once."""
        given = options.get("sequence_id")
        if not (self.pending.has_room() or self.make_room(callback, patient=True)):
            return
        pending = self.pending
        self.push_open()
        while pending.completed < pending.accepted and not pending.barred:
            self.unlocked(pending.wait_for, lambda: pending.barred or pending.completed >= pending.accepted)
        if self.closed:
            self.reject(callback, _CLOSED)
            return
        self.raise_if_broken()
        sequence_id, status = self.sequence.admit(given)
        if status is not IdStatus.NEW:  # nothing is in flight, so it is persisted
            self.reject(callback, DUPLICATE_MESSAGE)
            return
        batch = Batch.alone(build_plain(data, {**options, "sequence_id": sequence_id}), callback, sequence_id)
        begin = partial(self._start_sending, iter((batch,)), data, options)
        try:
            self.begin_exclusive_send(batch)
            batch_scheduler.run(begin)
        except BaseException:  # a signal handler raised
            if self.pending.paused:  # paused for this message, which nothing else would start
                batch_scheduler.run(begin)
            raise

    def _start_sending(self, unsent: Iterator[Batch], data: bytes | None, options: Options) -> None:
        """Start a thread that sends one message, once; runs on the scheduler's thread, where no signal arrives."""
        for batch in unsent:
            self.begin_exclusive_send(batch)
            threads.start(self._send_until_stored, batch, data, options, name="pulsar_ext-chunks")

    def _send_until_stored(self, batch: Batch, data: bytes | None, options: Options) -> None:
        sequence_id, opening = batch.ids[0], self.opening
        outcome: tuple[Result, MessageId | None] | None = None
        try:
            if opening.incomplete_id != sequence_id and batch.message is not None:
                outcome = self._send_watched(self.handle.inner, batch.message)
            if outcome is None:
                outcome = self._resolve(sequence_id, data, options)
                if opening.incomplete_id != sequence_id and not self.pending.barred:
                    close_quietly(self.handle.inner)
                    self.handle.replace(self.retrying(partial(opening.open_as, opening.name)))
            opening.incomplete_id = None
        except BaseException as error:  # noqa: BLE001  # the sender must get an outcome
            if not isinstance(error, pulsar.PulsarException):
                _log.exception("Could not send a chunked message")
            self.sequence.fail(f"it is unknown whether a chunked message is persisted ({error})")
            outcome = result_of(error), None
        self.end_exclusive_send(batch, *outcome)

    def _send_watched(self, producer: InnerProducer, message: InnerMessage) -> tuple[Result, MessageId | None] | None:
        """Send a message with a C++ producer, and close that if disconnected; return None if the result is unknown."""
        waiter: OutcomeWaiter[InnerMessageId] = OutcomeWaiter()
        producer.send_async(message, waiter)
        while not waiter.known.wait(_POLL_SECONDS):
            if not producer.is_connected() or self.client_closed:
                close_quietly(producer)
                if not waiter.known.wait(_PAUSE_SECONDS):
                    return None
        result, inner = waiter.outcome
        if result == _OK:
            return (_OK, from_inner(inner)) if inner.ledger_id() >= 0 else None
        has_no_outcome = result in NO_ROOM or (result == _CLOSED and not self.closed)
        return None if has_no_outcome else (result, None)

    def _resolve(self, sequence_id: int, data: bytes | None, options: Options) -> tuple[Result, MessageId | None]:
        """Check whether all of a message is on the topic, and send it under derived names until it is."""
        opening = self.opening
        name, attempt = opening.name, 0
        while True:
            # Opening a producer of the name keeps messages still in an earlier connection from being written.
            if opening.incomplete_id != sequence_id or attempt:  # otherwise this sender's producer has the name
                close_quietly(self.retrying(partial(opening.open_as, name)))
            self.retrying(opening.await_writes)
            if self.retrying(partial(opening.lookup().is_stored, sequence_id)):
                return DUPLICATE_MESSAGE, None
            attempt += 1
            name = f"{opening.name}~{attempt}"
            producer = self.retrying(partial(opening.open_as, name))
            try:
                if producer.last_sequence_id() >= sequence_id:
                    continue  # the name was used by an earlier attempt, which failed
                message = build_plain(data, {**options, "sequence_id": sequence_id})
                outcome = self._send_watched(inner_producer_of(producer), message)
            finally:
                close_quietly(producer)
            if outcome is not None:
                return outcome
