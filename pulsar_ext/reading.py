"""Reading of topics from one place to another; made by `Client.read()`.

The end is fixed at the beginning: messages that are stored later are not read. Each place becomes the key of a message
once, by the broker's own search if it is a time. A message is inside or outside as a whole, a batched one by its index
and a chunked one by its last chunk, so a reading that continues from an id repeats and omits nothing.
"""

from __future__ import annotations

import contextlib
import heapq
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, islice
from operator import methodcaller
from typing import Any, Final, Generic, NamedTuple, Self

from ._native.results import POLL_MILLIS, Timeout
from ._runtime.context import ClientContext
from .chunks.leftovers import ends_in_incomplete_message
from .chunks.resolver import as_message_id, is_unresolved, seek_time
from .errors import InvalidUse, MessageIdNotFound
from .ids.message_id import AnyMessageId, MessageId
from .ids.position import Ledgers, Position
from .ids.topic_name import TopicName
from .key_shared.hash_ranges import RangesLike, SlotFilter, as_ranges
from .key_shared.hashing import KeyForms
from .message import Message
from .reader import Reader
from .receive.seeks import partitions_of_each, queue_of_each, target_of_each, targets_by_topic
from .schema.typed import T

Place = AnyMessageId | int | datetime
"""An id of any form, or a publish time: milliseconds since the epoch, or a datetime with a time zone."""
Places = Place | Mapping[str, Place] | None
"""A place on all topics, or one for each topic; None is the beginning or the end of each."""

_DOUBTFUL_SECONDS: Final = 3.0
"""Seconds without a message that the broker reports, after which the end of the topic is checked."""
_SILENT_SECONDS: Final = 60.0
_SPAN: Final = 64
"""Number of entries, beyond one for each message, among which the chunks of one message are found."""
_WIDER: Final = 8
_QUEUE: Final = 1_000


class Key(NamedTuple):
    """Sort key of the messages of one topic or partition."""

    ledger: int
    entry: int
    batch_index: int

    @classmethod
    def of(cls, message_id: MessageId) -> Self:
        """Return the key of a message, for a chunked one that of its last chunk."""
        return cls(message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())

    @property
    def following(self) -> Key:
        """The least key after the message; after its entry, if that is not a batch or the index is unknown."""
        return (
            Key(self.ledger, self.entry + 1, -1)
            if self.batch_index < 0
            else self._replace(batch_index=self.batch_index + 1)
        )

    def entries_before(self, ledgers: Ledgers) -> int:
        """Return the number of entries before the key, including its own if messages of it are before the key."""
        return ledgers.up_to(Position(self.ledger, self.entry - (self.batch_index <= 0)))


_FIRST: Final = Key(-1, -1, -1)


def stored_messages(reader: Reader, ends_in_incomplete_message: Callable[[], bool]) -> Iterator[Message]:
    """Yield the messages of a reader until none is available.

    Raises:
        pulsar.Timeout: the broker reported messages for a minute, and none arrived.
    """
    since: float | None = None
    while True:
        try:
            yield reader.read_next(POLL_MILLIS)  # pyright: ignore[reportReturnType]  # one of ours
            since = None
        except Timeout:
            if not reader.has_message_available():
                return
            if since is None or not reader.is_connected():
                since = time.monotonic()
            silent = time.monotonic() - since
            if silent > _DOUBTFUL_SECONDS and ends_in_incomplete_message():
                return
            if silent > _SILENT_SECONDS:
                raise Timeout(
                    f"The broker reports messages to read on {reader.topic()}, and none arrived in "
                    f"{_SILENT_SECONDS:.0f} seconds."
                ) from None


