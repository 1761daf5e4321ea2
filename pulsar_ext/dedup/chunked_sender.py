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

import contextlib
import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.handles import build_plain, inner_producer_of
from pulsar_ext.errors import AdminError
from pulsar_ext.ids.message_id import MessageId, from_inner
from pulsar_ext.produce.batch import Batch
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE

from .sender import DedupProducer
from .sequence_ids import Standing, check_sequence_id
from .stored import is_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext.admin import PulsarAdmin

__all__ = ["ChunkedDedupProducer", "Redo"]

_OK = pulsar.Result.Ok
_POLL_SECONDS = 0.005
_PAUSE_SECONDS = 0.2
_METADATA_BYTES = 4096

_log = logging.getLogger("pulsar_ext")


class Redo:
    """What a producer of chunked messages needs to open others: under its own name, and under derived ones.

    Args:
        open_as: opens an official producer of a name.
        admin: the admin API.
        settle: waits until the topic has no write pending.
        topic: the topic or partition.
        name: the producer's.
        chunk_bytes: from how many bytes on a message may be sent in chunks.
        half: the id of a message that is half written, None if none is.
    """

    def __init__(
        self,
        open_as: Callable[[str], pulsar.Producer],
        admin: PulsarAdmin,
        settle: Callable[[], None],
        topic: str,
        name: str,
        chunk_bytes: int,
        half: int | None,
    ) -> None:
        self.open_as = open_as
        self.admin = admin
        self.settle = settle
        self.topic = topic
        self.name = name
        self.chunk_bytes = chunk_bytes
        self.half = half


class ChunkedDedupProducer(DedupProducer):
    """A `DedupProducer` with `chunking_enabled`."""

    __slots__ = ("_carrying", "_redo")

    def prepare(self, redo: Redo) -> None:
        """Begin: the factory's fourth step."""
        self._redo = redo
        self._carrying = False

    def post(
        self, content: Any, callback: SendCallback | None, options: dict[str, Any], *, patient: bool = False
    ) -> None:
        """Send a message alone if it may be sent in chunks; the arguments are those of `BatchingProducer.post`."""
        given = options.get("sequence_id")
        if given is not None:
            check_sequence_id(given)
        draft = self.build(content, **options)
        number = self._sequence.upcoming if given is None else given
        if draft.length() + _METADATA_BYTES < self._redo.chunk_bytes and number != self._redo.half:
            super().post(content, callback, options, patient=patient)
            return
        data = None if draft.has_null_value() else draft.data()
        with self._lock:
            if not self._has_room() and not self._make_room(callback, patient=True):
                return
            self._wait_until_idle()
            self._check_whole()
            sequence_id, standing = self._sequence.admit(given)
            if standing is not Standing.NEW:  # nothing is in flight, so it is persisted
                self._refuse(callback, DUPLICATE_MESSAGE)
                return
            batch = Batch(build_plain(data, {**options, "sequence_id": sequence_id}))
            batch.callbacks, batch.ids, batch.count, batch.began = (callback,), (sequence_id,), 1, time.monotonic()
            batch.flight = self._sequence.push([batch.ids])
            self._sequence.pushed = sequence_id
            self._accepted += 1
            self._flying.append(batch)
            self._carrying = True
        carry = threading.Thread(target=self._carry, args=(batch, data, options), name="pulsar_ext-chunks", daemon=True)
        carry.start()

    def _has_room(self, count: int = 1) -> bool:
        return not self._carrying and super()._has_room(count)

    def _wait_until_idle(self) -> None:
        """Wait until nothing is in flight; the lock is held once."""
        self._cut()
        while self._completed < self._accepted and not self._barred:
            self._lock.release()
            try:
                self.await_done(lambda: self._barred or self._completed >= self._accepted)
            finally:
                self._lock.acquire()

    def _carry(self, batch: Batch, data: bytes | None, options: dict[str, Any]) -> None:
        """Send one message until it is on the topic, whole."""
        sequence_id = batch.ids[0]
        result: Any
        message_id: MessageId | None
        try:
            if self._redo.half == sequence_id:
                result, message_id = None, None
            else:
                result, message_id = self._send_watched(self.inner, batch.message)
            if result is None:
                result, message_id = self._resolve(sequence_id, data, options)
                if self._redo.half != sequence_id and not self._barred:
                    self.inner = self._reopened()
            self._redo.half = None
        except BaseException as error:  # noqa: BLE001  # its sender must be told
            _log.exception("A message in chunks could not be sent")
            self._sequence.fail(f"it was not found out whether a message in chunks is persisted ({error})")
            result, message_id = pulsar.Result.UnknownError, None
        self._carrying = False
        if result == _OK or result is DUPLICATE_MESSAGE or result == pulsar.Result.MessageTooBig:
            self._deliver(batch, result, message_id)
        else:
            self._failed(batch, result)

    def _send_watched(self, producer: Any, message: Any) -> tuple[Any, MessageId | None]:
        """Send a message with a C++ producer, which is closed if its connection breaks; no result if it is unknown."""
        told = threading.Event()
        outcome: list[Any] = []

        def hear(result: Any, inner: Any) -> None:
            outcome[:] = [result, inner]
            told.set()

        producer.send_async(message, hear)
        while not told.wait(_POLL_SECONDS):
            if not producer.is_connected() or self._abandoned:
                with contextlib.suppress(pulsar.PulsarException):
                    producer.close()
                if not told.wait(_PAUSE_SECONDS):
                    return None, None
        result, inner = outcome
        if result == _OK:
            return (_OK, from_inner(inner)) if inner.ledger_id() >= 0 else (None, None)
        return (None, None) if result == pulsar.Result.AlreadyClosed and not self._closed else (result, None)

    def _resolve(self, sequence_id: int, data: bytes | None, options: dict[str, Any]) -> tuple[Any, MessageId | None]:
        """Find out whether a message is whole on the topic, and send it under derived names until it is."""
        redo = self._redo
        name, attempt = redo.name, 0
        while True:
            # Who takes the name over keeps what is still on an earlier connection's way from being written.
            self._close(self._patiently(partial(redo.open_as, name)))
            self._patiently(redo.settle)
            if self._patiently(lambda: is_whole(redo.admin, redo.topic, redo.name, sequence_id, trimmed=False)):
                return DUPLICATE_MESSAGE, None
            attempt += 1
            name = f"{redo.name}~{attempt}"
            producer = self._patiently(partial(redo.open_as, name))
            try:
                if producer.last_sequence_id() >= sequence_id:
                    continue  # this name was tried before, and has not got it through either
                message = build_plain(data, {**options, "sequence_id": sequence_id})
                result, message_id = self._send_watched(inner_producer_of(producer), message)
            finally:
                self._close(producer)
            if result is not None:
                return result, message_id

    @staticmethod
    def _close(producer: pulsar.Producer) -> None:
        with contextlib.suppress(pulsar.PulsarException):
            producer.close()

    def _reopened(self) -> Any:
        """Open a C++ producer of the own name again."""
        with contextlib.suppress(pulsar.PulsarException):
            self.inner.close()
        return inner_producer_of(self._patiently(lambda: self._redo.open_as(self._redo.name)))

    def _patiently(self, ask: Callable[[], Any]) -> Any:
        """Ask until there is an answer: the broker may be starting, or loading the topic."""
        deadline = time.monotonic() + (self._timeout or 1e9)
        while True:
            try:
                return ask()
            except (AdminError, pulsar.PulsarException):
                if self._closed or self._barred or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def tick(self, now: float) -> float | None:
        """Do nothing while a message in chunks is on its way: it has a deadline of its own."""
        return None if self._carrying else super().tick(now)
