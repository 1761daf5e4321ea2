"""A consumer's acknowledgements: collected, grouped, handed over, and kept until they have surely arrived.

`acknowledge()` puts the C++ message into a list and returns. What of it leaves, and in which form, is decided in
`acks.py`, a group at a time: by the caller that fills the group, by the client's `AckKeeper` thread when it has waited
long enough, or by `flush()`. While there is no connection everything stays here; what was handed over shortly before
the connection was lost is handed over again. Mirrors Java's `PersistentAcknowledgmentsGroupingTracker`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.chunks.resolver import as_message_id, entry_topic, is_open
from pulsar_ext.errors import AdminError, InvalidUse, MessageIdUnresolved
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId, Origin
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from .cursor_monitor import CursorLook
from .group_timer import Group
from .id_bytes import says_all
from .queue import Inbox
from .topic_acks import Cursor
from .tracker import AckTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pulsar_ext._runtime.scheduler import AckKeeper
    from pulsar_ext.client.client import Client
    from pulsar_ext.consumer import Consumer
    from pulsar_ext.message import Message

    from .queue import Taken
    from .tracker import Entry, Leaving, Singles

__all__ = ["Acknowledger"]

_log = logging.getLogger("pulsar_ext.acks")

_OFFICIAL_MILLIS = 100
"""How long the C++ client's own grouping holds what was handed over."""
_SHORTEST_HOLD_MILLIS = 25
_AT_HAND = 256
"""So many messages are held at most until their ids are read: more of them would not stay in the processor's cache."""
_AT_HANDS = 8 * _AT_HAND
_TICK_SECONDS = 0.04
"""How often the connection is looked at; the C++ client takes 90 ms at least to make a new one."""
_SLEPT_SECONDS = 0.085
"""Two looks further apart may have a disconnection and a reconnection between them."""
_AGAIN_SECONDS = (0.3, 1.0, 3.0)
"""When what is doubtful is sent once more after a reconnection: the C++ client calls itself connected, and sends what
it has, before the broker knows its consumer again."""
_REDELIVER_SECONDS = (3.0, 10.0, 30.0)
"""When half received chunked messages are asked for after a reconnection, if nothing was acknowledged for a while."""
_IDLE_SECONDS = 2.0


