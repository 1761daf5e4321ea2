"""Readers of key ranges, and groups of them that read a topic only once if possible.

In Java the broker filters, and includes or excludes a batch by the key of its first message. Here each message is
filtered by its own key, also inside a batch, so readers whose ranges tile the slots share a topic's messages without
loss or overlap.

If the topic's batches allow it, all readers of a group are consumers of one sticky Key_Shared subscription
(`GroupReader`), and the broker sends each message to one of them. If a batch mixes the keys of several readers, this is
impossible: the broker sends a batch to one consumer. Then each reader reads everything and filters.

`DeliveryRecord` (pure) records the messages that a reader of a group has delivered, in a few megabytes. The broker
redelivers messages that it does not know to be acknowledged: after a lost connection the latest ones, after a crash up
to all after its cursor, which the slowest reader of the group holds back. Messages with different keys have no common
order, so one position is not enough. One bit for each entry of the topic is: a million entries take 125 KB. For
partially delivered batches the messages are recorded.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Self

import pulsar

from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerMessage, InnerMessageId
from pulsar_ext._native.results import AlreadyClosed
from pulsar_ext._native.signatures import Arguments
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.chunks.leftovers import ends_in_incomplete_message
from pulsar_ext.chunks.resolver import seek_time
from pulsar_ext.consumer import Subscription
from pulsar_ext.errors import AdminError, AdminNotFound, InvalidKeyHashRange, InvalidUse, MisroutedMessage, NoSuchTopic
from pulsar_ext.ids.message_id import AnyMessageId, ChunkMessageId, MessageId
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.intercept import ReaderChain
from pulsar_ext.message import Message
from pulsar_ext.reader import Reader
from pulsar_ext.receive.compacted import CompactionFilter
from pulsar_ext.receive.order import Part, Transition, TransitionSubscriber

from .consumer import KeySharedPolicy, OnMisrouted, RangeConsumer, open_filtering_consumer
from .coverage import KeyCover, probe_batches, wait_for_cover
from .hash_ranges import KeyHashRanges, RangesLike, SlotFilter, as_ranges
from .hashing import KeyForms, KeyFormsMode

_ordering_key, _partition_key = InnerMessage.ordering_key, InnerMessage.partition_key
"""Unbound methods, which save one call per message."""


@dataclass(eq=False)
class _ChangeListener(TransitionSubscriber):
    """Calls a function after discarded messages, and after a new native reader."""

    part = Part.FAST_PATH
    do: Callable[[], None]

    def on_after(self, _: Transition, /) -> None:
        self.do()

    def on_reopen(self, *_: object) -> None:
        self.do()


class RangeReader(Reader):
    """A `Reader` that delivers only messages whose own key slot is in `key_hash_ranges`.

    Iteration ends when no more message is available.
    """

    __slots__ = ("_fast", "key_hash_ranges")

    key_hash_ranges: KeyHashRanges
    _fast: tuple[Any, ...]

    @classmethod
    def _assemble_filtered_(
        cls, wanted: SlotFilter, *args: Any, compaction: CompactionFilter | None = None, **options: Any
    ) -> Self:
        """Make a reader of an official one, like `Reader._assemble_()`; `wanted` is the filter."""
        self = cls._assemble_(*args, **options)
        self.key_hash_ranges = wanted.ranges
        source = self._source
        if compaction is not None:
            self._order.add_subscriber(compaction)
        found = self._filter_by(wanted if compaction is None else lambda inner: compaction(inner) and wanted(inner))

        def set_fast_path() -> None:
            takes_all = compaction is None and wanted.ranges.is_full
            self._fast = source.each, wanted.decided.get, found.wants, *found.kept, self._message_class, takes_all

        self._order.add_subscriber(_ChangeListener(set_fast_path))
        set_fast_path()
        return self

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Read the next message of these ranges; see `Reader.read_next()`."""
        unfiltered, verdict_of, wants, ready, unseen, new, takes_all = self._fast
        # In a forked child, the source is replaced by one that raises.
        if timeout_millis is not None or ready or unseen or self._source is not self._filter:
            return self._receive_next_(timeout_millis)
        # Inlined from `_receive` and the filter's source, to save a call for each message whose key is known.
        message: Message = new()
        try:
            if takes_all:
                for message.inner in unfiltered:
                    return message
            for inner in unfiltered:
                try:
                    wanted = None if _ordering_key(inner) else verdict_of(_partition_key(inner))
                    if wanted or (wanted is None and wants(inner)):
                        message.inner = inner
                        return message
                except UnicodeDecodeError:  # an ordering key of any bytes
                    unseen.append(inner)
                    break
                except BaseException:
                    unseen.append(inner)
                    raise
        except (pulsar.Timeout, pulsar.AlreadyClosed):  # also if replaced: the slower path handles it
            pass
        return self._receive_next_(None)

    def __iter__(self) -> Iterator[Message]:
        while self.has_message_available():
            yield self.read_next()


