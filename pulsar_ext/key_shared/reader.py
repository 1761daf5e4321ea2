"""Readers that deliver exactly the messages of their key ranges; made by `Client.create_reader(key_hash_ranges=…)`.

In Java the broker filters, and includes or excludes a batch by the key of its first message. Here each message is
filtered by its own key, also inside a batch, so readers whose ranges tile the slots share a topic's messages without
loss or overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self

import pulsar

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.signatures import Arguments
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.errors import AdminError, AdminNotFound, InvalidUse, NoSuchTopic
from pulsar_ext.intercept.chain import ReaderChain
from pulsar_ext.message import Message
from pulsar_ext.reader import Reader
from pulsar_ext.receive.compacted import CompactionFilter
from pulsar_ext.receive.order import Part, Transition, TransitionSubscriber

from .hash_ranges import KeyHashRanges, RangesLike, SlotFilter, as_ranges
from .hashing import KeyForms, KeyFormsMode

_ordering_key, _partition_key = InnerMessage.ordering_key, InnerMessage.partition_key
"""Unbound methods, which save one call per message."""


class _ChangeListener(TransitionSubscriber):
    """Calls a function after discarded messages, and after a new native reader."""

    part = Part.FAST_PATH

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do

    def on_after(self, _: Transition, /) -> None:
        self._do()

    def on_reopen(self, *_: object) -> None:
        self._do()


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