class Acknowledger:
    """The acknowledgements of one consumer.

    Args:
        client: asks the admin API for it.
        keeper: calls `tick()` while there is something to watch.
        topics: what was subscribed to.
        subscription: its name.
        time_ms: how long an acknowledgement may wait; None for the default of 100.
        max_size: how many wait at most; None for the default of 1000.
        splits: whether the subscription is Shared or Key_Shared.
        keeps_indexes: whether messages of a batch are acknowledged one by one on the broker.
    """

    def __init__(
        self,
        client: Client,
        keeper: AckKeeper,
        topics: Any,
        subscription: str,
        *,
        time_ms: int | None,
        max_size: int | None,
        splits: bool,
        keeps_indexes: bool,
    ) -> None:
        check_grouping(time_ms, max_size)
        wanted = 100 if time_ms is None else time_ms
        self.inbox = Inbox(topics)
        self.subscription = subscription
        self._max_size = 1 if wanted == 0 else 1000 if max_size is None else max_size
        self.limit = min(self._max_size, _AT_HAND)
        self._count = 0
        self.scheduled = False
        self.chunked: Callable[[bytes], None] = lambda _: None
        self._client, self._keeper, self._topics = client, keeper, topics
        # The C++ client's own grouping adds up to 100 ms; what may not wait so long has to be flushed out of it.
        self._forces = wanted < _OFFICIAL_MILLIS or (max_size is not None and max_size < 1000)  # noqa: PLR2004
        hold = wanted if wanted < _OFFICIAL_MILLIS else max(wanted - _OFFICIAL_MILLIS, _SHORTEST_HOLD_MILLIS)
        self._group = Group(hold, self._max_size)
        # Single acknowledgements become a position only where grouping was asked for: see docs/acks.md.
        self._runs = not splits and not (time_ms is None and max_size is None)
        # Single messages need not wait here where the C++ client groups as was asked for. The keeper's thread leaves
        # them to threads that fill the inbox: two that take turns at it wake each other for every message.
        self._filled = False
        self._passes = not self._runs and not self._forces and hold == _SHORTEST_HOLD_MILLIS
        self.keeps_indexes = keeps_indexes
        self._cursors: dict[str | int, Cursor] = {}
        self.lock = threading.RLock()
        self.inner: Any = None
        self._ticked: float | None = None
        self._consumer: Callable[[], Consumer | None] = lambda: None
        self._acknowledged = 0.0
        self._down = False
        self._redeliver: list[float] = []
        self._left = 0.0
        self._splits, self._chunks = splits, False
        self._again: list[float] = []
        self._look = CursorLook(self, client, subscription)
        self.closed = False

    def attach(self, inner: Any) -> None:
        """Take the C++ consumer, which may have called its listener before it is known here."""
        with self.lock:
            self.inner = inner

    # -- what the application says -------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Have the keeper look after what was put into the inbox."""
        if self._ticked is None:  # nobody has watched the connection
            self.inbox.doubt()
        self.scheduled = True
        self._keeper.watch(self)
        if not self.inbox.numbering and self._consumer() is not None:
            self._acknowledged, self.inbox.numbering, self.inbox.single = time.monotonic(), True, False
            self.number_anew()

    def numbers_for(self, consumer: Callable[[], Consumer | None]) -> None:
        """Take the consumer that may number what it receives, and does so while there are acknowledgements."""
        self._consumer = consumer

    def add_messages(self, messages: list[Message]) -> None:
        """Acknowledge messages."""
        self.inbox.messages.extend(messages)
        self._kept(self.inbox.messages)

    def takes(self, message_id: MessageId) -> bool:
        """Whether an id, of a message that is not chunked, says by itself all that has to be known."""
        if not isinstance(self._topics, str):
            return False
        return message_id.origin is Origin.LIVE or (
            message_id.origin is Origin.BYTES and says_all(message_id.serialize())
        )

    def put(self, kept: list[Any], acknowledged: Message | MessageId) -> None:
        """Put something into a list of the inbox."""
        kept.append(acknowledged)
        self._kept(kept)

    def _kept(self, kept: list[Any]) -> None:
        if len(kept) >= self.limit:
            self.filled()
        elif not self.scheduled:
            self.schedule()

    def filled(self) -> None:
        """Read what is in the inbox, and let the group leave if it has become large enough."""
        # Where the keeper's thread is at work, these can wait until it has done, unless they become many.
        if self.lock.acquire(blocking=self.limit < _AT_HAND or len(self.inbox) >= _AT_HANDS):
            try:
                if self.closed:
                    self.inbox.clear()
                    raise pulsar.AlreadyClosed("Pulsar error: AlreadyClosed: the client of this consumer was closed.")
                connected = self._is_connected()
                self._absorb(passing=self._passes and connected)
                self._filled = True
                if self._count >= self._max_size and connected:
                    self._leave(time.monotonic(), force=self._forces)
            finally:
                self.lock.release()
        if not self.scheduled:
            self.schedule()

    def add_id(self, message_id: Any) -> None:
        """Acknowledge by an id of any kind.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            MessageIdUnresolved: it cannot be found out what the id stands for; nothing is acknowledged.
        """
        ours = as_message_id(message_id)
        topic = self.topic_of(ours)
        data = decode(ours.serialize())
        entry = (data.ledger_id, data.entry_id)
        wholes: list[tuple[Entry, Any]] = []
        size, bits = 0, 0
        if ours.batch_index() >= 0:
            size, bits = self._size(topic, ours, data.batch_size), 1 << ours.batch_index()
        elif isinstance(ours, ChunkMessageId) or is_open(ours):
            inners = (
                [ours.inner]
                if ours.origin is Origin.LIVE
                else self._client.context.resolver.to_acknowledge(topic, ours)
            )
            wholes = [((inner.ledger_id(), inner.entry_id()), inner) for inner in inners]
        else:
            wholes = [(entry, None)]
        with self.lock:
            cursor = self._cursor(topic, data.partition)
            if bits:
                cursor.tracker.add_bits(entry, size, bits)
            for where, inner in wholes:
                if inner is not None and len(wholes) == 1 and b":" in inner.serialize():
                    cursor.live[where] = inner
                    self._note_first(cursor, where, inner.serialize())
                cursor.tracker.add_whole(where)
        self._added()

    def add_cumulative(self, message_id: Any) -> None:
        """Acknowledge everything up to an id."""
        ours = as_message_id(message_id)
        topic = self.topic_of(ours)
        if is_open(ours):
            last = self._client.context.resolver.last_entry(topic, ours)
            entry, size = (last.ledger_id(), last.entry_id()), 0
        else:
            data = decode(ours.serialize())
            entry = (data.ledger_id, data.entry_id)
            size = self._size(topic, ours, data.batch_size) if data.batch_index >= 0 else 0
        with self.lock:
            self._absorb()
            cursor = self._cursor(topic, ours.partition())
            cursor.tracker.add_cumulative(entry, ours.batch_index(), size)
        self._added()

    def take_back(self, message_id: MessageId) -> None:
        """Forget an acknowledgement of a message of a batch: the message is to be delivered again."""
        if message_id.batch_index() < 0:
            return
        data = decode(message_id.serialize())
        with self.lock:
            self._absorb()
            cursor = self._cursor(self.topic_of(message_id), data.partition)
            cursor.tracker.take_back((data.ledger_id, data.entry_id), data.batch_index, data.batch_size)

    def topic_of(self, message_id: MessageId) -> str:
        """Give the topic, or the partition, of an id."""
        return entry_topic(self._topics if isinstance(self._topics, str) else None, message_id)

    @property
    def pending(self) -> int:
        """How many acknowledgements have not been handed over, entries and parts of batches."""
        with self.lock:
            self._absorb()
            return sum(cursor.tracker.pending for cursor in self._cursors.values())

    # -- what leaves ---------------------------------------------------------------------------------------------------

    def flush(self) -> bool:
        """Send everything now; False if there is no connection, and everything is kept for the next."""
        with self.lock:
            self._absorb()
            if not self._is_connected():
                self.schedule()
                return False
            self._leave(time.monotonic(), force=True)
        self.schedule()
        return True

    def flush_again(self, cursor: Cursor, missing: Leaving) -> None:
        """Send once more what the broker does not show."""
        with self.lock:
            if self._is_connected():
                cursor.hand_over_missing(self.inner, missing)

    def leave_now(self) -> None:
        """Hand over everything that waits, without flushing it out of the C++ client."""
        with self.lock:
            self._absorb()
            if self._is_connected():
                self._leave(time.monotonic(), force=False)

    def is_duplicate(self, inner: Any) -> bool:
        """Whether a C++ message was acknowledged already."""
        inner_id = inner.message_id()
        with self.lock:
            self._absorb()
            cursor = self._cursor(inner.topic_name(), inner_id.partition())
            return cursor.tracker.is_duplicate((inner_id.ledger_id(), inner_id.entry_id()), inner_id.batch_index())

    def cursors(self) -> list[Cursor]:
        """Give every topic or partition that something was acknowledged on."""
        with self.lock:
            return list(self._cursors.values())

    def is_processed(self, cursor: Cursor) -> bool:
        """Wait until the broker has done what was sent to it for one topic; False if that cannot be told.

        A broker serves one connection in order, and a client has one connection to each broker.
        """
        before = time.monotonic()
        try:
            if cursor.wire.is_named:  # the C++ consumer of several topics answers no such question
                self._client.context.open_reader(cursor.topic, InnerMessageId.latest).close()  # the client's own
            else:
                self.inner.get_last_message_id()
        except pulsar.PulsarException:
            return False
        return self._is_connected() and not self._down and time.monotonic() - before < _SLEPT_SECONDS

    def flush_before_seek(self) -> None:
        """Send everything now, and nothing of it again: behind a seek it would acknowledge what is to come anew."""
        with self.lock:
            self.flush()
            for cursor in self._cursors.values():
                cursor.sent.take()
            self._again = []

    def forget(self) -> None:
        """Forget everything that was acknowledged and has not left: the cursor was moved elsewhere."""
        with self.lock:
            self._absorb()
            for cursor in self._cursors.values():
                cursor.forget()

    def close(self) -> None:
        """Hand over what is left; the C++ consumer sends it as it closes."""
        with self.lock:
            self._absorb()
            pending = self.pending
            if self.inner is not None and self._is_connected():
                self._leave(time.monotonic(), force=False)
            elif pending:
                _log.warning(
                    "A consumer of %s was closed without a connection: %d acknowledgements are lost, and their "
                    "messages will be delivered again.",
                    self._topics,
                    pending,
                )
            self.closed = True
            self.limit = 0

    def tick(self, now: float) -> float | None:
        """Look after the group and the connection.

        Args:
            now: `time.monotonic()`.

        Returns:
            After how many seconds to look again; None if there is nothing to watch.
        """
        with self.lock:
            if self.closed:
                return None
            if self.inner is None:
                return _TICK_SECONDS
            self.scheduled = False  # before the inbox is emptied: what comes later schedules anew
            connected, looked = self._is_connected(), self._ticked
            self._watch_connection(now, connected=connected)
            if not (self._passes and self._filled):
                self._absorb(passing=self._passes and connected)
            self._filled = False
            self._watch_numbers(now)
            pending = sum(cursor.tracker.pending for cursor in self._cursors.values())
            if connected and self._group.is_due(pending, now, looked):
                self._leave(now, force=self._forces)
                pending = 0
            if not self._down and not self._again:  # what left before the connection was lost is sent again after it
                for cursor in self._cursors.values():
                    cursor.expire(now)
            watching = (
                pending
                or self._down
                or (self._splits and self._chunks)
                or self.inbox.numbering
                or any(cursor.sent or cursor.reached for cursor in self._cursors.values())
            )
        if connected:
            self._look.look(now)
        if not watching and not len(self.inbox):
            self._ticked = None
            return None
        self.scheduled = True
        return min(_TICK_SECONDS, max(self._group.wait(now), 0.0) or _TICK_SECONDS)

    def _added(self) -> None:
        with self.lock:
            pending = sum(cursor.tracker.pending for cursor in self._cursors.values())
        if pending >= self._max_size:
            self._count = pending
            self.filled()
        elif not self.scheduled:
            self.schedule()

    def _absorb(self, *, passing: bool = False) -> None:
        """Read what is in the inbox.

        Args:
            passing: give single messages to the C++ consumer at once, so that they need not be kept.
        """
        inbox, now = self.inbox, time.monotonic()
        if self._ticked is None or now - self._ticked > _SLEPT_SECONDS:
            inbox.doubt()
        if len(inbox):
            self._acknowledged = now
        if inbox.messages:
            count, taken = len(inbox.messages), inbox.take_messages()
            if inbox.single != (taken.singles is not None):
                inbox.single = not inbox.single
                self.number_anew()
            if taken.singles is not None and passing:
                self._pass_on(taken.singles, taken.messages, now)
            else:
                self._count += count
                self._add(taken)
        if inbox.ids:
            self._count += len(inbox.ids)
            self._add(inbox.take_ids())
        if inbox.positions or inbox.position_ids:
            self._count += 1
        for taken in (inbox.take_positions(), inbox.take_position_ids()):
            for partition, entry, size, bits, at in taken.found:
                to = self._cursor_of(taken.topic_at(at), partition)
                to.tracker.add_cumulative(entry, bits.bit_length() - 1, max(size, 0))

    def _pass_on(self, singles: Singles, messages: Sequence[Any], now: float) -> None:
        """Give messages to the C++ consumer as they are: it takes one in half the time of an id."""
        cursor = self._cursor_of(None, singles.partition)
        cursor.note_passed(singles, now)
        self._left = now
        acknowledge = self.inner.acknowledge
        with _refused(cursor, len(singles)):
            for message in messages:
                acknowledge(message)

    def _add(self, taken: Taken) -> None:
        if taken.singles is not None:
            self._cursor_of(None, taken.singles.partition).tracker.add_singles(taken.singles)
        for partition, entry, size, bits, at in taken.found:
            to = self._cursors.get(partition) or self._cursor_of(taken.topic_at(at), partition)
            if size > 0:
                to.tracker.add_bits(entry, size, bits)
                continue
            if size < 0:  # chunked: only its live id knows every chunk
                to.live[entry] = taken.id_at(at)
                data = bytes(to.live[entry].serialize())
                self._note_first(to, entry, data)
                self._chunks = True
                self.chunked(data)
            to.tracker.add_whole(entry)

    @staticmethod
    def _note_first(cursor: Cursor, entry: Entry, data: bytes) -> None:
        first = decode(data).first_chunk
        if first is not None:
            cursor.firsts[entry] = (first.ledger_id, first.entry_id)

    def _cursor_of(self, topic: str | None, partition: int) -> Cursor:
        if topic is None:
            if partition in self._cursors:
                return self._cursors[partition]
            name = TopicName.parse(self._topics)
            topic = str(name if partition < 0 or name.is_partition else name.partition(partition))
        return self._cursor(topic, partition)

    def _cursor(self, topic: str, partition: int) -> Cursor:
        several = not isinstance(self._topics, str)
        key: str | int = topic if several else partition
        if key not in self._cursors:
            tracker = AckTracker(runs=self._runs, keeps_indexes=self.keeps_indexes)
            self._cursors[key] = Cursor(topic, partition, named=several or partition >= 0, tracker=tracker)
        return self._cursors[key]

    def _size(self, topic: str, message_id: MessageId, size: int) -> int:
        """Give how many messages the id's batch has."""
        if size > message_id.batch_index():
            return size
        entry = (message_id.ledger_id(), message_id.entry_id())
        with self.lock:
            self._absorb()
            known = self._cursor(topic, message_id.partition()).tracker.partly().get(entry)
        if known is not None and known[0] > message_id.batch_index():
            return known[0]
        try:
            headers = self._client.context.admin_api().entry(topic, *entry)  # the client's own part
        except AdminError as error:
            raise MessageIdUnresolved(
                f"{message_id!r} does not say how many messages its batch has, nor does the admin API: {error} Nothing "
                "was acknowledged. Store message_id.serialize() instead of numbers, or give Client(admin=…).",
                position=Position(*entry),
            ) from None
        found = headers.num_messages_in_batch or 1
        if found <= message_id.batch_index():
            raise InvalidUse(f"{message_id!r} names a message of a batch that has {found}. Nothing was acknowledged.")
        return found

    def _leave(self, now: float, *, force: bool) -> None:
        for cursor in self._cursors.values():
            leaving = cursor.tracker.leave()
            if leaving:
                with _refused(cursor, len(leaving)):
                    cursor.hand_over(self.inner, leaving, now)
            if force and (leaving or cursor.sent):
                cursor.wire.flush(self.inner)
            if leaving:
                self._left = now
        self._group.left()
        self._count = 0

    def _is_connected(self) -> bool:
        return self.inner is not None and bool(self.inner.is_connected())

    # -- after a disconnection -----------------------------------------------------------------------------------------

    def _watch_connection(self, now: float, *, connected: bool) -> None:
        """Notice disconnections, and send again after them."""
        if self._ticked is None:  # nobody has looked for a while: the connection may be as new as this
            self._again = [now + _AGAIN_SECONDS[0]]
        slept = self._ticked is not None and now - self._ticked > _SLEPT_SECONDS
        if not connected or slept or self._ticked is None:
            self.inbox.doubt()
        self._ticked = now
        if not connected:
            self._down = True
        elif self._down:
            self._reconnected(now)
        elif slept and not self._again:  # a machine this busy may have hidden a short disconnection
            self._again = [now + _AGAIN_SECONDS[1]]
            self._look.after(self._again[0])
        elif self._again and now >= self._again[0]:
            del self._again[0]
            self._hand_over_again(now, keep=bool(self._again))
        if self._redeliver and now >= self._redeliver[0] and connected:
            del self._redeliver[0]
            if self._splits and self._chunks and now - self._left > _IDLE_SECONDS:
                # The C++ client drops chunks whose first it did not get: that may be with another consumer.
                self.number_anew()
                self.inner.redeliver_unacknowledged_messages()

    def _watch_numbers(self, now: float) -> None:
        """Let the consumer number no more messages when none was acknowledged for a while."""
        if self.inbox.numbering and now - self._acknowledged > _IDLE_SECONDS:
            self.inbox.numbering = False
            self.number_anew()

    def number_anew(self) -> None:
        """Tell the consumer that what follows is not behind what came, or is to be numbered otherwise."""
        if (consumer := self._consumer()) is not None:
            consumer._number_anew()  # noqa: SLF001  # its other half

    def _reconnected(self, now: float) -> None:
        """Send again what may have been lost, and look a little later whether the broker has it."""
        self._down = False
        self._hand_over_again(now, keep=True)
        self._redeliver = [now + seconds for seconds in _REDELIVER_SECONDS]
        self._again = [now + seconds for seconds in _AGAIN_SECONDS]
        self._look.after(self._again[-1])

    def _hand_over_again(self, now: float, *, keep: bool) -> None:
        for cursor in self._cursors.values():
            cursor.hand_over_again(self.inner, now, keep=keep)


@contextlib.contextmanager
def _refused(cursor: Cursor, count: int) -> Iterator[None]:
    """Tell of acknowledgements that the C++ consumer refuses, as for a message of a topic that is not its own."""
    try:
        yield
    except pulsar.AlreadyClosed:
        raise
    except pulsar.PulsarException as error:
        _log.error("%d acknowledgements on %s were refused: %s", count, cursor.topic, error)


def check_grouping(time_ms: object, max_size: object) -> None:
    """Refuse what cannot group acknowledgements.

    Raises:
        InvalidUse: the time is no int of 0 or more, or the size none of 1 or more.
    """
    if time_ms is not None and (isinstance(time_ms, bool) or not isinstance(time_ms, int) or time_ms < 0):
        raise InvalidUse(f"ack_group_time_ms is an int of milliseconds, 0 or more, not {time_ms!r}.")
    if max_size is not None and (isinstance(max_size, bool) or not isinstance(max_size, int) or max_size < 1):
        raise InvalidUse(f"max_ack_group_size is an int, 1 or more, not {max_size!r}.")
