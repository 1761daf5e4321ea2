"""Reader of several topics; mirrors Java's `MultiTopicsReaderImpl`.

Each topic or partition has its own reader, a `PartReader`, which reports the arrival of messages. A `TopicsReader`
keeps no messages, only a queue of the parts that may have one. So a seek moves one topic, the unread messages of other
topics stay, and messages keep their topic's order. All readers are opened or none; a `TopicWatch` polls for added
partitions and for new topics of a pattern, which are read from their beginning.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.fork import closed_error, never_opened, refuse_after_fork
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerReader
from pulsar_ext._native.results import POLL_MILLIS, AlreadyClosed, Timeout
from pulsar_ext._native.signatures import Arguments
from pulsar_ext._runtime.condition import Condition
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.chunks.resolver import seek_target
from pulsar_ext.errors import AdminError, AdminNotFound, InvalidUse, PulsarExtError
from pulsar_ext.ids.message_id import AnyMessageId, MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.intercept import ReaderChain, intercept_reader, register_chain
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges, RangesLike, SlotFilter, as_ranges
from pulsar_ext.key_shared.hashing import KeyForms, KeyFormsMode
from pulsar_ext.key_shared.reader_group import RangeReader, check_topic_exists
from pulsar_ext.message import Message, message_class
from pulsar_ext.reader import Reader
from pulsar_ext.receive.order import ReceiveOrder, Transition
from pulsar_ext.receive.seeks import (
    is_on_any_topic,
    partitions_of_each,
    queue_of_each,
    target_of_each,
    targets_by_topic,
)
from pulsar_ext.receive.source import Arrivals
from pulsar_ext.schema.choice import schema_of

_log = logging.getLogger("pulsar_ext")

Topics = list[str] | re.Pattern[str]


class PartReader(Reader):
    """A reader that does not block, and reports the arrival of messages."""

    __slots__ = ()  # Python does not allow a subclass of two classes with slots; the official class has a dict

    arrivals: Arrivals
    on_arrival: Callable[[PartReader], object]
    """Called when a message has arrived; set after the opening."""

    def _receive_of(self, inner: InnerReader) -> Arrivals:
        wait, receive_async = self._native_receives(inner)
        if self._flow is not None:
            wait, self._flow.waits = self._flow.counting(wait), lambda: self.waits
        self.arrivals = Arrivals(wait, receive_async, self._report_arrival)
        return self.arrivals

    def _report_arrival(self) -> None:
        if self._flow is not None:
            self._flow.received += 1
        self.on_arrival(self)

    @property
    def waits(self) -> bool:
        """True if it has no message, and will report the next one."""
        return self.arrivals.awaits_answer() and not self.arrivals.holds

    def _has_native_message_(self) -> bool:
        """Return whether the native reader has a message, unless one has already arrived."""
        return self.arrivals.holds or super()._has_native_message_()


class RangePartReader(RangeReader, PartReader):
    """A part reader with key ranges."""

    __slots__ = ()


_ARRIVING_SECONDS: Final = 0.05
"""Time for a message to pass from the C++ client's queue to ours: another thread has to run."""


