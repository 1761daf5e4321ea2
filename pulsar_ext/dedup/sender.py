"""The effectively-once sender: every message persisted exactly once, whatever fails.

The decisions are those of `sequence_ids.py`. This shell sends what is new, and answers for what the topic holds. A
result other than an outcome, or none within `send_timeout_millis`, leaves open whether a batch is persisted. Nothing
may follow it then: what the broker takes next moves its number for this name past what may be missing.

**A full backlog quota.** With the policy `producer_exception` a broker disconnects its producers when the quota is
full, and refuses them as they reconnect. The C++ client then fails everything that has no answer, and it is not known
what of it is persisted. So the C++ producer is closed here, and another one of the same name is opened as soon as the
broker allows it. It resends what has no outcome, in the same order, with the same ids: the broker drops what it has.

**Duplicates that the broker reports** are looked up: its topic may not hold them. When a broker cannot store a message,
it rejects what its producers have sent after it, closes them, and then takes the topic into use again. A connection
continues for a moment to feed a producer that is closed, and then a later message is stored where earlier ones were
rejected (Pulsar 4.2.4: `ServerCnx.safelyRemoveProducer` removes a producer by a task of its own, and
`PersistentTopic.decrementPendingWriteOpsAndCheck` does not wait for it). The client resends the earlier ones. The
broker keeps one number for a name, so it answers that they are duplicates, and they are lost. Therefore a message that
was pushed once and is called a duplicate is looked up. What the topic does not hold is sent under another name,
`name+1`, `name+2` and so on: the broker does not take it under its own any more. Its place is then after later ones.
(`name~1` is for messages in chunks; those names say where a name resumes, and messages out of order do not.)
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.handles import inner_producer_of
from pulsar_ext._native.results import name_of, raise_result, result_of
from pulsar_ext._native.signatures import shaped_like
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.condition import Flag
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext._wire.batch_payload import property_field
from pulsar_ext.errors import MessageIdUnresolved, ProducerBroken
from pulsar_ext.ids.position import Position
from pulsar_ext.produce.batch import Batch, seal
from pulsar_ext.produce.batching import BatchingSender
from pulsar_ext.produce.dispatch import ReplacingDispatcher, built_again
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, persisted_entry
from pulsar_ext.produce.sender import close_quietly

from .sequence_ids import Standing
from .stored import PREVIOUS_ID, Patience, PatientAdmin, not_held, own_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_ext._native.handles import ProducerHandle
    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import PulsarAdmin
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.produce.batch import BatchGroup, BatchingConfig, InFlight
    from pulsar_ext.produce.batching import MixedKeyCheck
    from pulsar_ext.produce.outcome import PersistedEntry

    from .sequence_ids import SequenceIds


NO_ROOM: Final = (
    pulsar.Result.ProducerBlockedQuotaExceededException,
    pulsar.Result.ProducerBlockedQuotaExceededError,
)
_CLOSED = pulsar.Result.AlreadyClosed


_OK = pulsar.Result.Ok
_log = logging.getLogger("pulsar_ext")


class DuplicateCheck:
    """Looks up what the broker calls duplicates of a name, and sends what its topic does not hold.

    Args:
        admin: the admin API.
        topic: the topic or partition.
        name: the producer's.
        partition: of the topic, -1 if it has none.
        open_as: opens an official producer of a name.
        timeout: the producer's, in seconds; it is tried for four times as long. 0 for ever.
        number: the broker's for the name when the producer was opened. What is pushed since with an id up to it is
            missing, as the opening found, and the broker can only call it a duplicate; it needs no look-up.
    """

    def __init__(
        self,
        admin: PulsarAdmin,
        topic: str,
        name: str,
        partition: int,
        open_as: Callable[[str], pulsar.Producer],
        timeout: float,
        number: int,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._name = name
        self._partition = partition
        self._open_as = open_as
        self._patience = 4 * timeout or 1e9
        self._number = number

    def outcomes(
        self, told: Sequence[Batch], last: PersistedEntry | None, is_over: Callable[[], bool]
    ) -> dict[Batch, tuple[Any, PersistedEntry | None]]:
        """Find out which of the batches called duplicates are missing, send those, and give what became of them.

        Args:
            told: the batches, in the order of their pushes.
            last: where the last batch before them is that is known to be persisted; None if there is none.
            is_over: whether the producer is closed, so that nothing is tried again.

        Raises:
            AdminError, pulsar.PulsarException: it could not be found out, or done, in time.
        """
        ask = Patience(self._patience, is_over)
        missing = self._missing(told, last, ask)
        return self._send(missing, ask) if missing else {}

    def _missing(self, told: Sequence[Batch], last: PersistedEntry | None, ask: Patience) -> list[Batch]:
        asked = {batch.carried for batch in told if batch.carried is not None}
        lost = {carried for carried in asked if carried <= self._number}
        if asked > lost:
            lost |= self._not_held(asked - lost, last, ask)
        return [batch for batch in told if batch.carried in lost]

    def _not_held(self, asked: set[int], last: PersistedEntry | None, ask: Patience) -> frozenset[int]:
        admin: Any = PatientAdmin(self._admin, ask)
        stats = admin.internal_stats(self._topic)
        own = own_entries(admin, self._topic, stats, self._name, behind=_just_before(last))
        try:
            return not_held(asked, (entry.carried for entry in own))
        except MessageIdUnresolved as error:
            _log.warning("The broker says that messages are duplicates, and that could not be looked up. %s", error)
            return frozenset()

    def _send(self, missing: Sequence[Batch], ask: Patience) -> dict[Batch, tuple[Any, PersistedEntry | None]]:
        first, last = missing[0].ids[0], missing[-1].ids[-1]
        for number in count(1):
            name = f"{self._name}+{number}"
            producer = ask(partial(self._open_as, name))
            try:
                if producer.last_sequence_id() >= first:
                    continue  # another time it was this name's turn
                # One by one: nothing behind a message may be stored where the message is not.
                sent = {batch: self._send_one(inner_producer_of(producer), batch) for batch in missing}
            finally:
                close_quietly(producer)
            _log.warning(
                "The broker called messages of the producer %s duplicates, with sequence ids from %d to %d, and %s did "
                "not hold them: it had refused them and stored later ones. They have been sent under the name %s, and "
                "stand behind those.",
                self._name,
                first,
                last,
                self._topic,
                name,
            )
            return sent
        raise AssertionError  # there is always another name

    def _send_one(self, producer: Any, batch: Batch) -> tuple[Any, PersistedEntry | None]:
        known = Flag()
        outcome: list[Any] = []

        def on_outcome(result: Any, inner: Any) -> None:
            outcome[:] = [result, inner]
            known.set()

        producer.send_async(built_again(batch), on_outcome)
        if not known.wait(self._patience):
            raise_result(pulsar.Result.Timeout)
        result, inner = outcome
        if result != _OK:
            raise_result(result)
        if inner.ledger_id() < 0:  # its answer was lost with a connection
            return DUPLICATE_MESSAGE, None
        return _OK, persisted_entry(inner, self._partition, batched=batch.message is None)


def _just_before(entry: PersistedEntry | None) -> Position | None:
    """Give the position in front of an entry, so that the entry is the last that is looked at."""
    if entry is None:
        return None
    ledger_id, entry_id = entry[:2] if isinstance(entry, tuple) else (entry.ledger_id(), entry.entry_id())
    return Position(ledger_id, entry_id - 1)


_TOO_BIG = pulsar.Result.MessageTooBig
_TIMEOUT = pulsar.Result.Timeout
_GATHER_SECONDS = 0.02
"""How long the broker's first word of a duplicate waits for others, which are looked up with it."""

