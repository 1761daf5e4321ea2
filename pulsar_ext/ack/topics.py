"""Store a consumer's acknowledgements per topic or partition: pending, sent and unconfirmed ones.

`acknowledge()` appends the message to the inbox and returns. The inbox is read some hundred messages at a time: by the
native core in C++, and without it by the bytes of their ids.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import pulsar

from pulsar_ext._native.core import Run, acknowledge, runs
from pulsar_ext._native.messages import InnerConsumer, InnerMessage, InnerMessageId, serialized_ids
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.chunks.resolver import as_message_id, entry_topic
from pulsar_ext.ids.message_id import MessageId, Origin
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message
from pulsar_ext.receive.seeks import Topics

from .delivery import TopicDelivery
from .groups import AckGroup, Entry, Singles, whole_without
from .ids import acknowledged_by, acknowledged_up_to, gather, is_complete_id, singles
from .native_sender import NativeSender
from .tracker import AckTracker, RecentAcks, Unacked

_log = logging.getLogger("pulsar_ext.acks")

_CHUNKED = -2
"""Size of a chunked message in `gather()` and `runs()`; -1 is an unknown batch size."""
_MAX_UNCONFIRMED = 20_000
"""Minimum number of entries that a confirmed flush checks; earlier ones have arrived long before."""


class TopicAcks(TopicDelivery):
    """The acknowledgements on one topic or partition."""

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        named: bool,
        tracker: AckTracker,
        unacked: Unacked[InnerMessageId] | None = None,
    ) -> None:
        super().__init__()
        self.topic, self.tracker, self._unacked = topic, tracker, unacked
        self.has_cursor = TopicName.parse(topic).is_persistent
        """True if the broker stores a cursor; False for a non-persistent topic."""
        self.sender = NativeSender(topic if named else None, partition)
        self.remembered: RecentAcks | None = None
        """Acknowledged messages that may be redelivered; None while the connection is surely unchanged."""
        self.live: dict[Entry, InnerMessageId] = {}
        self.first_chunks: dict[Entry, Entry] = {}
        self._unconfirmed: dict[Entry, tuple[int, int] | None] = {}
        self._passed: deque[Singles] = deque()
        self._passed_count = 0

    def record_passed(self, singles: Singles, now: float) -> None:
        """Store single messages that were passed to the native consumer."""
        self.tracker.highest = max(self.tracker.highest, singles.highest)
        self.sent.add(singles, now, {})
        if self.remembered is not None:
            self.remembered.add(singles)
        if self._unacked is not None:
            self._unacked.acknowledge(self.topic, AckGroup(whole=tuple(singles.entries)))
        if not self.has_cursor:
            return
        self._passed.append(singles)
        self._passed_count += len(singles)
        while self._passed_count - len(self._passed[0]) > _MAX_UNCONFIRMED:
            self._passed_count -= len(self._passed.popleft())

    def unconfirmed(self) -> dict[Entry, tuple[int, int] | None]:
        """Return what was sent and not confirmed; the value of a partial batch is its size and bit set."""
        for some in self._passed:
            self._unconfirmed.update(dict.fromkeys(some.entries))
        self._forget_passed()
        if (count := len(self._unconfirmed)) > 2 * _MAX_UNCONFIRMED:
            # All at once: each removal of the first key of a dictionary is slower than the one before.
            self._unconfirmed = dict(islice(self._unconfirmed.items(), count - _MAX_UNCONFIRMED, None))
        return self._unconfirmed

    def confirmed(self, entry: Entry, part: tuple[int, int] | None) -> None:
        """Remove what the broker's cursor shows, unless more of the same batch was sent since."""
        if self._unconfirmed.get(entry, ()) == part:
            self._unconfirmed.pop(entry, None)

    def send_group(
        self, inner: InnerConsumer, now: float, check_connection: Callable[[], None], *, force: bool
    ) -> bool:
        """Pass pending acknowledgements to the native consumer; return True if there were any."""
        if self.is_held:
            return False
        group = self.tracker.next_group()
        if group:
            with log_rejected_acks(self, len(group)):
                self._send(inner, group, now, check_connection)
            self.tracker.group_sent()
        if force and (group or self.sent):
            self.sender.flush(inner)
        return bool(group)

    def _send(self, inner: InnerConsumer, group: AckGroup, now: float, check_connection: Callable[[], None]) -> None:
        live = self.live
        self.sent.add(group, now, live)
        if self.remembered is not None:
            self.remembered.add(group)
        self.sender.send(inner, group, live, check_connection)
        self.live = {}  # all pending ids were sent
        if self._unacked is not None:
            self._unacked.acknowledge(self.topic, group)
        if not self.has_cursor:
            self.first_chunks.clear()
            return
        unconfirmed = self.unconfirmed()
        if group.cumulative is not None:
            self.highest_sent = max(group.cumulative, self.highest_sent or group.cumulative)
            upto = group.cumulative
            for entry in [entry for entry in unconfirmed if entry <= upto]:
                del unconfirmed[entry]
            unconfirmed[upto] = None
            self.first_chunks = {entry: first for entry, first in self.first_chunks.items() if entry > upto}
        # Limited: a million entries would take longer than the longest poll interval of the connection.
        unconfirmed.update(dict.fromkeys(group.whole[-_MAX_UNCONFIRMED:]))
        for entry in group.whole if self.first_chunks else ():
            if (first := self.first_chunks.pop(entry, None)) is not None:
                unconfirmed[first] = None
        for entry, size, bits in group.indexes:
            unconfirmed[entry] = (size, bits)

    def resend_missing(self, inner: InnerConsumer, missing: AckGroup, check_connection: Callable[[], None]) -> None:
        """Resend acknowledgements that the broker's cursor does not show."""
        self.sender.send(inner, missing, self.sent.ids, check_connection)

    def remember(self, since: float) -> None:
        """Remember what was sent since a time, and what is sent from now on: it may be redelivered.

        A non-persistent topic redelivers nothing, and its messages may all have one position.
        """
        before = self.remembered
        if self.has_cursor and (before is None or since < before.since):
            self.remembered = RecentAcks(since, self.sent.arrived if before is None else before.arrived)
            self.remembered.add(self.sent.since(since))

    def is_redelivered_duplicate(self, entry: Entry, index: int) -> bool:
        """Return True if a redelivered message was acknowledged on a connection that was lost."""
        remembered = self.remembered
        if remembered is None or remembered.detects_reset(entry):
            return False
        return remembered.has(entry, index) or self.tracker.holds(entry, index)

    def withdraw(self, entry: Entry, index: int, size: int, now: float) -> None:
        """Withdraw the acknowledgement of a message that is to be redelivered; `size` is 0 if unknown."""
        self.tracker.withdraw(entry, index, size)
        self.sent.withdraw(entry, index, size, now)
        if self.remembered is not None:
            self.remembered.withdraw(entry, index, size)
        unconfirmed = self.unconfirmed()
        if entry in unconfirmed:
            size, bits = unconfirmed.pop(entry) or (size, (1 << size) - 1)
            if bits := bits & whole_without(index, size):
                unconfirmed[entry] = size, bits

    def forget_sent(self) -> None:
        """Drop sent acknowledgements, and accept redelivered messages: a seek moves the cursor."""
        self.sent.take()
        self.remembered = None

    def forget(self) -> None:
        """Drop everything: the cursor was moved."""
        self.tracker.clear()
        self.sender.forget()
        self.forget_sent()
        self.live.clear()
        self.first_chunks.clear()
        self._forget_passed()
        self._unconfirmed.clear()
        self.resend_window = self.highest_sent = self.expected_mark = None
        self.is_held = False

    def _forget_passed(self) -> None:
        self._passed.clear()
        self._passed_count = 0


