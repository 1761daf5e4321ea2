"""Chunked messages with deduplication.

The broker deduplicates a chunked message by its last chunk only. If the topic is reloaded while a message is
incomplete, the broker takes the message's id from the stored chunks and drops the rest, which the client reports as
`Ok`. And if a client resends an incomplete message, C++ consumers drop both parts, because their chunks have the same
producer name and id. So such a message is sent with nothing else in flight. After any failure the C++ producer is
closed before it can resend the message, and the topic is searched for its last chunk. If it is missing, the message is
sent under another producer name, `name~1`, `name~2` and so on, so that its chunks do not mix with the stored ones.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.handles import build_plain, inner_producer_of
from pulsar_ext._native.results import result_of
from pulsar_ext._native.signatures import check_sequence_id
from pulsar_ext._runtime.condition import Flag
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext.ids.message_id import MessageId, from_inner
from pulsar_ext.produce.batch import Batch
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE
from pulsar_ext.produce.sender import close_quietly

from .sender import NO_ROOM, DedupSender
from .sequence_ids import IdStatus
from .stored import RetryUntil, is_stored

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
    """Opens producers for a sender of chunked messages, under its own name and under derived names.

    Args:
        open_as: opens an official producer of a given name.
        admin: the admin API.
        await_writes: waits until the topic has no pending writes.
        topic: the topic or partition.
        name: the producer name.
        chunk_bytes: the size in bytes from which a message may be chunked.
        incomplete_id: the id of an incomplete message on the topic, None if every message is complete.
    """

    def __init__(
        self,
        open_as: Callable[[str], pulsar.Producer],
        admin: PulsarAdmin,
        await_writes: Callable[[], None],
        topic: str,
        name: str,
        *,
        chunk_bytes: int,
        incomplete_id: int | None,
    ) -> None:
        self.open_as = open_as
        self.admin = admin
        self.await_writes = await_writes
        self.topic = topic
        self.name = name
        self.chunk_bytes = chunk_bytes
        self.incomplete_id = incomplete_id


class ChunkedSender(DedupSender):
    """A `DedupSender` with `chunking_enabled`.

    Args:
        dispatch: sends messages that are not chunked.
        recovery: opens other producers.
    """

    __slots__ = ("_recovery",)

    def __init__(self, dispatch: DedupDispatcher, recovery: ChunkRecovery) -> None:
        super().__init__(dispatch, mixed_keys=None)
        self._recovery = recovery

    def post(
        self, content: Any, callback: SendCallback | None, options: dict[str, Any], *, patient: bool = False
    ) -> None:
        """Send a message, with nothing else in flight if it may be chunked; see `BatchingSender.post`."""
        given = options.get("sequence_id")
        if given is not None:
            check_sequence_id(given)
        draft = self.handle.build(content, **options)
        sequence_id = self.sequence.upcoming if given is None else given
        recovery = self._recovery
        if draft.length() + _METADATA_BYTES < recovery.chunk_bytes and sequence_id != recovery.incomplete_id:
            super().post(content, callback, options, patient=patient)
            return
        data = None if draft.has_null_value() else draft.data()
        self.dispatch.exclusively(self._post_chunked, data, callback, options)

    def _post_chunked(self, data: bytes | None, callback: SendCallback | None, options: dict[str, Any]) -> None:
        """Start to send a message with nothing else in flight; the lock is held exactly once."""
        dispatch, given = self.dispatch, options.get("sequence_id")
        if not (dispatch.pending.has_room() or dispatch.make_room(callback, patient=True)):
            return
        self._wait_until_idle()
        if dispatch.closed:
            dispatch.reject(callback, _CLOSED)
            return
        self.raise_if_broken()
        sequence_id, status = self.sequence.admit(given)
        if status is not IdStatus.NEW:  # nothing is in flight, so it is persisted
            dispatch.reject(callback, DUPLICATE_MESSAGE)
            return
        batch = Batch(build_plain(data, {**options, "sequence_id": sequence_id}))
        batch.callbacks, batch.ids, batch.count = (callback,), (sequence_id,), 1
        begin = partial(self._start_sending, iter((batch,)), data, options)
        try:
            dispatch.begin_exclusive_send(batch)
            batch_scheduler.run(begin)
        except BaseException:  # a signal handler raised
            if dispatch.pending.paused:  # paused for this message, which nothing else would start
                batch_scheduler.run(begin)
            raise

    def _start_sending(self, unsent: Iterator[Batch], data: bytes | None, options: dict[str, Any]) -> None:
        """Start a thread that sends one message, once; runs on the scheduler's thread, where no signal arrives."""
        for batch in unsent:
            self.dispatch.begin_exclusive_send(batch)
            threads.start(self._send_until_stored, batch, data, options, name="pulsar_ext-chunks")

    def _wait_until_idle(self) -> None:
        """Wait until nothing is in flight; the lock is held exactly once."""
        dispatch, pending = self.dispatch, self.dispatch.pending
        dispatch.push_open()
        while pending.completed < pending.accepted and not pending.barred:
            dispatch.unlocked(
                dispatch.pending.wait_for, lambda: pending.barred or pending.completed >= pending.accepted
            )

    def _send_until_stored(self, batch: Batch, data: bytes | None, options: dict[str, Any]) -> None:
        """Send one message until all of it is on the topic."""
        sequence_id, recovery = batch.ids[0], self._recovery
        result: Any
        message_id: MessageId | None
        try:
            if recovery.incomplete_id == sequence_id:
                result, message_id = None, None
            else:
                result, message_id = self._send_watched(self.handle.inner, batch.message)
            if result is None:
                result, message_id = self._resolve(sequence_id, data, options)
                if recovery.incomplete_id != sequence_id and not self.dispatch.pending.barred:
                    self._reopen()
            recovery.incomplete_id = None
        except BaseException as error:  # noqa: BLE001  # the sender must get an outcome
            if not isinstance(error, pulsar.PulsarException):
                _log.exception("Could not send a chunked message")
            self.sequence.fail(f"it is unknown whether a chunked message is persisted ({error})")
            result, message_id = result_of(error), None
        self.dispatch.end_exclusive_send(batch, result, message_id)

    def _send_watched(self, producer: Any, message: Any) -> tuple[Any, MessageId | None]:
        """Send a message with a C++ producer, and close that if disconnected; return no result if it is unknown."""
        known = Flag()
        outcome: list[Any] = []

        def on_outcome(result: Any, inner: Any) -> None:
            outcome[:] = [result, inner]
            known.set()

        producer.send_async(message, on_outcome)
        while not known.wait(_POLL_SECONDS):
            if not producer.is_connected() or self.dispatch.client_closed:
                close_quietly(producer)
                if not known.wait(_PAUSE_SECONDS):
                    return None, None
        result, inner = outcome
        if result == _OK:
            return (_OK, from_inner(inner)) if inner.ledger_id() >= 0 else (None, None)
        has_no_outcome = result in NO_ROOM or (result == pulsar.Result.AlreadyClosed and not self.closed)
        return (None if has_no_outcome else result), None

    def _resolve(self, sequence_id: int, data: bytes | None, options: dict[str, Any]) -> tuple[Any, MessageId | None]:
        """Check whether all of a message is on the topic, and send it under derived names until it is."""
        recovery = self._recovery
        name, attempt = recovery.name, 0
        while True:
            # Opening a producer of the name keeps messages still in an earlier connection from being written.
            if recovery.incomplete_id != sequence_id or attempt:  # otherwise this sender's producer has the name
                close_quietly(self._retrying(partial(recovery.open_as, name)))
            self._retrying(recovery.await_writes)
            if self._retrying(lambda: is_stored(recovery.admin, recovery.topic, recovery.name, sequence_id)):
                return DUPLICATE_MESSAGE, None
            attempt += 1
            name = f"{recovery.name}~{attempt}"
            producer = self._retrying(partial(recovery.open_as, name))
            try:
                if producer.last_sequence_id() >= sequence_id:
                    continue  # the name was used by an earlier attempt, which failed
                message = build_plain(data, {**options, "sequence_id": sequence_id})
                result, message_id = self._send_watched(inner_producer_of(producer), message)
            finally:
                close_quietly(producer)
            if result is not None:
                return result, message_id

    def _reopen(self) -> None:
        """Open another C++ producer of the sender's own name."""
        close_quietly(self.handle)
        self.handle.replace(self._retrying(lambda: self._recovery.open_as(self._recovery.name)))

    def _retrying(self, ask: Callable[[], T]) -> T:
        """Retry a call within the producer's send timeout, until the producer is closed."""
        return RetryUntil(self.dispatch.timeout or 1e9, lambda: self.closed or self.dispatch.pending.barred)(ask)
