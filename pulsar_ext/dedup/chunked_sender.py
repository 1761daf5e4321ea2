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
from collections.abc import Iterator
from functools import partial

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.handles import build_plain, inner_producer_of
from pulsar_ext._native.messages import InnerMessage, InnerMessageId, InnerProducer
from pulsar_ext._native.results import Result, result_of
from pulsar_ext._native.signatures import check_sequence_id
from pulsar_ext._runtime.callbacks import SendCallback
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext.ids.message_id import MessageId, from_inner
from pulsar_ext.produce.batch import Batch
from pulsar_ext.produce.options import Options
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, OutcomeWaiter
from pulsar_ext.produce.sender import close_quietly

from .sender import NO_ROOM, DedupSender
from .sequence_ids import IdStatus

_OK, _CLOSED = pulsar.Result.Ok, pulsar.Result.AlreadyClosed
_POLL_SECONDS = 0.005
_PAUSE_SECONDS = 0.2
_METADATA_BYTES = 4096

_log = logging.getLogger("pulsar_ext")


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