class AcksByTopic:
    """The acknowledgements of one consumer, by topic or partition."""

    __slots__ = ("_keeps_indexes", "_known", "_runs", "_several", "_topic", "remembers", "unacked")

    def __init__(self, topics: Topics, *, runs: bool, keeps_indexes: bool) -> None:
        self._topic, self._several = (topics, False) if isinstance(topics, str) else ("", True)
        self._runs, self._keeps_indexes = runs, keeps_indexes
        self._known: dict[str | int, TopicAcks] = {}
        self.unacked: Unacked[InnerMessageId] | None = None
        """Messages with an acknowledgement timeout; set before the first acknowledgement."""
        self.remembers = False
        """True while acknowledged messages may be redelivered."""

    def __iter__(self) -> Iterator[TopicAcks]:
        return iter(self._known.values())

    def __len__(self) -> int:
        """Return the number of topics and partitions with acknowledgements."""
        return len(self._known)

    def of(self, topic: str | None, partition: int) -> TopicAcks:
        """Return the acknowledgements of a topic or partition; `topic` is None if only one was subscribed to.

        An id built from numbers has no partition. Nor has one of a producer that was created on this partition.
        """
        known = self.known(topic, partition)
        return self._new(topic, partition) if known is None else known

    def known(self, topic: str | None, partition: int) -> TopicAcks | None:
        """Return the acknowledgements of a topic or partition; None if nothing was acknowledged there."""
        if partition < 0 and not self._several and topic is not None:
            partition = TopicName.parse(topic).partition_index
        return self._known.get(topic if self._several and topic is not None else partition)

    def of_message(self, message: InnerMessage | Message, partition: int) -> TopicAcks | None:
        """Return the acknowledgements on the topic of a message; None if nothing was acknowledged there."""
        if self._several:
            return self._known.get(message.topic_name())
        return self._known.get(partition) or self.known(message.topic_name(), partition)

    def _new(self, topic: str | None, partition: int) -> TopicAcks:
        name = TopicName.parse(self._topic if topic is None else topic)
        if partition < 0 and name.is_partition:
            return self.of(topic, name.partition_index)
        if topic is None:
            topic = str(name if partition < 0 or name.is_partition else name.partition(partition))
        runs = self._runs and TopicName.parse(topic).is_persistent  # a non-persistent topic has no cursor
        tracker = AckTracker(runs=runs, keeps_indexes=self._keeps_indexes)
        acks = TopicAcks(topic, partition, named=self._several or partition >= 0, tracker=tracker, unacked=self.unacked)
        if self.remembers:
            acks.remember(math.inf)
        self._known[topic if self._several else partition] = acks
        return acks