class TopicsReader(Reader):
    """A reader of several topics; made by `Client.create_reader()` for a list of topics or a pattern."""

    __slots__ = ("_changed", "_parts", "_ready", "_watch", "key_hash_ranges")

    _watch: _TopicWatch | None
    _schema: pulsar.schema.Schema
    _parts: dict[str, PartReader]
    """Parts by the full name of the topic or partition."""
    _ready: deque[PartReader]
    """Parts that may have a message, in turns. Each other part reports its next message."""
    key_hash_ranges: KeyHashRanges
    _topics: list[str] | re.Pattern[str]

    @classmethod
    def _without_parts_(cls, context: ClientContext, topics: Topics, schema: pulsar.schema.Schema) -> Self:
        self = cls.__new__(cls)
        self.inner = never_opened("C++ reader of several topics", "the readers of each topic")
        self._schema = schema
        self._client = context.opener
        self._context, self._topics = context, topics
        self._message_class = message_class(schema, several_topics=True)
        self._order = ReceiveOrder()
        self._parts, self._ready, self._changed = {}, deque(), Condition()
        self._closed, self._queued, self._on_message, self._watch, self._filter = False, True, None, None, None
        refuse_after_fork(self)
        return self

    def _add_(self, topic: str, part: PartReader) -> None:
        part.on_arrival = self._mark_ready
        with self._changed:
            self._parts[topic] = part
            closed = self._closed
        if closed:  # in the meantime
            part.close()
        self._mark_ready(part)

    def _drop_(self, topic: str) -> None:
        with self._changed:
            part = self._parts.pop(topic)
            part.on_arrival = lambda _: None
            self._ready = deque(one for one in self._ready if one is not part)
        with contextlib.suppress(pulsar.PulsarException):
            part.close()

    def _watch_(self, watch: _TopicWatch, seconds: float) -> None:
        """Poll for topics until the close."""
        self._watch = watch  # the scheduler does not keep it
        self._context.inquiries.watch(watch, seconds)

    def topics(self) -> list[str]:
        """Return the full names of the topics and partitions that are read now."""
        return list(self._parts)

    _topics_read = topics

    def topic(self) -> str:
        """Return the names or the pattern passed at the opening."""
        return ", ".join(self._topics) if isinstance(self._topics, list) else str(self._topics.pattern)

    @property
    def is_closed(self) -> bool:
        """True if the reader or its client was closed."""
        return self._closed or any(part.is_closed for part in list(self._parts.values()))

    def _raise_if_closed(self) -> None:
        self._context.senders.raise_if_ended()
        if self.is_closed:
            raise closed_error("Reader")

    @property
    def _locks_(self) -> tuple[OwnedLock, ...]:
        """Locks that a signal handler may find held by its own thread, in which case a close is unsafe."""
        return (*self._order.locks, *(lock for part in list(self._parts.values()) for lock in part._locks_))

    @property
    def _awaits_answer_(self) -> bool:
        """True if the C++ client has not answered all requests of this reader."""
        return any(part._awaits_answer_ for part in list(self._parts.values()))

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Read the next message of any topic, in the order of each; see `Reader.read_next()`."""
        deadline = None
        if timeout_millis is not None:
            if type(timeout_millis) is not int:
                return self._receive_briefly(timeout_millis)  # raises
            deadline = time.monotonic() + timeout_millis / 1000
        while True:
            try:
                part = self._ready[0]
            except IndexError:
                self._wait(deadline)
                continue
            self._ready.rotate(-1)
            try:
                return part.read_next(0)  # pyright: ignore[reportReturnType]  # a message of this library
            except Timeout:
                self._unmark_ready(part, deadline)
            except AlreadyClosed:
                if self._reads(part):
                    raise
                with contextlib.suppress(ValueError):  # another thread has removed it
                    self._ready.remove(part)

    _receive_next_ = read_next  # pyright: ignore[reportAssignmentType]

    def _unmark_ready(self, part: PartReader, deadline: float | None) -> None:
        """Remove a part that waits from the queue; a part that dropped filtered messages stays in it."""
        if part.waits:
            with contextlib.suppress(ValueError):  # another thread has removed it
                self._ready.remove(part)
            if part.arrivals.holds:  # a message arrived in the meantime
                self._mark_ready(part)
        elif deadline is not None and time.monotonic() >= deadline:
            raise Timeout("Pulsar error: TimeOut")

    def _wait(self, deadline: float | None) -> None:
        """Wait until a message has arrived at any part."""
        self._context.callbacks.raise_inside("a receive without messages")
        self._raise_if_closed()
        left = POLL_MILLIS / 1000
        if deadline is not None:
            left = min(left, deadline - time.monotonic())
            if left <= 0:
                raise Timeout("Pulsar error: TimeOut")
        with self._changed:
            if not self._ready:
                self._changed.wait(left)

    def _mark_ready(self, part: PartReader) -> None:
        """Queue a part, because a message has arrived or its state has changed; called on any thread."""
        with self._changed:
            self._ready.append(part)
            self._changed.notify()

    def has_message_available(self) -> bool:
        """Return whether any of the topics has a message to read.

        Raises:
            pulsar.PulsarException: a broker was unreachable for the client's `operation_timeout_seconds`.
            pulsar.AlreadyClosed: the reader is closed.
        """
        self._context.callbacks.raise_inside("has_message_available")
        self._raise_if_closed()
        parts = list(dict.fromkeys([*self._ready, *self._parts.values()]))
        parts.sort(key=lambda part: not part.arrivals.holds)  # those that need no request first
        if any(map(self._has_message, parts)):
            return True
        if any(part.waits for part in parts):
            threads.sleep(_ARRIVING_SECONDS)
        return any(part.arrivals.holds and self._has_message(part) for part in parts)

    def _has_message(self, part: PartReader) -> bool:
        try:
            return part.has_message_available()
        except AlreadyClosed:
            if self._reads(part):
                raise
            return False

    def _reads(self, part: PartReader) -> bool:
        """Return whether a part is still read: a deleted topic may be dropped, and closed, during a call."""
        return any(one is part for one in list(self._parts.values()))

    def seek(self, messageid: AnyMessageId | int | Mapping[str, AnyMessageId | int]) -> None:
        """Seek on every topic, or on some of them; unread messages of the others stay.

        Args:
            messageid: `MessageId.earliest`, `MessageId.latest` or a publish time in milliseconds, for all topics; the
                id of a message, for its own topic or partition; or a dict from topics to these.

        Raises:
            InvalidUse: the topic of an id is unknown, or a topic is not read here; nothing was moved.
            IncompleteChunkedMessage, MessageIdNotFound: as for any reader; nothing was moved.
            pulsar.PulsarException: the first error; other topics may have moved, so seek again.
        """
        self._context.callbacks.raise_inside("seek")
        self._raise_if_closed()
        targets = target_of_each(messageid, self._parts)
        resolver = self._context.resolver
        found = {topic: seek_target(resolver, topic, target) for topic, target in targets.items()}
        if len(found) == len(self._parts):
            with self._order.run_transition(Transition.SEEK, self._raise_if_closed):
                self._move(found)
        else:
            self._move(found)
            moved = {str(TopicName.parse(topic)) for topic in found}
            self._order.drop_topics(lambda inner: str(TopicName.parse(inner.topic_name())) in moved)

    def _move(self, targets: Mapping[str, AnyMessageId | int]) -> None:
        for topic, target in targets.items():
            part = self._parts.get(topic)
            if part is None:  # dropped in the meantime
                continue
            try:
                part.seek(target)
            except AlreadyClosed:
                if self._reads(part):
                    raise
            finally:
                self._mark_ready(part)

    def is_connected(self) -> bool:
        """Return whether all topics are connected to their brokers."""
        return all(part.is_connected() for part in list(self._parts.values()))

    def close(self) -> None:
        """Close the readers of all topics; a second call has no effect.

        Raises:
            pulsar.PulsarException: the first error; all readers are closed nevertheless.
        """
        self._context.callbacks.raise_inside("close")
        self._release_()
        with contextlib.ExitStack() as closing:
            for part in list(self._parts.values()):
                closing.callback(part.close)

    def _release_(self) -> None:
        """Raise in every later call, and wake waiting threads."""
        self._closed = True
        with self._changed:
            self._changed.notify_all()

    def _after_fork_(self, refusal: Any) -> None:
        """Raise in every call in this child process; a lock may have been held at the fork, forever."""
        super()._after_fork_(refusal)
        self._changed, self._context = Condition(), refusal


_PARTITIONS_SECONDS: Final = 60
"""Interval of polls for added partitions, as in the official client and in Java's."""


