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
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.errors import ProducerBroken
from pulsar_ext.produce.batch import Batch, seal
from pulsar_ext.produce.batching import BatchingProducer
from pulsar_ext.produce.options import key_of, stands_alone
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE

from .sequence_ids import Standing, check_sequence_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext.produce.batch import Group
    from pulsar_ext.produce.outcome import Bulk, Place

    from .sequence_ids import InFlight, Sequence

__all__ = ["DedupProducer"]

_OK, _TOO_BIG = pulsar.Result.Ok, pulsar.Result.MessageTooBig
_TIMEOUT, _CLOSED = pulsar.Result.Timeout, pulsar.Result.AlreadyClosed


class DedupProducer(BatchingProducer):
    """A `Producer` that is effectively once; made by `Client.create_producer(deduplication=True)`."""

    __slots__ = ("_flying", "_sequence", "_suspects", "_timed_out", "_timeout")

    def begin(self, sequence: Sequence, timeout_seconds: float) -> None:
        """Begin: the factory's third step."""
        self._sequence = self._numbers = sequence
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
        return self._sequence.highest

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
        alone = not self._settings.batched or stands_alone(options)
        data, fields, keys = (b"", b"", b"") if alone else self.encode(content, options)
        if type(data) is not bytes:
            self.build(content)  # raises what the official client raises
        with self._lock:
            if not self._has_room() and not self._make_room(callback, patient=True):
                return
            self._check_whole()
            message = None
            if alone:
                number = self._sequence.upcoming if given is None else given
                message = self.build(content, **{**options, "sequence_id": number})
            sequence_id, standing = self._sequence.admit(given)
            if standing is Standing.DUPLICATE or (
                standing is Standing.POSSIBLE and not self._suspect(sequence_id, callback)
            ):
                self._refuse(callback, DUPLICATE_MESSAGE)
            elif standing is Standing.NEW and alone:
                self._push_alone(message, callback, (sequence_id,))
            elif standing is Standing.NEW:
                self._join(key_of(options), (data, callback, sequence_id, fields, keys))

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

    def _seal(self, group: Group) -> deque[Batch]:
        batches = group.close()
        group.flight = self._sequence.push([batch.ids for batch in batches])
        return self._ordered(group, batches)

    @staticmethod
    def _ordered(group: Group, batches: list[Batch]) -> deque[Batch]:
        """Give a group's batches in the order to push, each with the id that it carries."""
        ordered: deque[Batch] = deque()
        assert group.flight is not None  # noqa: S101  # sealed
        for index, carried in seal([batch.ids for batch in batches]) if batches else ():
            batch = batches[index]
            batch.carried, batch.flight = carried, group.flight
            ordered.append(batch)
        if ordered:
            ordered[-1].carried = group.flight.highest  # of what was pushed before as well
        return ordered

    def _push(self, batch: Batch) -> None:
        if self._sequence.broken is not None and batch.feed is None:
            self._ticker.run(partial(self._failed, batch, _CLOSED))  # behind what may be missing
            return
        if batch.feed is None:
            self._flying.append(batch)
            if self._timeout:
                self._ticker.watch(self, time.monotonic() + self._timeout)
        super()._push(batch)
        if not batch.refused and batch.carried is not None:
            self._sequence.pushed = max(self._sequence.pushed, batch.carried)

    def _part(self, group: Group) -> None:
        assert group.sealed is not None  # noqa: S101  # it is being pushed
        assert group.flight is not None  # noqa: S101
        batch = group.sealed[0]
        if batch.count == 1:
            self._sequence.refuse(group.flight, batch.ids[0])
        else:
            self._sequence.part(group.flight)
            with self._done, contextlib.suppress(ValueError):
                self._flying.remove(batch)
        super()._part(group)
        group.sealed = self._ordered(group, list(group.sealed))

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

    def _told(self, batch: Batch, result: Any, inner: Any) -> None:
        if result not in (_OK, _TOO_BIG):
            # At once, and not where its sender is told: until then, what is sent next would leave a hole before it.
            self._sequence.fail(_unknown(result))
        super()._told(batch, result, inner)

    def _settled(self, batch: Batch, inner: Any) -> None:
        if inner.ledger_id() < 0:  # sent again after a broken connection, and persisted the first time
            self._deliver(batch, DUPLICATE_MESSAGE, None)
        else:
            super()._settled(batch, inner)

    def _failed(self, batch: Batch, result: Any) -> None:
        if self._timed_out and result == _CLOSED:
            result = _TIMEOUT
        self._sequence.fail(_unknown(result))
        self._deliver(batch, result, None)

    def _deliver(self, batch: Batch, result: Any, place: Place | None) -> None:
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
        batch = Batch()
        batch.callbacks, batch.count = callbacks, len(callbacks)
        super()._deliver(batch, result, None)

    # Bulk

    def _bulk_push(self, data: list[bytes], numbers: list[Any] | None, bulk: Bulk) -> bool:
        if not self._settings.batched:
            return False
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
            self._push_whole(Batch.of(data, ids, bulk))
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


def _unknown(result: Any) -> str:
    return f"a message failed with {result.name}, so that it is not known whether it is persisted"
