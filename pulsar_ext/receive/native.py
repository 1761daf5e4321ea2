"""Replacing a C++ consumer or reader, and unsubscribing from one or several topics."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import call, itemgetter
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import Answer, answered_within
from pulsar_ext._native.handles import inner_of
from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import InnerConsumer, InnerMessage, InnerMessageId, InnerReader
from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext._native.signatures import argument_names
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName

from .order import NOTHING, Arguments, Native, Target
from .seek_positions import PROBE, SEEK_RETRY_ERRORS, Head, first_at, first_by_time, position_of, read_heads
from .seeks import Topics

Official: TypeAlias = "pulsar.Consumer | pulsar.Reader"


_FAILOVER_SECONDS = 0.1
"""Seconds that the broker may need to finish sending to a closed consumer. If the next consumer of a Failover
subscription connects earlier, the broker continues to read for it, and moves the cursor back during this read."""
_BUSY_SECONDS, _BUSY_POLL_SECONDS = 10.0, 0.1
"""Seconds that the broker may need to detect that a consumer has lost its connection, and the interval of retries."""

_log = logging.getLogger("pulsar_ext")


N = TypeVar("N", bound="Native")


class NativeHolder(Protocol[N]):
    """The consumer or reader that uses the native object."""

    inner: N

    def _set_native_(self, official: Official, /) -> N:
        """Use the C++ object of an official consumer or reader; return that C++ object."""
        ...


class ExcludedAcks(Protocol):
    """The acknowledgements of a consumer."""

    def acknowledge_skipped(self, inner: InnerMessage, last: int, /) -> None:
        """Acknowledge messages that were excluded by a seek."""

    def note_moved_topics(self, topics: Iterable[str] | None, /) -> None:
        """Note that the next seek moves the cursors of these topics and partitions only; None for all."""


class _Reopener(Generic[N]):
    """Common base of both reopeners."""

    _names: ClassVar[tuple[str, ...]]
    """Names of the arguments."""

    def __init__(
        self,
        handle: NativeHolder[N],
        open_official: Callable[..., Official],
        named: Arguments,
        context: ClientContext,
    ) -> None:
        self._handle, self._open_official, self._context = handle, open_official, context
        self._keep(named)

    def _keep(self, named: Arguments) -> None:
        """Keep the arguments in a tuple: a dictionary takes 800 bytes more per consumer."""
        self._values = itemgetter(*self._names)(named)

    @property
    def _named(self) -> Arguments:
        """The arguments by name."""
        return dict(zip(self._names, self._values, strict=True))

    def retire(self) -> None:
        """Close the C++ object, so that it can be replaced."""
        with contextlib.suppress(pulsar.PulsarException):  # it is not used any more, so errors do not matter
            self._handle.inner.close()

    def wait_for_move(self) -> None:
        """Return at once: nothing is excluded."""

    def is_excluded(self, _: InnerMessage, /) -> bool:
        """Return False: nothing is excluded."""
        return False

    def enable_queue(self) -> None:
        """Use a receiver queue of one message for the next C++ object."""
        self._keep(self._named | {"receiver_queue_size": 1})

    def _open(self, **changed: object) -> Official:
        # With TLS, a connection that is lost during its handshake is an error, and the C++ client does not retry.
        return self._context.persist(partial(self._open_official, **self._named | changed), pulsar.ConnectError)


class ConsumerReopener(_Reopener[InnerConsumer]):
    """Reopens the C++ consumer of a consumer; the subscription's cursor defines where the new one begins."""

    _names = argument_names(pulsar.Client.subscribe)
    _heads: tuple[Head, ...] = ()
    """Messages that the last seek excluded, until they have arrived."""
    _sought: tuple[Head, ...] = ()
    """The same of a seek whose C++ consumer is not open yet; the previous one may receive them too."""
    _is_retired = False
    """Whether the C++ consumer is being replaced, and its messages are redelivered."""

    def __init__(
        self,
        handle: NativeHolder[InnerConsumer],
        open_official: Callable[..., Official],
        named: Arguments,
        context: ClientContext,
        *,
        gate: SeekGate,
        acks: ExcludedAcks,
    ) -> None:
        super().__init__(handle, open_official, named, context)
        self._gate, self._acks, self._moving = gate, acks, Lock()

    def retire(self) -> None:
        """Close the C++ consumer, so that it can be replaced; messages that it still returns are excluded."""
        self._is_retired = True
        super().retire()

    def move(self, target: Target) -> None:
        """Move the cursor, which addresses entries; messages before the target in its entry are excluded later."""
        self._move_all([(target, self._heads_of(target))])

    def note_moved_topics(self, topics: Iterable[str] | None) -> None:
        """Note that the next seek moves these topics and partitions only; None for all."""
        self._acks.note_moved_topics(topics)

    def seek_each(self, targets: Mapping[str, Target]) -> None:
        """Move the cursors of some of several topics and partitions; raises as `move()`."""
        found: list[tuple[Target, tuple[Head, ...]]] = []
        for topic, target in targets.items():
            if isinstance(target, int):
                where = first_at(partial(self._context.open_reader, topic), self._context.call_with_retries, target)
                place = position_of(topic, where.target), self._heads_of(where.target) if where.is_exclusive else ()
            else:
                place = position_of(topic, target), self._heads_of(target)
            found.append(place)
        self._move_all(found)

    def _move_all(self, places: list[tuple[Target, tuple[Head, ...]]]) -> None:
        """Move the cursor, or several topics' one after the other, and exclude the messages before the targets."""
        with self._moving:
            self._move_each(places)

    def _move_each(self, places: list[tuple[Target, tuple[Head, ...]]]) -> None:
        moved: tuple[Head, ...] = ()
        for target, heads in places:
            # Twice: the broker stores the first one with older acknowledgements, which a broker crash would restore.
            for _ in range(2):
                self._context.call_with_retries(self._gate.seek_starter(self._handle.inner, target), SEEK_RETRY_ERRORS)
            moved += heads
            self._heads = self._sought = moved

    def wait_for_move(self) -> None:
        """Wait until the broker has answered a seek: only then it is known which messages it excludes."""
        with self._moving:
            pass

    def _heads_of(self, target: Target) -> tuple[Head, ...]:
        """Return the messages of the entry that a seek to a C++ id excludes."""
        if isinstance(target, int):
            return ()
        several = not isinstance(self._named["topic"], str)
        head = Head.of(target, self._named["start_message_id_inclusive"], several_topics=several)
        return () if head is None else (head,)

    def move_before(self, _: InnerMessageId) -> None:
        """Ignore the id: unacknowledged messages are redelivered."""

    def move_to_cluster(self) -> None:
        """Exclude nothing: the sought entry belongs to the previous cluster."""
        self._heads = self._sought = ()

    def reopen_native(self) -> tuple[InnerConsumer, Iterator[InnerMessage]]:
        """Open another C++ consumer with the same name; return it, and its first messages."""
        self.retire()  # again: a Ctrl-C may have come between
        if self._named["consumer_type"] == pulsar.ConsumerType.Failover:
            threads.sleep(_FAILOVER_SECONDS)
        if self._sought:
            self._heads, self._sought = self._sought, ()
        self._is_retired = False
        if self._named["consumer_type"] == pulsar.ConsumerType.Shared:
            self._reset_dispatch()
        inner = self._handle._set_native_(self._open_when_free())
        ahead: list[InnerMessage] = []
        if self._heads and not self._named["message_listener"] and self._named["receiver_queue_size"]:
            ahead = read_heads(self._heads, inner, self._acks.acknowledge_skipped)
            self._heads = ()
        return inner, iter(ahead)

    def _reset_dispatch(self) -> None:
        """Reset the broker's assignment of chunked messages to the consumers of a Shared subscription.

        The broker keeps that assignment after the consumer has closed: it never redispatches the remaining chunks, or
        waits until that consumer requests more. Subscribing with another type resets it if no other consumer is
        connected. It is not done for a pattern, whose topics are unknown here.
        """
        topics = self._named["topic"]
        for one in [topics] if isinstance(topics, str) else topics if isinstance(topics, list) else ():
            with contextlib.suppress(pulsar.PulsarException, InvalidUse):  # best effort: other consumers may exist
                for topic in self._context.opener.get_topic_partitions(one):
                    self._reset_dispatch_on(topic)

    def _reset_dispatch_on(self, topic: str) -> None:
        # Without a queue: if the broker reads for this consumer, the next one starts inside a chunked message.
        changed = {"topic": topic, "receiver_queue_size": 0, "message_listener": None}
        opened: list[Official] = []
        try:  # a Ctrl-C must not leave it open
            opened += map(call, (partial(self._open, consumer_type=pulsar.ConsumerType.Exclusive, **changed),))
        finally:
            for one in opened:
                inner_of(one).close()

    def _open_when_free(self) -> Official:
        """Open a consumer; retry while the broker still lists the previous one, whose connection may be lost."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return self._open()
            except pulsar.ConsumerBusy:
                if time.monotonic() > deadline:
                    raise
                threads.sleep(_BUSY_POLL_SECONDS)

    def is_excluded(self, inner: InnerMessage, /) -> bool:
        """Return whether a C++ message precedes the sought one in its entry; such a message is acknowledged.

        Used by a listener, and by receives without a queue, which get each message separately.
        """
        if self._is_retired:
            return True
        if not self._heads:
            return False
        inner_id = inner.message_id()
        for head in self._heads:
            if head.has(inner_id):
                self._acks.acknowledge_skipped(inner, head.last)
                return True
        self._heads = tuple(head for head in self._heads if not head.is_past(inner_id))
        return False


class ReaderReopener(_Reopener[InnerReader]):
    """Reopens the C++ reader of a reader; only the reader knows its position in the topic."""

    _names = argument_names(pulsar.Client.create_reader)
    _next: Official | None = None
    _start: InnerMessageId | None = None

    def move(self, target: Target) -> None:
        """Open another C++ reader at the target; it replaces the current one in `reopen_native()`."""
        if isinstance(target, int):
            self._move_to_time(target)
        elif self._is_of_several(target):
            raise InvalidUse(
                f"A reader of all partitions of {self._named['topic']} cannot seek to an id of one partition: the C++ "
                "client drops unread messages of the others. Create it with the topic in a list, or seek to "
                "MessageId.earliest, to MessageId.latest or to a time."
            )
        else:
            self._next = self._open(start_message_id=target)

    def note_moved_topics(self, _: Iterable[str] | None) -> None:
        """Ignore the topics: a reader has no acknowledgements."""

    def seek_each(self, _: Mapping[str, Target]) -> None:
        """Raise: the unread messages of the other partitions cannot be kept."""
        raise InvalidUse(
            f"A reader of all partitions of {self._named['topic']} cannot seek on some of them: the C++ client drops "
            f"unread messages of the others. Create it with the topic in a list: [{self._named['topic']!r}]."
        )

    def move_before(self, inner_id: InnerMessageId) -> None:
        """Open another C++ reader whose next message is the message or the entry of a C++ id."""
        self._next = self._open(start_message_id=inner_id, start_message_id_inclusive=True)

    def move_to_cluster(self) -> None:
        """Begin the next C++ reader where the first one began; at the earliest message if that was an id."""
        start = self._named["start_message_id"]
        if start not in (InnerMessageId.earliest, InnerMessageId.latest):
            _log.warning(
                "A reader of %s began at an id of another cluster; it reads from the earliest message of this cluster.",
                self._named["topic"],
            )
            start = InnerMessageId.earliest
        self._next, self._start = None, start  # opened after this one is closed, which would read there as well

    def _move_to_time(self, millis: int) -> None:
        """Open another C++ reader at the first message that was published at a time or later."""
        found = None
        if TopicName.parse(self._named["topic"]).is_persistent:
            probe = self._open(**PROBE, start_message_id=InnerMessageId.latest)
            found = first_by_time(probe, self._context.call_with_retries, millis)
        if found is None or self._is_of_several(found):
            self._next = self._open(start_message_id=InnerMessageId.latest)
            self._context.call_with_retries(partial(inner_of(self._next).seek_async, millis), SEEK_RETRY_ERRORS)
        else:
            self.move_before(found)

    def _is_of_several(self, inner_id: InnerMessageId) -> bool:
        return inner_id.partition() >= 0 and not TopicName.parse(self._named["topic"]).is_partition

    def reopen_native(self) -> tuple[InnerReader, Iterator[InnerMessage]]:
        """Return the C++ reader that `move()` opened, or open one now."""
        if self._next is None:
            self._next = self._open(start_message_id=self._start)
        return self._handle._set_native_(self._next), NOTHING


def is_of_several(topics: Topics, partitions_of: Callable[[str], list[str]]) -> bool:
    """Return whether the C++ consumer of a subscription reads several topics or partitions."""
    if not isinstance(topics, str):
        return True
    return not TopicName.parse(topics).is_partition and any(
        TopicName.parse(one).is_partition for one in partitions_of(topics)
    )


class Unsubscription:
    """The last unsubscription of a consumer; the broker may have carried it out although it failed here."""

    __slots__ = ("_answer", "_begun")

    def __init__(self) -> None:
        self._answer: Answer | None = None
        self._begun: Sequence[int] = ()

    def noted(self, begin: Callable[[Answer, list[int]], object]) -> Callable[[Answer], object]:
        """Return a function that begins the unsubscription and keeps its answer."""
        return partial(self._begin, begin)

    def _begin(self, begin: Callable[[Answer, list[int]], object], answer: Answer) -> None:
        begun: list[int] = []
        self._answer, self._begun = answer, begun  # first: a Ctrl-C may follow the next line
        begin(answer, begun)

    def is_done(self, seconds: float) -> bool:
        """Return whether an earlier one has been carried out; wait for its answer if a Ctrl-C interrupted it."""
        answer = self._answer
        if answer is None or not self._begun or not answered_within(seconds, lambda: answer.result is None):
            return False
        return bool(answer.result == pulsar.Result.Ok)