def reads_several(topic: object) -> bool:
    """Return whether a reader's topic is a list of topics or a pattern."""
    return isinstance(topic, list | tuple | re.Pattern)


def open_topics_reader(
    context: ClientContext,
    named: Arguments,
    ranges: RangesLike | KeyHashRanges | None,
    key_forms: KeyFormsMode,
    chain: ReaderChain | None,
    discovery_seconds: int,
) -> TopicsReader:
    """Open a reader of several topics; for the arguments see `Client.create_reader()`."""
    topic = named["topic"]
    topics: Topics = topic if isinstance(topic, re.Pattern) else list(topic)
    _check(topics, named["receiver_queue_size"], discovery_seconds)
    own = None if ranges is None else as_ranges(ranges)
    if own is not None and isinstance(topics, list):
        for topic in topics:
            check_topic_exists(context.admin_api(), topic)
    find = partial(partitions_of_each, context, topics)
    found = find()
    starts = _starts(named["start_message_id"], found)
    schema = schema_of(named["schema"], context.admin_api)  # each part makes its own copy
    reader = TopicsReader._without_parts_(context, topics, schema)
    if own is not None:
        reader.key_hash_ranges = own
    queue = queue_of_each(named["receiver_queue_size"], len(found))
    listener = named["reader_listener"]
    if listener and chain is not None:
        listener = chain.listening(listener)
    seconds = discovery_seconds if isinstance(topics, re.Pattern) else _PARTITIONS_SECONDS
    named = {**named, "receiver_queue_size": queue}
    watch = _TopicWatch(context, weakref.ref(reader), named, find, own, key_forms, listener, seconds)
    try:
        for topic in found:
            watch.open_part(reader, topic, starts[topic])
    except BaseException:
        with contextlib.suppress(pulsar.PulsarException):
            reader.close()
        raise
    if chain is not None:
        if not chain.awaited:
            intercept_reader(reader, chain)
        chain.show(reader)
        register_chain(context, chain, topics)
    reader._watch_(watch, seconds)
    return reader