@contextlib.contextmanager
def log_rejected_acks(topic: TopicAcks, count: int) -> Iterator[None]:
    """Log acknowledgements that the native consumer rejects, such as one of a topic it does not read."""
    try:
        yield
    except pulsar.AlreadyClosed:
        raise
    except pulsar.PulsarException as error:
        _log.error("%d acknowledgements on %s were rejected: %s", count, topic.topic, error)


class InboxBatch(NamedTuple):
    """Acknowledgements read from one list of an inbox."""

    size: int
    """Number of items read."""
    found: Iterable[tuple[int, Entry, int, int, int]]
    """The items as `gather()` yields them."""
    id_at: Callable[[int], InnerMessageId]
    """Returns the native id at an index."""
    topic_at: Callable[[int], str | None] = lambda _: None
    """Returns the topic at an index; None for a consumer of one topic."""
    singles: Singles | None = None
    """Replaces `found` if all items are single messages of one ledger."""
    messages: list[Message] = []  # noqa: RUF012  # never modified
    """The messages of `singles`."""
    is_first_at: Callable[[int], bool] = lambda _: False
    """Returns True if the message at an index was never redelivered; False if unknown."""


_message_id = InnerMessage.message_id


class AckInbox:
    """The acknowledgements of one consumer that were not read yet; any thread may append."""

    __slots__ = ("_one", "ids", "messages", "position_ids", "positions")

    def __init__(self, topics: Topics) -> None:
        self.messages: list[Message] = []
        """Messages acknowledged one by one."""
        self.ids: list[MessageId] = []
        """Received or sent ids acknowledged one by one."""
        self.positions: list[Message] = []
        """Messages acknowledged cumulatively."""
        self.position_ids: list[MessageId] = []
        """Received or sent ids acknowledged cumulatively."""
        self._one = isinstance(topics, str)

    def __len__(self) -> int:
        return len(self.messages) + len(self.ids) + len(self.positions) + len(self.position_ids)

    @property
    def has_more_than_messages(self) -> bool:
        """True if the inbox contains ids or cumulative acknowledgements."""
        return bool(self.ids or self.positions or self.position_ids)

    def clear(self) -> None:
        """Drop everything."""
        for kept in (self.messages, self.ids, self.positions, self.position_ids):
            kept.clear()

    # What was read stays in the inbox until it was processed: a Ctrl-C can cause it to be processed twice.

    def read(self, kept: list[Message], *, at_once: bool) -> InboxBatch:
        """Read acknowledged messages; `at_once` if single ones need not be read one by one."""
        taken = list(kept)

        def id_at(at: int) -> InnerMessageId:
            return _message_id(taken[at].inner)

        def topic_at(at: int) -> str | None:
            return None if self._one else taken[at].topic_name()

        def is_first_at(at: int) -> bool:
            return not taken[at].redelivery_count()

        read_as = partial(InboxBatch, len(taken), id_at=id_at, is_first_at=is_first_at)
        if (found := runs(taken)) is not None:
            all_singles = _singles_of(found) if found and at_once and self._one else None
            entries = chain.from_iterable(map(entries_of, () if all_singles else found))
            return read_as(entries, topic_at=topic_at, singles=all_singles, messages=taken if all_singles else [])
        data = serialized_ids(taken)
        if not self._one:
            each = ((*one[:4], at) for at in range(len(taken)) for one in gather(data[at : at + 1]))
            return read_as(each, topic_at=topic_at)
        if at_once and (all_singles := singles(data)) is not None:
            return read_as((), singles=all_singles, messages=taken)
        return read_as(gather(data))