_LOOK_SECONDS = 0.05
"""How often it is checked which cluster the client is connected to, if that may change."""


class DedupDispatcher(ReplacingDispatcher):
    """A dispatcher that keeps the account of sequence ids, and waits for room if the broker has none.

    Args, besides those of `BatchDispatcher`:
        sequence: the ids.
        timeout: after how many seconds without an answer, or without room, the sender takes no more messages; 0 for
            never.
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
        super().__init__(handle, context, config)
        self.timeout, self._open_again = timeout, open_again
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
        if not self.timeout or self._gave_up is not None or self.replacing:
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
        """Take the outcome of a batch; one that waits for room has none, nor one that was sent to another cluster."""
        keep_thread_state()
        result = self._of_this_cluster(result)
        if result in NO_ROOM and self._wait_for_room():
            return
        if not (self.replacing and result == _CLOSED) or self.closed or self.pending.barred:
            super().on_outcome(batch, result, inner)

    def _of_this_cluster(self, result: Any) -> Any:
        """Return a result, in the place of a success that another cluster may have given that of a closed producer.

        The C++ client may be faster than the look at the cluster, and send again there what is in flight.
        """
        return _CLOSED if result == _OK and self._is_elsewhere() else result

    # Room

    def _push_groups(self) -> None:
        if not self.replacing:
            super()._push_groups()

    def _wait_for_room(self) -> bool:
        """Begin to wait for room; False if nothing may be sent any more."""
        if self.closed or self.pending.barred or not self.may_push():
            return False
        with self.pending.changed:
            begins, self.replacing = not self.replacing, True
        if begins:
            threads.start(self.replace, name="pulsar_ext-room")
        return True

    def reopen(self) -> pulsar.Producer:
        """Open a producer of the same name, once there is room."""
        return Patience(self.timeout or 1e9, lambda: self.closed or self.pending.barred)(self._open_again)

    def resend(self, batch: Batch) -> None:
        """Give a batch to the C++ producer again; its time begins anew."""
        batch.began = time.monotonic()
        super().resend(batch)

    def give_up(self, error: BaseException) -> None:
        """Fail what is in flight: there was no room in time, so that it is not known what of it is persisted."""
        self._gave_up = result_of(error)
        self.sequence.fail(
            f"the broker has refused the producer for {self.timeout:g} s, with {type(error).__name__}, so that it is "
            "not known whether what was sent is persisted"
        )
        self.fail_waiting()

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


class DedupSender(BatchingSender):
    """A `BatchingSender` that is effectively once.

    Args:
        dispatch: the batches.
        mixed_keys: looks for the first message with a key, if batches mix keys.
    """

    __slots__ = ("sequence",)

    dispatch: DedupDispatcher
    many_at_once = frozenset({"sequence_id"})
    waits = True  # a message that is refused for lack of room could not be sent behind later ones any more

    def __init__(self, dispatch: DedupDispatcher, *, mixed_keys: MixedKeyCheck | None) -> None:
        super().__init__(dispatch, dispatch.sequence, mixed_keys=mixed_keys)
        self.sequence: SequenceIds = dispatch.sequence

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message, and wait until it is persisted; an error that has no name of its own tells its cause.

        Raises:
            DuplicateMessage: the topic holds it already.
            ProducerBroken: nothing may be sent any more.
        """
        try:
            return super().send(content, *args, **kwargs)
        except pulsar.UnknownError as error:
            if self.sequence.broken is None:
                raise
            raise pulsar.UnknownError(f"{error}: {self.sequence.broken}") from None

    def last_sequence_id(self) -> int:
        """Give the highest sequence id up to which everything is persisted, -1 if there is none."""
        return self.sequence.published

    def last_sequence_id_pushed(self) -> int:
        """Give the highest sequence id that a message of this producer has, persisted or on its way."""
        return self.sequence.highest

    def admit(self, given: int | None, callback: SendCallback | None) -> int | None:
        """Decide about the next message: None if the topic holds it already, or may; the lock is held.

        Raises:
            ProducerBroken: nothing may be sent any more.
            SequenceIdRejected: the id cannot be sent now.
        """
        if self.sequence.broken is not None:
            self.check_whole()
        sequence_id, standing = self.sequence.admit(given)
        if standing is Standing.NEW:
            return sequence_id
        if standing is Standing.DUPLICATE or not self.dispatch.await_original(sequence_id, callback):
            self.dispatch.refuse(callback, DUPLICATE_MESSAGE)
        return None

    def admit_many(self, count: int, given: Sequence[int] | None) -> Sequence[int] | None:
        """Give the sequence ids of so many messages at once; None if they have to be admitted one by one."""
        self.check_whole()
        if given is None:
            return self.sequence.admit_many(count)
        return given if self.sequence.admit_ascending(given) else None

    def check_whole(self) -> None:
        """Refuse messages behind one that may be missing.

        Raises:
            ProducerBroken: it is not known whether something that was pushed is persisted.
        """
        if self.sequence.broken is not None:
            raise ProducerBroken(
                f"The producer {self.producer_name()} on {self.topic()} takes no more messages: "
                f"{self.sequence.broken}. "
                "Close it and create it again with its name: last_sequence_id_published() then says where to go on.",
                last_published=self.sequence.published,
            )
