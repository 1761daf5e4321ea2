"""The readers of a group that the broker filters for: consumers of one subscription that read as a `RangeReader`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.results import AlreadyClosed
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.chunks.leftovers import ends_in_a_half
from pulsar_ext.chunks.resolver import seek_target
from pulsar_ext.errors import InvalidUse, MisroutedMessage
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId
from pulsar_ext.ids.position import Position
from pulsar_ext.receive.order import Transition

from .consumer import RangeConsumer
from .handed_out import HandedOut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext.consumer import Subscription
    from pulsar_ext.message import Message

    from .consumer import OnMisrouted
    from .slot_filter import SlotFilter

__all__ = ["GroupReader"]

_SILENT_SECONDS = 3.0
_LONGEST_SECONDS = 60.0


class GroupReader(RangeConsumer):
    """One reader of a group that the broker filters for; iterating it gives what is available now, and ends there.

    What it delivers is acknowledged at once. After a lost connection or a restart of the broker, what it has delivered
    is not delivered again, as far back as thirty million entries of the topic; remembering them takes 4 MB. Close the
    group, not one reader, without which the others stall.
    """

    __slots__ = ("_again", "_handed_out", "_inclusive", "_reads_start", "_start", "_still")

    _start: MessageId | None
    _inclusive: bool
    """Whether the message of the start is read."""
    _reads_start: bool
    """Whether that of an id that is sought is read."""
    _handed_out: HandedOut
    _still: Any
    _again: dict[int, Any]
    """The messages, by identity, that pass although they are noted: a Ctrl-C kept them from being handed out."""

    @classmethod
    def _assemble_from_(
        cls,
        start: MessageId | None,
        inclusive: bool,
        judge: SlotFilter,
        on_misrouted: OnMisrouted,
        official: pulsar.Consumer,
        subscription: Subscription,
    ) -> Self:
        """Make a consumer of an official one, as `_assemble_judged_()`, that excludes what is before the start."""
        self = cls._assemble_judged_(judge, on_misrouted, official, subscription)
        self._start, self._inclusive, self._reads_start = start, inclusive, inclusive
        self._handed_out = HandedOut()
        self._still = OwnedLock()
        self._again = {}
        return self

    def _wanted(self, inner: Any) -> bool:
        if not super()._wanted(inner):
            return False
        inner_id, key, passes = inner.message_id(), id(inner), False
        entry, index = (inner_id.partition(), inner_id.ledger_id(), inner_id.entry_id()), inner_id.batch_index()
        size = decode(inner_id.serialize()).batch_size if index >= 0 else 0
        try:
            with self._still:
                passes = key in self._again or self._is_new(inner_id)
                if passes:
                    self._handed_out.note(entry, index, size)
            self.acknowledge(self._message_of_(inner))
            self._again.pop(key, None)
        except BaseException:
            if passes:  # it was noted, and is not handed out now
                self._again[key] = inner
            raise
        return passes

    def _is_new(self, inner_id: Any) -> bool:
        """Whether a message is after the start, and was not delivered before."""
        entry = inner_id.partition(), inner_id.ledger_id(), inner_id.entry_id()
        return self._is_behind_start(inner_id) and not self._handed_out.has(entry, inner_id.batch_index())

    def _is_behind_start(self, inner_id: Any) -> bool:
        if self._start is None:
            return True
        # Not by the partition: a start of a partition alone need not name it.
        start = self._start.ledger_id(), self._start.entry_id(), self._start.batch_index()
        here = inner_id.ledger_id(), inner_id.entry_id(), inner_id.batch_index()
        return bool(here > start or (self._inclusive and here == start))

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Read the next message of these ranges.

        A Ctrl-C ends the wait within 100 ms and loses no message.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            pulsar.Timeout: no message came in time.
            MisroutedMessage: a batch mixes keys of several readers; open the group with `filtering="client"`.
        """
        return self.receive(timeout_millis)

    def has_message_available(self) -> bool:
        """Return whether a message of these ranges can be read without waiting for one to be published.

        Raises:
            pulsar.Timeout: for a minute, there was something to read and nothing came, as when another reader of the
                group is not read, and the broker waits for it.
            AdminError: the admin API, which is asked when nothing has come, refused or did not answer.
        """
        since, times_drained = time.monotonic(), 0
        while not self._has_next():
            # Twice, with a wait between: what the broker redelivers is with nobody for a moment.
            times_drained = times_drained + 1 if self._is_drained() else 0
            silent = time.monotonic() - since if self.is_connected() else 0.0
            if times_drained > 1 or (
                silent > _SILENT_SECONDS and ends_in_a_half(self._context.admin_api, self._topics)
            ):
                return False
            if silent > _LONGEST_SECONDS:
                raise pulsar.Timeout(
                    f"{self.topic()} has messages to read, and none came in {_LONGEST_SECONDS:.0f} seconds: read all "
                    "readers of the group at the same time, for the broker waits for one that is not read."
                )
        return True

    def _has_next(self) -> bool:
        """Return whether the next receive has a message at once; waits for one for up to 100 ms.

        A message is noted and acknowledged when it is delivered, so it is only looked at here.
        """
        try:
            if not any(self._filter.kept):
                self._filter.fetch()
        except AlreadyClosed:
            self._other_than(None, self._context.operation_timeout_seconds * 1000)
        ready, unseen = self._filter.kept
        while unseen and not ready:
            inner = unseen[0]
            try:
                if id(inner) in self._again or (super()._wanted(inner) and self._is_new(inner.message_id())):
                    return True
            except MisroutedMessage:
                self.misrouted -= 1  # it waits for the next receive, which counts it again, and raises
                return True
            self._filter.drop_unwanted(inner)
        return bool(ready)

    def _is_drained(self) -> bool:
        """Return whether the broker has sent this consumer all that there is for it, and it has acknowledged that."""
        self.flush_acks()
        admin, name, subscription = self._context.admin_api(), self.inner.consumer_name(), self.subscription_name()
        for topic in self._topics_read():
            stats, internal = admin.stats(topic).subscriptions[subscription], admin.internal_stats(topic)
            own = [one for one in stats.raw.get("consumers") or () if one.get("consumerName") == name]
            if not own or own[0].get("unackedMessages"):
                return False
            if internal.cursors[subscription].read_position <= internal.last_confirmed_entry:
                return False
        return True

    def seek(self, messageid: Any) -> None:
        """Move this reader to a message by any id of it, to `MessageId.earliest` or `latest`, or to a publish time.

        The other readers of the group stay where they are: the broker sends them again what they have delivered, and
        they drop it.

        Args:
            messageid: the id, or a time in milliseconds since the epoch; on a partitioned topic `MessageId.earliest`.

        Raises:
            InvalidUse: it is neither an id nor an int, or cannot be sought on several partitions; nothing was moved.
            MessageIdNotFound, IncompleteChunkedMessage: as for `Reader.seek()`; nothing was moved.
            AdminError: the admin API refused, or did not answer; nothing was moved.
        """
        self._context.callbacks.refuse("seek")
        start, inclusive = self._start_at(messageid)
        target = MessageId.earliest
        if start is not None:  # no further back than needed: the broker forgets what the others have acknowledged
            cursor = self._context.admin_api().internal_stats(self.topic()).cursors[self.subscription_name()]
            first = start.first_chunk_message_id() if isinstance(start, ChunkMessageId) else start
            at = min(Position(first.ledger_id(), first.entry_id()), cursor.mark_delete_position)
            target = MessageId(first.partition(), at.ledger_id, max(at.entry_id, 0))
        with self._order.passing(Transition.SEEK, self._refuse_closed):
            self._order.foundation.move(target.inner)
            self._start, self._inclusive, self._handed_out, self._again = start, inclusive, HandedOut(), {}

    def _start_at(self, messageid: Any) -> tuple[MessageId | None, bool]:
        """Return from which message on to read, None for all, and whether that one itself."""
        if messageid == MessageId.earliest:
            return None, True
        if len(self._topics_read()) > 1:
            raise InvalidUse(
                f"{self._topics} has partitions: a reader of a group seeks to MessageId.earliest there. Nothing was "
                "moved; open the group with filtering='client' to seek elsewhere."
            )
        admin = self._context.admin_api()
        if messageid == MessageId.latest:
            return admin.last_message_id(self._topics), False
        if isinstance(messageid, int):
            at = admin.message_id_by_time(self._topics, seek_target(self._context.resolver, self._topics, messageid))
            return (MessageId(-1, at.ledger_id, at.entry_id) if at.ledger_id >= 0 else None), True
        return self._context.resolver.start_of(self._topics, messageid), self._reads_start

    def __iter__(self) -> Iterator[Message]:
        while self.has_message_available():
            yield self.read_next()