def _read_ids(kept: list[MessageId]) -> InboxBatch:
    taken = list(kept)
    found = gather([one.serialize() for one in taken])
    return InboxBatch(len(taken), found, lambda at: taken[at].inner, lambda at: taken[at].topic_name())


def entries_of(run: Run) -> Iterator[tuple[int, Entry, int, int, int]]:
    """Yield the items of a run, as `gather()` does."""
    partition, ledger, entry, size, first, last, at = run
    if size:
        bits = ((1 << (last - first + 1)) - 1) << first if first >= 0 else 0
        yield partition, (ledger, entry), size, bits, at
    else:
        for each in _row_of(run):
            yield partition, (ledger, each), 0, 0, at


def _row_of(run: Run) -> range:
    """Return the entry ids of a run of single messages."""
    _, _, entry, _, first, last, _ = run
    return range(entry, entry + last - first + 1)


def _singles_of(found: list[Run]) -> Singles | None:
    """Return runs as `Singles` if all are single messages of one ledger; None otherwise."""
    partition, ledger = found[0][:2]
    if any((*run[:2], run[3]) != (partition, ledger, 0) for run in found):
        return None
    return Singles(
        partition, ledger, _row_of(found[0]) if len(found) == 1 else [*chain.from_iterable(map(_row_of, found))]
    )


def _ignore(*_: object) -> None:
    """Do nothing."""


