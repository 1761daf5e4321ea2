"""Messages in chunks, effectively once.

The broker deduplicates a message in chunks by its last chunk only. When the topic is loaded again while a message is
half written, it takes the message's id from the chunks that are there, and drops the rest, which the client reports as
`Ok`. And where a client sends a half written message again, C++ consumers drop both halves, because the chunks carry
the same name. So such a message is sent alone: nothing else is in flight. If anything disturbs it, the C++ producer is
closed before it can send the message again, the topic is searched for the message's last chunk, and if that is not
there the message is sent under another producer's name, `name~1`, `name~2` and so on, whose chunks cannot be taken for
the others.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.handles import build_plain, inner_producer_of
from pulsar_ext._native.refusals import check_sequence_id
from pulsar_ext._native.results import result_of
from pulsar_ext._runtime.condition import Flag
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext.ids.message_id import MessageId, from_inner
from pulsar_ext.produce.batch import Batch
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE
from pulsar_ext.produce.sender import close_quietly

from .sender import NO_ROOM, DedupSender
from .sequence_ids import Standing
from .stored import Patience, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext.admin import PulsarAdmin

    from .sender import DedupDispatcher


_OK, _CLOSED = pulsar.Result.Ok, pulsar.Result.AlreadyClosed
_POLL_SECONDS = 0.005
_PAUSE_SECONDS = 0.2
_METADATA_BYTES = 4096

_log = logging.getLogger("pulsar_ext")
T = TypeVar("T")


class ChunkRecovery:
    """What a sender of chunked messages needs to open other producers: under its own name, and under derived ones.

    Args:
        open_as: opens an official producer of a name.
        admin: the admin API.
        settle: waits until the topic has no write pending.
        topic: the topic or partition.
        name: the producer's.
        chunk_bytes: from how many bytes on a message may be sent in chunks.
        half_written: the id of a message that is half written, None if there is none.
    """

    def __init__(
        self,
        open_as: Callable[[str], pulsar.Producer],
        admin: PulsarAdmin,
        settle: Callable[[], None],
        topic: str,
        name: str,
        *,
        chunk_bytes: int,
        half_written: int | None,
    ) -> None:
        self.open_as = open_as
        self.admin = admin
        self.settle = settle
        self.topic = topic
        self.name = name
        self.chunk_bytes = chunk_bytes
        self.half_written = half_written


class ChunkedSender(DedupSender):
    """A `DedupSender` with `chunking_enabled`.

    Args:
        dispatch: the messages that go without chunks.
        recovery: opens other producers.
    """

    __slots__ = ("_recovery",)

    def __init__(self, dispatch: DedupDispatcher, recovery: ChunkRecovery) -> None:
        super().__init__(dispatch, mixed_keys=None)
        self._recovery = recovery

    def post(
        self, content: Any, callback: SendCallback | None, options: dict[str, Any], *, patient: bool = False
    ) -> None:
        """Send a message alone if it may be sent in chunks; the arguments are those of `BatchingSender.post`."""
        given = options.get("sequence_id")
        if given is not None:
            check_sequence_id(given)
        draft = self.handle.build(content, **options)
        number = self.sequence.upcoming if given is None else given
        recovery = self._recovery
        if draft.length() + _METADATA_BYTES < recovery.chunk_bytes and number != recovery.half_written:
            super().post(content, callback, options, patient=patient)
            return
        data = None if draft.has_null_value() else draft.data()
        self.dispatch.exclusively(self._post_chunked, data, callback, options)

    def _post_chunked(self, data: bytes | None, callback: SendCallback | None, options: dict[str, Any]) -> None:
        """Begin to send a message with nothing else in flight; the lock is held once."""
        dispatch, given = self.dispatch, options.get("sequence_id")
        if not (dispatch.pending.has_room() or dispatch.make_room(callback, patient=True)):
            return
        self._wait_until_idle()
        if dispatch.closed:
            dispatch.refuse(callback, _CLOSED)
            return
        self.check_whole()
        sequence_id, standing = self.sequence.admit(given)
        if standing is not Standing.NEW:  # nothing is in flight, so it is persisted
            dispatch.refuse(callback, DUPLICATE_MESSAGE)
            return
        batch = Batch(build_plain(data, {**options, "sequence_id": sequence_id}))
        batch.callbacks, batch.ids, batch.count = (callback,), (sequence_id,), 1
        begin = partial(self._begin_to_carry, iter((batch,)), data, options)
        try:
            dispatch.fly(batch)
            batch_scheduler.run(begin)
        except BaseException:  # a signal's handler raised
            if dispatch.pending.held:  # for this message: nobody else will begin
                batch_scheduler.run(begin)
            raise

    def _begin_to_carry(self, unsent: Iterator[Batch], data: bytes | None, options: dict[str, Any]) -> None:
        """Have a thread send one message, once; on the scheduler's thread, where no signal arrives."""
        for batch in unsent:
            self.dispatch.fly(batch)
            threads.start(self._carry, batch, data, options, name="pulsar_ext-chunks")

    def _wait_until_idle(self) -> None:
        """Wait until nothing is in flight; the lock is held once."""
        dispatch, pending = self.dispatch, self.dispatch.pending
        dispatch.push_open()
        while pending.completed < pending.accepted and not pending.barred:
            dispatch.unlocked(
                dispatch.pending.wait_for, lambda: pending.barred or pending.completed >= pending.accepted
            )

    def _carry(self, batch: Batch, data: bytes | None, options: dict[str, Any]) -> None:
        """Send one message until it is on the topic, whole."""
        sequence_id, recovery = batch.ids[0], self._recovery
        result: Any
        message_id: MessageId | None
        try:
            if recovery.half_written == sequence_id:
                result, message_id = None, None
            else:
                result, message_id = self._send_watched(self.handle.inner, batch.message)
            if result is None:
                result, message_id = self._resolve(sequence_id, data, options)
                if recovery.half_written != sequence_id and not self.dispatch.pending.barred:
                    self._reopen()
            recovery.half_written = None
        except BaseException as error:  # noqa: BLE001  # its sender must get an answer
            if not isinstance(error, pulsar.PulsarException):
                _log.exception("A message in chunks could not be sent")
            self.sequence.fail(f"it was not found out whether a message in chunks is persisted ({error})")
            result, message_id = result_of(error), None
        self.dispatch.land(batch, result, message_id)

    def _send_watched(self, producer: Any, message: Any) -> tuple[Any, MessageId | None]:
        """Send a message with a C++ producer, which is closed if its connection breaks; no result if it is unknown."""
        known = Flag()
        outcome: list[Any] = []

        def on_outcome(result: Any, inner: Any) -> None:
            outcome[:] = [result, inner]
            known.set()

        producer.send_async(message, on_outcome)
        while not known.wait(_POLL_SECONDS):
            if not producer.is_connected() or self.dispatch.forgotten:
                close_quietly(producer)
                if not known.wait(_PAUSE_SECONDS):
                    return None, None
        result, inner = outcome
        if result == _OK:
            return (_OK, from_inner(inner)) if inner.ledger_id() >= 0 else (None, None)
        has_no_outcome = result in NO_ROOM or (result == pulsar.Result.AlreadyClosed and not self.closed)
        return (None if has_no_outcome else result), None

    def _resolve(self, sequence_id: int, data: bytes | None, options: dict[str, Any]) -> tuple[Any, MessageId | None]:
        """Find out whether a message is whole on the topic, and send it under derived names until it is."""
        recovery = self._recovery
        name, attempt = recovery.name, 0
        while True:
            # Who takes the name over keeps what is still on an earlier connection's way from being written.
            if recovery.half_written != sequence_id or attempt:  # else the own producer has it
                close_quietly(self._patiently(partial(recovery.open_as, name)))
            self._patiently(recovery.settle)
            if self._patiently(lambda: is_whole(recovery.admin, recovery.topic, recovery.name, sequence_id)):
                return DUPLICATE_MESSAGE, None
            attempt += 1
            name = f"{recovery.name}~{attempt}"
            producer = self._patiently(partial(recovery.open_as, name))
            try:
                if producer.last_sequence_id() >= sequence_id:
                    continue  # this name was tried before, and has not got it through either
                message = build_plain(data, {**options, "sequence_id": sequence_id})
                result, message_id = self._send_watched(inner_producer_of(producer), message)
            finally:
                close_quietly(producer)
            if result is not None:
                return result, message_id

    def _reopen(self) -> None:
        """Open a C++ producer of the own name again."""
        close_quietly(self.handle)
        self.handle.replace(self._patiently(lambda: self._recovery.open_as(self._recovery.name)))

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask until there is an answer, for as long as the producer's timeout says and it is not closed."""
        return Patience(self.dispatch.timeout or 1e9, lambda: self.closed or self.dispatch.pending.barred)(ask)