class _Part(Generic[T]):
    """The messages of one topic or partition between two places."""

    def __init__(
        self, context: ClientContext, topic: str, open_reader: Callable[[str, AnyMessageId], Reader[T]]
    ) -> None:
        admin = context.admin_api()
        self.topic, self._context, self._open_reader = TopicName.parse(topic), context, open_reader
        self._reader: Reader[T] | None = None
        last = admin.last_message_id(topic)
        self._ledgers = Ledgers(admin.internal_stats(topic).ledger_sizes())
        self._first, self._start = _FIRST, MessageId.earliest
        self.stored = MessageId.earliest if last.entry_id() < 0 else last
        """Id of the last message that is stored, `MessageId.earliest` without one."""
        self._end = _FIRST if last.entry_id() < 0 else Key.of(last).following
        self._count: int | None = None
        self._is_read = False
        self.last_read: Message[T] | None = None

    def limit(
        self,
        start: AnyMessageId | int | None,
        end: AnyMessageId | int | None,
        inclusive: tuple[bool, bool],
        count: int | None,
    ) -> None:
        """Find both places."""
        if end is not None:
            self._end = min(self._end, self._find(end, follows=inclusive[1])[0])
        self._count = count
        if start is not None:
            self._first, self._start = self._find(start, follows=not inclusive[0])

    def _begin(self, place: AnyMessageId | int) -> Iterator[Message[T]]:
        """Return the messages from a place, its own included."""
        if self._reader is None:
            self._reader = self._open_reader(str(self.topic), MessageId.latest if isinstance(place, int) else place)
            if not isinstance(place, int):
                return stored_messages(self._reader, self._ends_incomplete)
        self._reader.seek(place)
        return stored_messages(self._reader, self._ends_incomplete)

    def _find(self, place: AnyMessageId | int, *, follows: bool) -> tuple[Key, MessageId]:
        """Return the key of the message at a place, or the key that follows it, and where a reader must begin."""
        if isinstance(place, int):
            first = next(self._begin(place + follows), None)
            return (self._end, MessageId.latest) if first is None else (Key.of(found := first.message_id()), found)
        target = as_message_id(place)
        if target in (MessageId.earliest, MessageId.latest):
            return (_FIRST if target == MessageId.earliest else self._end), target
        with contextlib.suppress(MessageIdNotFound):  # it was trimmed, or is not stored yet
            target = self._context.resolver.resolve(str(self.topic), target)
        key = Key.of(target)
        return (key.following if follows else key), self._id_at(key) if is_unresolved(target) else target

    def _id_at(self, key: Key) -> MessageId:
        return MessageId(self.topic.partition_index, key.ledger, key.entry, max(key.batch_index, 0))

    def _ends_incomplete(self) -> bool:
        return ends_in_incomplete_message(self._context.admin_api, str(self.topic))

    def __iter__(self) -> Iterator[Message[T]]:
        """Yield the messages, and close the reader."""
        yield from self._messages(self._start) if self._count is None else self._last(self._count)
        self._is_read = True
        self.close()

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()

    def _messages(self, place: MessageId) -> Iterator[Message[T]]:
        if self._first >= self._end:
            return
        is_inside, (ledger, entry, _) = False, self._end
        last_entries = ledger, entry - 1  # only from there on an exact comparison is needed
        before: MessageId | None = None
        for message in self._begin(place):
            message_id, is_last = message.message_id(), False
            if message_id == before:  # after a lost connection, the C++ client repeats the last message of a batch
                continue
            before = message_id
            if not is_inside or (message_id.ledger_id(), message_id.entry_id()) >= last_entries:
                key = Key.of(message_id)
                if key >= self._end:
                    return
                if key < self._first:
                    continue
                is_inside, is_last = True, key.following >= self._end
            yield message
            self.last_read = message
            if is_last:
                return

    def _last(self, count: int) -> Iterator[Message[T]]:
        """Yield the last messages before the end; an entry holds one of them, or several, or a part of one."""
        entries, back = self._end.entries_before(self._ledgers), count + _SPAN
        kept: deque[Message[T]] = deque(maxlen=count)
        while True:
            begins = back >= entries
            self._first = _FIRST if begins else Key(*self._ledgers[entries - back + 1], 0)
            kept.extend(self._messages(MessageId.earliest if begins else self._id_at(self._first)))
            if begins or len(kept) == count:
                break
            back *= _WIDER
            kept.clear()
        self.last_read = None
        for message in kept:
            yield message
            self.last_read = message

    @property
    def total(self) -> int:
        """Number of entries between the places."""
        return max(0, self._end.entries_before(self._ledgers) - self._first.entries_before(self._ledgers))

    @property
    def done(self) -> int:
        """Number of entries that were read."""
        if self._is_read or self.last_read is None:
            return self.total if self._is_read else 0
        read = Key.of(self.last_read.message_id()).following.entries_before(self._ledgers)
        return max(0, read - self._first.entries_before(self._ledgers))