def check_topic_exists(admin: PulsarAdmin, topic: str) -> None:
    """Raise if a topic does not exist; pass if the admin API does not answer."""
    try:
        if not admin.partitions(topic):
            admin.stats(topic)
    except AdminNotFound as error:
        raise NoSuchTopic(
            f"Topic {topic} not found: {error.reason}. A reader of key ranges does not create it; publish a message "
            "first, or create the topic.",
            topic=topic,
        ) from None
    except AdminError:
        return


def open_range_reader(
    context: ClientContext,
    arguments: Arguments,
    ranges: RangesLike | KeyHashRanges,
    key_forms: KeyFormsMode,
    chain: ReaderChain | None,
) -> RangeReader:
    """Open a reader of key ranges; `arguments` are those of `Client.create_reader`, by name."""
    wanted = SlotFilter(as_ranges(ranges), KeyForms(context.admin_api, key_forms))
    topic, listener = arguments["topic"], arguments["reader_listener"]
    if not isinstance(topic, str):
        raise InvalidUse(f"A topic's name must be a str, got {type(topic).__name__}.")
    check_topic_exists(context.admin_api(), topic)
    if listener:
        if chain is not None:
            listener = chain.listening(listener)  # after the filter
        arguments["reader_listener"] = lambda reader, message: wanted(message.inner) and listener(reader, message)
    make = partial(RangeReader._assemble_filtered_, wanted)
    reader: RangeReader = context.opener._open_reader_(arguments, make=make, chain=chain)
    return reader


_SHIFT: Final = 15
"""A block has the bits of 32,768 consecutive entries of one ledger."""
_BLOCK_BYTES: Final = 256
"""Overhead of a block."""
_MAX_BYTES: Final = 4 << 20
_MAX_PARTIAL: Final = 4_000
"""Limit of partially delivered batches: about one per partition, and those that the start position divides."""

_Entry = tuple[int, int, int]
"""Partition, ledger id and entry id."""


class DeliveryRecord:
    """Record of delivered messages; the oldest are dropped at the limits."""

    def __init__(self, max_bytes: int = _MAX_BYTES, max_partial: int = _MAX_PARTIAL) -> None:
        self._max_bytes, self._max_partial = max_bytes, max_partial
        self._blocks: OrderedDict[_Entry, bytearray] = OrderedDict()
        self._partial: dict[_Entry, int] = {}
        self._bytes = 0

    def has(self, entry: _Entry, index: int) -> bool:
        """Return whether a message is recorded; `index` is its batch index, or -1."""
        return self._has_whole(entry) or (index >= 0 and bool(self._partial.get(entry, 0) >> index & 1))

    def note(self, entry: _Entry, index: int, size: int) -> None:
        """Record a message, in a batch of `size` messages (0 if unknown) by its index there; index -1 is unbatched."""
        if self._has_whole(entry):
            return
        if index >= 0:
            bits = self._partial.get(entry, 0) | 1 << index
            if bits != (1 << size) - 1:
                self._partial[entry] = bits
                if len(self._partial) > self._max_partial:
                    del self._partial[next(iter(self._partial))]
                return
        self._note_whole(entry)
        self._partial.pop(entry, None)

    def _has_whole(self, entry: _Entry) -> bool:
        partition, ledger_id, entry_id = entry
        block = self._blocks.get((partition, ledger_id, entry_id >> _SHIFT), b"")
        byte = (entry_id & (1 << _SHIFT) - 1) >> 3
        return byte < len(block) and bool(block[byte] >> (entry_id & 7) & 1)

    def _note_whole(self, entry: _Entry) -> None:
        partition, ledger_id, entry_id = entry
        key, byte = (partition, ledger_id, entry_id >> _SHIFT), (entry_id & (1 << _SHIFT) - 1) >> 3
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = bytearray()
            self._bytes += _BLOCK_BYTES
        else:
            self._blocks.move_to_end(key)
        more = byte + 1 - len(block)
        if more > 0:
            block.extend(bytes(more))
            self._bytes += more
        block[byte] |= 1 << (entry_id & 7)
        while self._bytes > self._max_bytes and len(self._blocks) > 1:
            _, dropped = self._blocks.popitem(last=False)
            self._bytes -= _BLOCK_BYTES + len(dropped)