def _check(topics: Topics, queue_size: int, discovery_seconds: int) -> None:
    """Raise before anything is opened if an argument is invalid."""
    if isinstance(topics, list):
        if not topics:
            raise InvalidUse("The list of topics must not be empty. Nothing was opened.")
        if len({TopicName.parse(topic) for topic in topics}) != len(topics):
            raise InvalidUse(f"The topics must differ, got duplicates in {topics}. Nothing was opened.")
    for name, value in (
        ("receiver_queue_size of a reader of several topics", queue_size),
        ("pattern_auto_discovery_period", discovery_seconds),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidUse(f"{name} must be an int >= 1, got {value!r}.")


def _starts(start: AnyMessageId | Mapping[str, AnyMessageId], topics: list[str]) -> dict[str, AnyMessageId]:
    if not isinstance(start, Mapping):
        if isinstance(start, int) or not is_on_any_topic(start):
            raise InvalidUse(
                f"A reader of several topics cannot start at {start!r}: pass MessageId.earliest, MessageId.latest, or "
                "a dict from topics to ids. Nothing was opened."
            )
        return dict.fromkeys(topics, start)
    found = targets_by_topic(start, topics)
    missing = [topic for topic in topics if topic not in found]
    if missing:
        raise InvalidUse(f"start_message_id has no entry for {', '.join(missing)}. Nothing was opened.")
    if any(isinstance(one, int) for one in found.values()):
        raise InvalidUse("A reader of several topics cannot start at a time: open it, and then seek() to the time.")
    return found


@dataclass(eq=False)
class _TopicWatch:
    """Opens the parts, and polls for topics and partitions; referenced by its reader."""

    context: ClientContext
    reader: weakref.ref[TopicsReader]
    named: Arguments
    find: Callable[[], list[str]]
    ranges: KeyHashRanges | None
    key_forms: KeyFormsMode
    listener: Callable[[Reader, Message], object] | None
    seconds: float

    def open_part(self, reader: TopicsReader, topic: str, start: AnyMessageId) -> None:
        make: Callable[..., PartReader] = PartReader._assemble_
        listener = self.listener
        part_listener = listener and (lambda _, message: listener(reader, message))
        if self.ranges is not None:
            wanted = SlotFilter(self.ranges, KeyForms(self.context.admin_api, self.key_forms))
            make = partial(RangePartReader._assemble_filtered_, wanted)
            if listener:
                part_listener = lambda _, message: wanted(message.inner) and listener(reader, message)  # noqa: E731
        named = {**self.named, "topic": topic, "start_message_id": start, "reader_listener": part_listener}
        reader._add_(topic, self.context.opener._open_reader_(named, make=make, several_topics=True))

    def tick(self, _: float) -> float | None:
        """Poll; return the seconds until the next poll, None to stop."""
        reader = self.reader()
        if reader is None or reader.is_closed:
            return None
        known = reader.topics()
        try:
            found = self.find()
        except AdminError as error:  # the broker is unavailable: retry at the next poll
            _log.info("The topics of %s cannot be listed; the poll is retried: %s", reader.topic(), error)
            return self.seconds
        for topic in found:
            if topic not in known:
                try:
                    self.open_part(reader, topic, MessageId.earliest)
                except (pulsar.PulsarException, PulsarExtError) as error:  # such as another schema: open the others
                    if not reader.is_closed:
                        _log.warning("%s cannot be read; retrying in %.0f s: %s", topic, self.seconds, error)
        if isinstance(self.named["topic"], re.Pattern):
            for topic in known:
                if topic not in found and self._is_deleted(topic):
                    reader._drop_(topic)
        return self.seconds

    def close(self) -> None:
        """Wake threads that read, because the client is closed."""
        reader = self.reader()
        if reader is not None:
            reader._release_()

    def _is_deleted(self, topic: str) -> bool:
        """Return whether the topic surely does not exist: opening it again would start at its beginning."""
        try:
            self.context.admin_api().stats(topic)
        except AdminError as error:
            return isinstance(error, AdminNotFound)
        return False