class Reading(Generic[T]):
    """Iterator over the messages of topics from one place to another; made by `Client.read()`.

    It ends after the last message that was stored when it was made, and closes its readers then. For one thread at a
    time.
    """

    def __init__(
        self, parts: list[_Part[T]], *, by_publish_time: bool, tests: Sequence[Callable[[Message[Any]], bool]]
    ) -> None:
        self._parts = parts
        merge = partial(heapq.merge, key=methodcaller("publish_timestamp")) if by_publish_time else chain
        messages: Iterator[Message[T]] = iter(merge(*parts))
        for test in tests:
            messages = filter(test, messages)
        self._messages = messages
        self._last: Message[T] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[T]:
        message = self._last = next(self._messages)
        return message

    @property
    def total(self) -> int:
        """Number of stored entries between the places: a batch counts once, a chunked message once for each chunk."""
        return sum(part.total for part in self._parts)

    @property
    def done(self) -> int:
        """Number of those entries that were read."""
        return sum(part.done for part in self._parts)

    @property
    def last_read(self) -> dict[str, MessageId]:
        """Id of the last message of each topic or partition that was returned.

        `client.read(topic, reading.last_read, start_inclusive=False)` continues after them.
        """
        messages = [part.last_read for part in self._parts]  # each without the message that was returned last
        return {one.topic_name(): one.message_id() for one in (*messages, self._last) if one is not None}

    @property
    def stored(self) -> dict[str, MessageId]:
        """Id of the last message that was stored on each topic or partition, `MessageId.earliest` on an empty one.

        `client.read(topic, reading.stored, start_inclusive=False)` returns what has been stored since.
        """
        return {str(part.topic): part.stored for part in self._parts}

    def take(self, count: int) -> list[Message[T]]:
        """Return the next messages, fewer than `count` at the end."""
        return list(islice(self, count))

    def close(self) -> None:
        """End the reading; closing again does nothing."""
        self._messages = iter(())
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _time_as_millis(place: Place) -> AnyMessageId | int:
    """Return a datetime in milliseconds since the epoch, and any other place unchanged."""
    if not isinstance(place, datetime):
        return seek_time(place) if isinstance(place, int) else place
    if place.tzinfo is None:
        raise InvalidUse(f"{place!r} has no time zone, such as datetime.UTC. Nothing was opened.")
    return seek_time(int(place.timestamp() * 1000))


def _places(places: Places, topics: list[str]) -> Mapping[str, AnyMessageId | int]:
    """Return the place on each topic or partition; without those that have none."""
    if places is None:
        return {}
    if isinstance(places, Mapping):
        return targets_by_topic({topic: _time_as_millis(place) for topic, place in places.items()}, topics)
    found: dict[str, Any] = target_of_each(_time_as_millis(places), topics)
    return found


def _tests(
    context: ClientContext,
    keys: Collection[str] | None,
    key_hash_ranges: RangesLike | None,
    properties: Mapping[str, str] | None,
) -> list[Callable[[Message[Any]], bool]]:
    """Return the filters of messages."""
    tests: list[Callable[[Message[Any]], bool]] = []
    if keys is not None:
        wanted = frozenset([keys] if isinstance(keys, str) else keys)
        tests.append(lambda message: message.partition_key() in wanted)
    if key_hash_ranges is not None:
        slots = SlotFilter(as_ranges(key_hash_ranges), KeyForms(context.admin_api))
        tests.append(lambda message: slots(message.inner))
    if properties:
        items = properties.items()
        tests.append(lambda message: items <= message.properties().items())
    return tests


def open_reading(
    context: ClientContext,
    topics: str | Sequence[str] | re.Pattern[str],
    start: Places,
    end: Places,
    *,
    last: int | None,
    inclusive: tuple[bool, bool],
    by_publish_time: bool,
    keys: Collection[str] | None,
    key_hash_ranges: RangesLike | None,
    properties: Mapping[str, str] | None,
    open_reader: Callable[[int, str, AnyMessageId], Reader[T]],
) -> Reading[T]:
    """Open a reading; for the arguments see `Client.read()`. `open_reader` takes a queue size, a topic and a start."""
    if last is not None and (isinstance(last, bool) or not isinstance(last, int) or last < 1):
        raise InvalidUse(f"last must be an int >= 1, got {last!r}. Nothing was opened.")
    if last is not None and start is not None:
        raise InvalidUse("start and last exclude each other: both say where to begin. Nothing was opened.")
    tests = _tests(context, keys, key_hash_ranges, properties)
    names = partitions_of_each(context, topics if isinstance(topics, str | re.Pattern) else list(topics))
    starts, ends = _places(start, names), _places(end, names)
    opening = partial(open_reader, queue_of_each(_QUEUE, len(names)))
    parts = [_Part(context, name, opening) for name in names]
    with contextlib.ExitStack() as opened:
        for name, part in zip(names, parts, strict=True):
            opened.callback(part.close)
            part.limit(starts.get(name), ends.get(name), inclusive, last)
        opened.pop_all()
    return Reading(parts, by_publish_time=by_publish_time, tests=tests)