_SILENT_SECONDS = 3.0
_MAX_WAIT_SECONDS = 60.0


class GroupReader(RangeConsumer):
    """Reader of a group that the broker filters for; iteration ends when no more message is available.

    Each delivered message is acknowledged immediately. After a lost connection or a restart of the broker, it is not
    delivered again, as long as it is among the last thirty million entries of the topic; the record takes 4 MB. Close
    the group, not one reader: without it the others stall.
    """

    __slots__ = ("_delivered", "_inclusive", "_reads_start", "_record_lock", "_start", "_undelivered")

    _topics: str
    _start: MessageId | None
    _inclusive: bool
    """True if the start message itself is read."""
    _reads_start: bool
    """True if a message that is the target of a seek is itself read."""
    _delivered: DeliveryRecord
    _record_lock: OwnedLock
    _undelivered: dict[int, InnerMessage]
    """Recorded messages, by identity, that a Ctrl-C kept from being delivered."""

    @classmethod
    def _assemble_from_(
        cls,
        start: MessageId | None,
        inclusive: bool,
        own_slots: SlotFilter,
        on_misrouted: OnMisrouted,
        official: pulsar.Consumer,
        subscription: Subscription,
    ) -> Self:
        """Make a consumer of an official one, which excludes messages before the start."""
        self = cls._assemble_with_slots_(own_slots, on_misrouted, official, subscription)
        self._start, self._inclusive, self._reads_start = start, inclusive, inclusive
        self._delivered = DeliveryRecord()
        self._record_lock = OwnedLock()
        self._undelivered = {}
        return self

    def _is_wanted(self, inner: InnerMessage) -> bool:
        # An undelivered message is acknowledged, and would be dropped as a redelivered one.
        return id(inner) in self._undelivered or super()._is_wanted(inner)

    def _wanted(self, inner: InnerMessage) -> bool:
        if not super()._wanted(inner):
            return False
        inner_id, key, passes = inner.message_id(), id(inner), False
        entry, index = (inner_id.partition(), inner_id.ledger_id(), inner_id.entry_id()), inner_id.batch_index()
        size = decode(inner_id.serialize()).batch_size if index >= 0 else 0
        try:
            with self._record_lock:
                passes = key in self._undelivered or self._is_new(inner_id)
                if passes:
                    self._delivered.note(entry, index, size)
            self.acknowledge(self._message_of_(inner))
            self._undelivered.pop(key, None)
        except BaseException:
            if passes:  # recorded, but not delivered
                self._undelivered[key] = inner
            raise
        return passes

    def _is_new(self, inner_id: InnerMessageId) -> bool:
        """Return whether a message is after the start and has not been delivered before."""
        entry = inner_id.partition(), inner_id.ledger_id(), inner_id.entry_id()
        return self._is_after_start(inner_id) and not self._delivered.has(entry, inner_id.batch_index())

    def _is_after_start(self, inner_id: InnerMessageId) -> bool:
        if self._start is None:
            return True
        # The partition is not compared: a start on one partition need not contain it.
        start = self._start.ledger_id(), self._start.entry_id(), self._start.batch_index()
        here = inner_id.ledger_id(), inner_id.entry_id(), inner_id.batch_index()
        return bool(here > start or (self._inclusive and here == start))

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Read the next message of these ranges; see `Reader.read_next()`.

        Raises:
            MisroutedMessage: a batch mixes keys of several readers; open the group with `filtering="client"`.
        """
        return self.receive(timeout_millis)

    def has_message_available(self) -> bool:
        """Return whether a message of these ranges is available without waiting for a new one.

        Raises:
            pulsar.Timeout: the topic had messages to read, and none arrived for a minute, for instance because the
                broker waits for another reader of the group that is not read.
            AdminError: the admin API, which is asked if no message has arrived, rejected a request or did not answer.
        """
        since, times_drained = time.monotonic(), 0
        while not self._has_next():
            # Checked twice with a wait between: during a redelivery, a message briefly has no consumer.
            times_drained = times_drained + 1 if self._is_drained() else 0
            silent = time.monotonic() - since if self.is_connected() else 0.0
            if times_drained > 1 or (
                silent > _SILENT_SECONDS and ends_in_incomplete_message(self._context.admin_api, self._topics)
            ):
                return False
            if silent > _MAX_WAIT_SECONDS:
                raise pulsar.Timeout(
                    f"{self.topic()} has messages to read, but none arrived in {_MAX_WAIT_SECONDS:.0f} s: read all "
                    "readers of the group at the same time, because the broker waits for one that is not read."
                )
        return True

    def _has_next(self) -> bool:
        """Return whether the next receive returns at once, after 100 ms at most; nothing is recorded."""
        try:
            if not any(self._filter.kept):
                self._filter.fetch()
        except AlreadyClosed:
            self._replacement_of(None, self._context.operation_timeout_seconds * 1000)
        ready, unseen = self._filter.kept
        while unseen and not ready:
            inner = unseen[0]
            try:
                if id(inner) in self._undelivered or (super()._wanted(inner) and self._is_new(inner.message_id())):
                    return True
            except MisroutedMessage:
                self.misrouted -= 1  # the next receive counts it again, and raises
                return True
            self._filter.drop_unwanted(inner)
        return bool(ready)

    def _is_drained(self) -> bool:
        """Return whether the broker has sent all messages to this consumer, and all are acknowledged."""
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

    def seek(self, messageid: AnyMessageId | int | Mapping[str, AnyMessageId | int]) -> None:
        """Move this reader to a message by any id of it, to `MessageId.earliest` or `latest`, or to a publish time.

        The other readers of the group keep their positions: they drop messages that the broker redelivers.

        Args:
            messageid: the id, or a time in milliseconds since the epoch; on a partitioned topic `MessageId.earliest`.

        Raises:
            InvalidUse: it is neither an id nor an int, or is unsupported on several partitions; nothing was moved.
            MessageIdNotFound, IncompleteChunkedMessage: as for `Reader.seek()`; nothing was moved.
            AdminError: the admin API rejected a request or did not answer; nothing was moved.
        """
        self._context.callbacks.raise_inside("seek")
        start, inclusive = self._start_at(messageid)
        target = MessageId.earliest
        if start is not None:  # not earlier than needed: the broker discards the other readers' acknowledgements
            cursor = self._context.admin_api().internal_stats(self.topic()).cursors[self.subscription_name()]
            first = start.first_chunk_message_id() if isinstance(start, ChunkMessageId) else start
            at = min(Position(first.ledger_id(), first.entry_id()), cursor.mark_delete_position)
            target = MessageId(first.partition(), at.ledger_id, max(at.entry_id, 0))
        with self._order.run_transition(Transition.SEEK, self._raise_if_closed):
            self._move_native(target.inner)
            self._start, self._inclusive, self._delivered, self._undelivered = start, inclusive, DeliveryRecord(), {}

    def _start_at(self, messageid: object) -> tuple[MessageId | None, bool]:
        """Return the message to start from, None for all messages, and whether it is included."""
        if messageid == MessageId.earliest:
            return None, True
        if len(self._topics_read()) > 1:
            raise InvalidUse(
                f"{self._topics} has partitions: a reader of a group can only seek to MessageId.earliest. Nothing "
                "was moved; open the group with filtering='client' to seek elsewhere."
            )
        admin = self._context.admin_api()
        if messageid == MessageId.latest:
            return admin.last_message_id(self._topics), False
        if isinstance(messageid, int):
            at = admin.message_id_by_time(self._topics, seek_time(messageid))
            return (MessageId(-1, at.ledger_id, at.entry_id) if at.ledger_id >= 0 else None), True
        return self._context.resolver.start_of(self._topics, messageid), self._reads_start

    def __iter__(self) -> Iterator[Message]:
        while self.has_message_available():
            yield self.read_next()


Filtering = Literal["auto", "broker", "client"]

_COVER_SECONDS = 10.0

_log = logging.getLogger("pulsar_ext.keys")


@dataclass(eq=False, repr=False)
class RangeReaderGroup(contextlib.AbstractContextManager["RangeReaderGroup"]):
    """Readers whose ranges tile the slots; read them concurrently, for instance each in its own thread.

    Iteration yields the readers. With `filtering == "broker"`, a reader that is not read stalls the others eventually,
    because the broker keeps its messages.
    """

    readers: tuple[GroupReader | RangeReader, ...]
    """The readers, in order of the ranges."""
    filtering: Filtering
    """Either "broker" or "client": the side that filters the messages."""
    reason: str
    """The reason for this choice, as a sentence."""
    _resources: contextlib.ExitStack

    def close(self) -> None:
        """Close the readers and delete their subscription; a second call has no effect."""
        self._resources.close()

    def __iter__(self) -> Iterator[GroupReader | RangeReader]:
        return iter(self.readers)

    def __len__(self) -> int:
        return len(self.readers)

    def __repr__(self) -> str:
        return f"<{len(self)} readers, filtered by the {self.filtering}: {self.reason}>"

    def __exit__(self, *_: object) -> None:
        self.close()


def open_group(
    context: ClientContext,
    topic: str,
    start_message_id: AnyMessageId,
    ranges: int | Sequence[RangesLike | KeyHashRanges],
    *,
    inclusive: bool = False,
    filtering: Filtering = "auto",
    key_forms: KeyFormsMode = "auto",
    receiver_queue_size: int = 1000,
) -> RangeReaderGroup:
    """Open readers that tile the slots; see `Client.create_reader_group`."""
    parts = KeyHashRanges.full().split(ranges) if isinstance(ranges, int) else [as_ranges(one) for one in ranges]
    _check_tiling(parts)
    if filtering not in ("auto", "broker", "client"):
        raise InvalidUse(f"filtering must be 'auto', 'broker' or 'client', got {filtering!r}.")
    admin = context.admin_api()
    check_topic_exists(admin, topic)
    reason = "set by the caller"
    subscription = f"pulsar-ext-range-group-{uuid.uuid4().hex[:12]}"
    with contextlib.ExitStack() as stack:
        start = None
        if filtering != "client":
            start = _make_subscription(context, topic, subscription, start_message_id)
            stack.callback(_delete_subscription, context, topic, subscription)
        if filtering == "auto":
            allowed, reason = probe_batches(admin, topic, subscription, parts)
            filtering = "broker" if allowed else "client"
        _log.info("%s is read by %d readers, filtered by the %s: %s", topic, len(parts), filtering, reason)
        if filtering == "client":
            stack.close()  # the subscription is unused, and its backlog would grow
        readers: list[GroupReader | RangeReader] = []
        for part in parts:
            if filtering == "client":
                reader = context.opener.create_reader(
                    topic,
                    start_message_id,
                    receiver_queue_size=receiver_queue_size,
                    start_message_id_inclusive=inclusive,
                    key_hash_ranges=part,
                    key_forms=key_forms,
                )
            else:
                options = {
                    "topic": topic,
                    "subscription_name": subscription,
                    "consumer_type": pulsar.ConsumerType.KeyShared,
                    "key_shared_policy": KeySharedPolicy.sticky_hash_range().ranges(*part),
                    "receiver_queue_size": receiver_queue_size,
                    "start_message_id_inclusive": True,  # a seek moves the cursor, perhaps to another reader's entry
                }
                assemble = partial(GroupReader._assemble_from_, start, inclusive)
                reader = open_filtering_consumer(context, options, part, "raise", key_forms, assemble=assemble)
            readers.append(reader)
            stack.callback(reader.close)
        if filtering == "broker":
            wait_for_cover(admin, [topic], subscription, _COVER_SECONDS)
        return RangeReaderGroup(tuple(readers), filtering, reason, stack.pop_all())


def _check_tiling(parts: Sequence[KeyHashRanges]) -> None:
    cover = KeyCover.of("", "", (("", part) for part in parts))
    if not cover.overlapping.is_empty:
        raise InvalidKeyHashRange(f"The ranges of two readers overlap in the slots {cover.overlapping}.")
    if not cover.uncovered.is_empty:
        raise InvalidKeyHashRange(f"The slots {cover.uncovered} are missing in the readers' ranges.")


def _make_subscription(
    context: ClientContext, topic: str, subscription: str, start_message_id: AnyMessageId
) -> MessageId | None:
    """Make the subscription at the start position; return the id to start from if the entry is not precise enough."""
    admin = context.admin_api()
    if start_message_id == MessageId.earliest:
        admin.create_subscription(topic, subscription, "earliest")
        return None
    if start_message_id == MessageId.latest:
        admin.create_subscription(topic, subscription, "latest")
        return None
    if admin.partitions(topic):
        raise InvalidUse(
            f"A group on {topic}, which has partitions, must start at MessageId.earliest or MessageId.latest."
        )
    start = context.resolver.start_of(topic, start_message_id)
    first = start.first_chunk_message_id() if isinstance(start, ChunkMessageId) else start
    admin.create_subscription(topic, subscription, Position(first.ledger_id(), first.entry_id()))
    return start


def _delete_subscription(context: ClientContext, topic: str, subscription: str) -> None:
    try:
        context.admin_api().delete_subscription(TopicName.parse(topic), subscription, force=True)
    except AdminError as error:
        _log.warning("Subscription %s on %s could not be deleted: %s", subscription, topic, error)
