"""The effectively-once producer: every message persisted exactly once, whatever dies in between.

The decisions are `dedup.py`'s. This shell sends what is new, answers for what the topic holds, and stops where it
cannot know: a producer that is told anything but an outcome, or nothing within `send_timeout_millis`, takes no more
messages.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import pulsar

from ._official import InnerMessageBuilder, rebuilt_message
from .batch_producer import _NO_OPTIONS, _OK, _TOO_BIG, BatchingProducer
from .batches import Batch
from .callbacks import DUPLICATE_MESSAGE, SendCallback
from .dedup import Standing, check_sequence_id, seal
from .errors import ProducerBroken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .bulk import Bulk
    from .dedup import InFlight, Sequence
    from .message_id import MessageId

__all__ = ["DedupProducer"]

_TIMEOUT, _CLOSED = pulsar.Result.Timeout, pulsar.Result.AlreadyClosed


class DedupProducer(BatchingProducer):
    """A `Producer` that is effectively once; made by `Client.create_producer(deduplication=True)`."""

    __slots__ = ("_flying", "_sequence", "_suspects", "_timed_out", "_timeout")

    def begin(self, sequence: Sequence, timeout_seconds: float) -> None:
        """Begin: the factory's third step."""
        self._sequence = sequence
        self._timeout = timeout_seconds
        self._timed_out = False
        self._flying: deque[Batch] = deque()
        self._suspects: dict[InFlight, list[SendCallback | None]] = {}

    def last_sequence_id(self) -> int:
        """Give the highest sequence id up to which everything is persisted, -1 if there is none."""
        return self._sequence.published

    def last_sequence_id_published(self) -> int:
        """Give the highest sequence id up to which everything is persisted: resume behind it. -1 if there is none."""
        return self._sequence.published

    def last_sequence_id_pushed(self) -> int:
        """Give the highest sequence id that a message of this producer has, persisted or on its way."""
        return self._sequence.last

    # Sending

    _swift = frozenset({"sequence_id"})

    def post(
        self, content: Any, callback: SendCallback | None, options: dict[str, Any], *, patient: bool = False
    ) -> None:
        """Put a message into its batch, if it is new; the arguments are those of `BatchingProducer.post`."""
        del patient  # a message that is refused for lack of room could not be sent behind later ones any more
        given = options.get("sequence_id")
        if given is not None:
            check_sequence_id(given)
        with self._lock:
            if not self._has_room() and not self._make_room(callback, patient=True):
                return
            self._check_whole()
            sequence = self._sequence
            sequence_id = sequence.upcoming if given is None else given
            if not options and type(data := self._schema.encode(content) if content is not None else None) is bytes:
                builder = InnerMessageBuilder()
                builder.content(data)
                builder.sequence_id(sequence_id)
                message, size = builder.build(), len(data)
            else:
                message = self.build(content, **{**options, "sequence_id": sequence_id})
                size = message.length()
            sequence_id, standing = sequence.admit(given)
            if standing is Standing.NEW:
                if options and (options.get("deliver_at") or options.get("deliver_after")):
                    self._push_alone(message, size, callback, sequence_id)
                    return
                group = self._group
                if group.count and group.size + size > self._settings.bounds.size:
                    self._cut()
                self._add(group, message, size, callback, options, sequence_id)
            elif standing is Standing.DUPLICATE or not self._suspect(sequence_id, callback):
                self._refuse(callback, DUPLICATE_MESSAGE)

    def _check_whole(self) -> None:
        if self._sequence.broken is not None:
            raise ProducerBroken(
                f"The producer {self.producer_name()} on {self.topic()} takes no more messages: "
                f"{self._sequence.broken}. "
                "Close it and create it again with its name: last_sequence_id_published() then says where to go on.",
                last_published=self._sequence.published,
            )

    def _suspect(self, sequence_id: int, callback: SendCallback | None) -> bool:
        """Have a possible duplicate wait for the outcome of the message in flight; False if that is known by now."""
        with self._done:
            group = self._sequence.flying_with(sequence_id)
            if group is None:
                return False
            self._suspects.setdefault(group, []).append(callback)
            self._accepted += 1
            return True

    # Batches

    def _push_all(self, batches: Iterable[Batch]) -> None:
        waiting = list(batches)
        flight = self._sequence.push([batch.ids for batch in waiting])
        order = seal([batch.ids for batch in waiting])
        while order:
            index, carried = order.pop(0) if len(order) > 1 else (order.pop()[0], flight.highest)
            batch = waiting[index]
            batch.flight = flight
            if carried != batch.ids[0]:
                batch.messages[0] = rebuilt_message(batch.messages[0], batch.options.get(0, _NO_OPTIONS), carried)
            if self._push(batch):
                self._sequence.pushed = max(self._sequence.pushed, carried)
                continue
            waiting, halves = [waiting[index] for index, _ in order], self._parted(batch)
            if halves:
                self._sequence.part(flight)
            else:
                self._sequence.refuse(flight, batch.ids[0])
            waiting += halves
            order = seal([batch.ids for batch in waiting]) if waiting else []

    def _push(self, batch: Batch) -> bool:
        batch.began = time.monotonic()
        self._flying.append(batch)
        if self._timeout:
            self._ticker.watch(self, batch.began + self._timeout)
        if super()._push(batch):
            return True
        if batch.count > 1:
            with self._done, contextlib.suppress(ValueError):
                self._flying.remove(batch)
        return False

    def tick(self, now: float) -> float | None:
        """Push what waited long enough, and give up on what was pushed too long ago; the ticker's call."""
        due = super().tick(now)
        if not self._timeout or self._timed_out:
            return due
        with self._done:
            oldest = self._flying[0].began + self._timeout if self._flying else None
        if oldest is None:
            return due
        if oldest > now:
            return oldest if due is None else min(due, oldest)
        self._timed_out = True
        self._sequence.fail(
            f"the broker has not answered within {self._timeout:g} s (send_timeout_millis), so that it is not known "
            "whether what was sent is persisted"
        )
        # Nothing that waits for a connection may be sent once its sender was told Timeout.
        threading.Thread(target=self._abort, name="pulsar_ext-timeout", daemon=True).start()
        return due

    def _abort(self) -> None:
        with contextlib.suppress(pulsar.PulsarException):
            self.inner.close()

    # Outcomes

    def _settled(self, batch: Batch, inner: Any) -> None:
        place = self._place(batch, inner)
        if place is None:
            self._failed(batch, pulsar.Result.UnknownError)
        elif inner.ledger_id() < 0:  # sent again after a broken connection, and persisted the first time
            self._deliver(batch, DUPLICATE_MESSAGE, None)
        else:
            self._deliver(batch, _OK, place)

    def _failed(self, batch: Batch, result: Any) -> None:
        if self._timed_out and result == _CLOSED:
            result = _TIMEOUT
        self._sequence.fail(f"a message failed with {result.name}, so that it is not known whether it is persisted")
        self._deliver(batch, result, None)

    def _deliver(self, batch: Batch, result: Any, place: tuple[int, int, int] | list[MessageId] | None) -> None:
        suspects: list[SendCallback | None] = []
        with self._done:
            with contextlib.suppress(ValueError):
                self._flying.remove(batch)
            if batch.flight is not None and self._sequence.complete(batch.flight):
                suspects = self._suspects.pop(batch.flight, [])
        super()._deliver(batch, result, place)
        if suspects:
            known = result if result not in (_OK, _TOO_BIG) else DUPLICATE_MESSAGE
            self._deliver_suspects(suspects, known)

    def _deliver_suspects(self, callbacks: list[SendCallback | None], result: Any) -> None:
        batch = Batch(single=True)
        batch.callbacks, batch.count = callbacks, len(callbacks)
        super()._deliver(batch, result, None)

    # Bulk

    def _bulk_push(self, data: list[bytes], numbers: list[Any] | None, bulk: Bulk) -> bool:
        with self._lock:
            self._wait_for_bulk(len(data))
            self._check_whole()
            sequence = self._sequence
            if numbers is None:
                ids: Any = sequence.admit_many(len(data))
            elif sequence.admit_ascending(numbers):
                ids = numbers
            else:
                return False
            messages = []
            for one, sequence_id in zip(data, ids, strict=True):
                builder = InnerMessageBuilder()
                builder.content(one)
                builder.sequence_id(sequence_id)
                messages.append(builder.build())
            self._enter_bulk(messages, bulk, ids)
        return True

    def bulk_post(self, contents: Iterable[Any], sequence_ids: Iterable[Any] | None, bulk: Bulk) -> int:
        """Send without callbacks, in whole batches where that is possible; give how many."""
        self._check_whole()
        return super().bulk_post(contents, sequence_ids, bulk)

    # The end

    def finish(self, deadline: float) -> None:
        """Push the open batches, wait for outcomes until `deadline` while the connection lasts, and close."""
        if self._timed_out:
            with contextlib.suppress(pulsar.PulsarException):  # it is closed, or closing
                super().finish(deadline)
        else:
            super().finish(deadline)