class AckCollector:
    """The acknowledgements of one consumer until they are sent; the caller holds a lock, and calls `absorb()` first."""

    __slots__ = (
        "_before",
        "_context",
        "_topics",
        "acknowledged",
        "by_topic",
        "chunked",
        "chunks_begin",
        "count",
        "has_chunks",
        "inbox",
    )

    def __init__(self, context: ClientContext, topics: Topics, *, runs: bool, keeps_indexes: bool) -> None:
        self._context, self._topics = context, topics
        self.inbox = AckInbox(topics)
        self.by_topic = AcksByTopic(topics, runs=runs, keeps_indexes=keeps_indexes)
        self.count = 0
        """Number of acknowledgements read since the last group was sent."""
        self.acknowledged = 0.0
        """Time of the last acknowledgement."""
        self._before = 0.0
        """Time of the last acknowledgement but one."""
        self.has_chunks = False
        """True after a chunked message was acknowledged."""
        self.chunked: Callable[[bytes], None] = _ignore
        """Called with the id of each acknowledged chunked message."""
        self.chunks_begin: Callable[[], None] = _ignore
        """Called when the first chunked message is acknowledged."""

    @property
    def may_have_chunks(self) -> bool:
        """True if the topic may have chunked messages: one was acknowledged, or nothing was acknowledged yet."""
        return self.has_chunks or not self.acknowledged

    def is_busy(self, now: float, seconds: float) -> bool:
        """Return True if the last two acknowledgements, and now, are less than `seconds` apart."""
        return now - self.acknowledged < seconds and self.acknowledged - self._before < seconds

    # -- reading the inbox ---------------------------------------------------------------------------------------------

    def absorb(self, now: float, pass_to: Callable[[], InnerConsumer | None]) -> bool:
        """Read the inbox; return True if messages were passed to the native consumer.

        `pass_to` returns the native consumer to which single messages are passed at once, or None. It is called after
        the inbox was read: acknowledgements made without a connection are stored.
        """
        inbox, passed = self.inbox, False
        if len(inbox):
            self._before, self.acknowledged = self.acknowledged, now
        if inbox.messages:
            taken = inbox.read(inbox.messages, at_once=True)
            if taken.singles is not None and (inner := pass_to()) is not None:
                self._pass_to_native(taken.singles, taken.messages, now, inner)
                passed = True
            else:
                self._add(taken)
            del inbox.messages[: taken.size]
        if inbox.ids:
            taken = _read_ids(inbox.ids)
            self._add(taken)
            del inbox.ids[: taken.size]
        if inbox.positions:
            taken = inbox.read(inbox.positions, at_once=False)
            self._add_positions(taken)
            del inbox.positions[: taken.size]
        if inbox.position_ids:
            taken = _read_ids(inbox.position_ids)
            self._add_positions(taken)
            del inbox.position_ids[: taken.size]
        return passed

    @property
    def pending(self) -> int:
        """Number of acknowledgements that were read and not sent: entries and partly acknowledged batches."""
        return sum(topic.tracker.pending for topic in self.by_topic)

    def release_partial(self, *, everything: bool = False) -> None:
        """Release partial batches without new acknowledgements since the last call, or all of them."""
        for topic in self.by_topic:
            topic.tracker.release_partial(everything=everything)

    def _pass_to_native(self, singles: Singles, messages: list[Message], now: float, inner: InnerConsumer) -> None:
        """Pass messages to the native consumer unchanged: this takes half the time of an id."""
        to = self.by_topic.of(None, singles.partition)
        to.record_passed(singles, now)
        with log_rejected_acks(to, len(singles)):
            acknowledge(inner, messages)

    def _add(self, taken: InboxBatch) -> None:
        self.count += taken.size
        if taken.singles is not None:
            self.by_topic.of(None, taken.singles.partition).tracker.add_singles(taken.singles)
        for partition, entry, size, bits, at in taken.found:
            to = self.by_topic.of(taken.topic_at(at), partition)
            if size > 0:
                if not to.tracker.add_bits(entry, size, bits) and taken.is_first_at(at):
                    to.tracker.resend_partial(entry)
                continue
            if size < 0:
                self._add_chunked(to, entry, taken.id_at(at))
            to.tracker.add_whole(entry)

    def _add_positions(self, taken: InboxBatch) -> None:
        self.count += 1
        for partition, entry, size, bits, at in taken.found:
            to = self.by_topic.of(taken.topic_at(at), partition)
            to.tracker.add_cumulative(entry, bits.bit_length() - 1, max(size, 0))

    def _add_chunked(self, to: TopicAcks, entry: Entry, inner_id: InnerMessageId) -> None:
        """Keep the native id of a chunked message, the only one with every chunk, while it lives."""
        self._add_live(to, entry, inner_id)
        if not self.has_chunks:
            self.has_chunks = True
            self.chunks_begin()
        self.chunked(bytes(inner_id.serialize()))

    @staticmethod
    def _add_live(to: TopicAcks, entry: Entry, inner_id: InnerMessageId) -> None:
        to.live[entry] = inner_id
        first = decode(inner_id.serialize()).first_chunk
        if first is not None:
            to.first_chunks[entry] = (first.ledger_id, first.entry_id)

    # -- by ids --------------------------------------------------------------------------------------------------------

    def is_self_contained(self, message_id: MessageId) -> bool:
        """Return True if the id of an unchunked message needs no lookup."""
        if not isinstance(self._topics, str):
            return False
        return message_id.origin is Origin.LIVE or (
            message_id.origin is Origin.BYTES and is_complete_id(message_id.serialize())
        )

    def topic_of(self, message_id: MessageId) -> str:
        """Return the topic or partition of an id; raise `TopicRequired` if it has none and several are read."""
        return entry_topic(self._topics if isinstance(self._topics, str) else None, message_id)

    def resolve(self, message_id: object, lock: contextlib.AbstractContextManager[object]) -> Callable[[], None]:
        """Resolve an id without the lock; return the function that adds it, to be called with the lock."""
        ours = as_message_id(message_id)
        topic = self.topic_of(ours)
        found = acknowledged_by(self._context, topic, ours, lambda entry: self._known_size(topic, ours, entry, lock))

        def add() -> None:
            to = self.by_topic.of(topic, ours.partition())
            if found.batch_index >= 0:
                to.tracker.add_bits(found.entry, found.size, 1 << found.batch_index)
            for entry, inner in found.whole_entries:
                if inner is not None and len(found.whole_entries) == 1 and b":" in inner.serialize():
                    self._add_live(to, entry, inner)
                to.tracker.add_whole(entry)

        return add

    def resolve_position(
        self, message_id: object, lock: contextlib.AbstractContextManager[object]
    ) -> Callable[[], None]:
        """Resolve an id for a cumulative acknowledgement; see `resolve()`."""
        ours = as_message_id(message_id)
        topic = self.topic_of(ours)
        found = acknowledged_up_to(self._context, topic, ours, lambda entry: self._known_size(topic, ours, entry, lock))

        def add() -> None:
            self.by_topic.of(topic, ours.partition()).tracker.add_cumulative(found.entry, found.batch_index, found.size)

        return add

    def withdraw(self, message_id: MessageId, now: float) -> None:
        """Withdraw the acknowledgement of a message that is to be redelivered, by its id, unless it is chunked."""
        if (to := self.by_topic.known(self.topic_of(message_id), message_id.partition())) is not None:
            data = decode(message_id.inner.serialize())
            if data.first_chunk is None:
                to.withdraw((data.ledger_id, data.entry_id), data.batch_index, data.batch_size, now)

    def withdraw_message(self, message: Message, lock: contextlib.AbstractContextManager[object]) -> None:
        """Withdraw the acknowledgement of a message that is to be redelivered, without the lock; see `withdraw()`."""
        if (found := runs([message])) is not None:
            partition, ledger_id, entry_id, _, _, _, _ = found[0]
        else:
            inner_id = message.inner.message_id()
            partition, ledger_id, entry_id = inner_id.partition(), inner_id.ledger_id(), inner_id.entry_id()
        to = self.by_topic.of_message(message, partition)
        if to is None or (ledger_id, entry_id) > to.tracker.highest:
            return  # nothing was acknowledged there
        _, entry, size, bits, _ = next(gather(serialized_ids([message])) if found is None else entries_of(found[0]))
        if size > _CHUNKED:
            with lock:
                to.withdraw(entry, bits.bit_length() - 1, max(size, 0), time.monotonic())

    def acknowledge_skipped(self, inner: InnerMessage, last: int) -> None:
        """Acknowledge the messages of an entry, up to batch index `last`, that a seek into it skips."""
        inner_id = inner.message_id()
        data = decode(inner_id.serialize())
        entry, bits = (data.ledger_id, data.entry_id), (1 << (last + 1)) - 1
        to = self.by_topic.of(inner.topic_name(), data.partition)
        if data.first_chunk is not None:
            self._add_chunked(to, entry, inner_id)
        to.tracker.acknowledge_skipped(entry, data.batch_size if data.batch_index >= 0 else 0, bits)

    def is_duplicate(self, inner: InnerMessage) -> bool:
        """Return True if a native message was acknowledged already."""
        inner_id = inner.message_id()
        to = self.by_topic.of(inner.topic_name(), inner_id.partition())
        return to.tracker.is_duplicate((inner_id.ledger_id(), inner_id.entry_id()), inner_id.batch_index())

    @property
    def number_of_topics(self) -> int:
        """Number of topics and partitions with acknowledgements."""
        return len(self.by_topic)

    def remember(self, since: float) -> None:
        """Remember what was sent since a time: it may be redelivered."""
        self.by_topic.remembers = True
        for topic in self.by_topic:
            topic.remember(since)

    def stop_remembering(self) -> None:
        """Expect no more redelivered messages."""
        self.by_topic.remembers = False
        for topic in self.by_topic:
            topic.remembered = None

    def _known_size(
        self, topic: str, message_id: MessageId, entry: Entry, lock: contextlib.AbstractContextManager[object]
    ) -> int:
        """Return the size of a partly acknowledged batch; 0 if the entry is not one."""
        with lock:
            known = self.by_topic.of(topic, message_id.partition()).tracker.partial_batches().get(entry)
        return 0 if known is None else known[0]
