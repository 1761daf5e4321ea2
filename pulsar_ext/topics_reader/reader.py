"""Reading several topics as one; mirrors Java's `MultiTopicsReaderImpl`.

Each topic, or partition, has a reader of its own, a `PartReader`, which reports that a message has arrived. A
`TopicsReader` keeps no message, it only knows which of them are worth asking. So a seek moves one topic and leaves what
is unread of the others where it is, and messages keep their topic's order.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.fork import closed_error, never_opened, refuse_after_fork
from pulsar_ext._native.results import POLL_MILLIS, AlreadyClosed, Timeout
from pulsar_ext._runtime.condition import Condition
from pulsar_ext.chunks.resolver import seek_target
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.key_shared.reader import RangeReader
from pulsar_ext.reader import Reader
from pulsar_ext.receive.order import ReceiveOrder, Transition
from pulsar_ext.receive.seeks import target_of_each
from pulsar_ext.receive.source import Arrivals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext._native.locks import OwnedLock
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.message import Message


class PartReader(Reader):
    """A reader that is asked without waiting, and says when asking again is worth while."""

    __slots__ = ()  # two classes with slots of their own have no common heir; the official class has a dict

    arrivals: Arrivals
    """Of the C++ reader that it stands on now."""
    hear: Callable[[PartReader], object]
    """Is called then; set once it is open."""

    def _wait_of(self, inner: Any) -> Any:
        wait, receive_async = self._receives_of(inner)
        if self._flow is not None:
            wait, self._flow.waits = self._flow.counting(wait), self._has_nothing
        self.arrivals = Arrivals(wait, receive_async, self._say)
        return self.arrivals

    def _has_nothing(self) -> bool:
        return self.waits

    def _say(self) -> None:
        if self._flow is not None:
            self._flow.received += 1
        self.hear(self)

    @property
    def waits(self) -> bool:
        """Whether it says when something has come, and there is nothing until then."""
        return self.arrivals.is_owed() and not self.arrivals.holds

    def _has_native_message_(self) -> bool:
        """Ask if the native reader has a message to read, unless one has arrived already."""
        return self.arrivals.holds or super()._has_native_message_()


class RangePartReader(RangeReader, PartReader):
    """The same, of key ranges."""

    __slots__ = ()


_ARRIVING_SECONDS: Final = 0.05
"""How long a message may take from the C++ client's queue to ours: another thread has to run."""


class TopicsReader(Reader):
    """A reader of several topics; made by `Client.create_reader()` of a list of topics, or of a pattern."""

    __slots__ = ("_changed", "_parts", "_promising", "_watch", "key_hash_ranges")

    _parts: dict[str, PartReader]
    """By the full name of the topic or partition."""
    _promising: deque[PartReader]
    """Those that are worth asking, in turns. Every other one is owed a message, and says when that has come."""
    key_hash_ranges: Any
    _schema: Any

    @classmethod
    def _over_(cls, context: ClientContext, topics: Any, schema: Any, message_class: type[Message]) -> Self:
        """Make a reader of no topic yet.

        Args:
            context: of the client.
            topics: what it is to read: a list, or a pattern.
            schema: of its messages.
            message_class: what they become.
        """
        self = cls.__new__(cls)
        self.inner = never_opened("C++ reader of several topics", "the readers of each topic")
        self._schema = schema
        self._client = context.opener
        self._context, self._topics, self._message_class = context, topics, message_class
        self._order = ReceiveOrder()
        self._parts, self._promising, self._changed = {}, deque(), Condition()
        self._closed, self._queued, self._hear, self._watch, self._filter = False, True, None, None, None
        refuse_after_fork(self)
        return self

    def _add_(self, topic: str, part: PartReader) -> None:
        """Read another topic or partition, of that full name, too."""
        part.hear = self._promise
        with self._changed:
            self._parts[topic] = part
            closed = self._closed
        if closed:  # meanwhile
            part.close()
        self._promise(part)

    def _drop_(self, topic: str) -> None:
        """Read a topic no longer, which is gone."""
        with self._changed:
            part = self._parts.pop(topic)
            part.hear = _ignore
            self._promising = deque(one for one in self._promising if one is not part)
        with contextlib.suppress(pulsar.PulsarException):
            part.close()

    def _keep_(self, watch: Any) -> None:
        """Keep what looks for topics, until it is closed."""
        self._watch = watch

    def topics(self) -> list[str]:
        """Give the full names of the topics and partitions that are read now."""
        return list(self._parts)

    _topics_read = topics

    def topic(self) -> str:
        """Give what it was asked to read: the names, or the pattern."""
        return ", ".join(self._topics) if isinstance(self._topics, list) else str(self._topics.pattern)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or its client was."""
        return self._closed or any(part.is_closed for part in list(self._parts.values()))

    def _refuse_closed(self) -> None:
        self._context.senders.refuse_ended()
        if self.is_closed:
            raise closed_error("Reader")

    @property
    def _locks_(self) -> tuple[OwnedLock, ...]:
        """What the handler of a signal finds held by its own thread where a close would meet something half done."""
        return (*self._order.locks, *(lock for part in list(self._parts.values()) for lock in part._locks_))

    @property
    def _is_owed_(self) -> bool:
        """Whether the C++ client has not answered everything that it was asked for here."""
        return any(part._is_owed_ for part in list(self._parts.values()))

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Read the next message of any topic; messages of one topic, or partition, come in their order.

        A Ctrl-C ends the wait and loses no message.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            pulsar.Timeout: no message came in time.
            pulsar.AlreadyClosed: the reader is closed.
        """
        deadline = None
        if timeout_millis is not None:
            if type(timeout_millis) is not int:
                return self._receive_soon(self._message_class(), timeout_millis)  # refuses it
            deadline = time.monotonic() + timeout_millis / 1000
        while True:
            try:
                part = self._promising[0]
            except IndexError:
                self._wait(deadline)
                continue
            self._promising.rotate(-1)
            try:
                return part.read_next(0)  # pyright: ignore[reportReturnType]  # it is one of ours
            except Timeout:
                self._leave(part, deadline)
            except AlreadyClosed:
                if self._reads(part):
                    raise
                with contextlib.suppress(ValueError):  # another thread has found the same
                    self._promising.remove(part)

    _receive_next_ = read_next  # pyright: ignore[reportAssignmentType]

    def _leave(self, part: PartReader, deadline: float | None) -> None:
        """Leave a part alone that waits; another one has come upon messages that are not for this reader."""
        if part.waits:
            with contextlib.suppress(ValueError):  # another thread has found the same
                self._promising.remove(part)
            if part.arrivals.holds:  # meanwhile
                self._promise(part)
        elif deadline is not None and time.monotonic() >= deadline:
            raise Timeout("Pulsar error: TimeOut")

    def _wait(self, deadline: float | None) -> None:
        """Wait until something has come to any part."""
        self._context.callbacks.refuse("a receive without messages")
        self._refuse_closed()
        left = POLL_MILLIS / 1000
        if deadline is not None:
            left = min(left, deadline - time.monotonic())
            if left <= 0:
                raise Timeout("Pulsar error: TimeOut")
        with self._changed:
            if not self._promising:
                self._changed.wait(left)

    def _promise(self, part: PartReader) -> None:
        """Have a part be asked: something has come to it, or will not come; on any thread."""
        with self._changed:
            self._promising.append(part)
            self._changed.notify()

    def has_message_available(self) -> bool:
        """Tell whether there is a message to read on any of the topics.

        Raises:
            pulsar.PulsarException: for the client's `operation_timeout_seconds` a broker could not be reached.
            pulsar.AlreadyClosed: the reader is closed.
        """
        self._context.callbacks.refuse("has_message_available")
        self._refuse_closed()
        parts = list(dict.fromkeys([*self._promising, *self._parts.values()]))
        parts.sort(key=lambda part: not part.arrivals.holds)  # the cheapest to ask first
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
        """Whether a part is read still: one whose topic is gone may be dropped, and closed, amid a call."""
        return any(one is part for one in list(self._parts.values()))

    def seek(self, messageid: Any) -> None:
        """Move on every topic, or on some of them; what is unread of the others stays where it is.

        Args:
            messageid: `MessageId.earliest`, `MessageId.latest` or a publish time in milliseconds, for all topics; the
                id of a message, which moves its own topic or partition; or a dict that has one of these by topic.

        Raises:
            InvalidUse: an id does not say which topic it is of, or a topic is not read here; nothing has moved.
            IncompleteChunkedMessage, MessageIdNotFound: as of any reader; nothing has moved.
            pulsar.PulsarException: the first error; other topics may have moved, seek again.
        """
        self._context.callbacks.refuse("seek")
        self._refuse_closed()
        targets = target_of_each(messageid, self._parts)
        resolver = self._context.resolver
        found = {topic: seek_target(resolver, topic, target) for topic, target in targets.items()}
        if len(found) == len(self._parts):
            with self._order.passing(Transition.SEEK, self._refuse_closed):
                self._move(found)
        else:
            self._move(found)
            moved = {str(TopicName.parse(topic)) for topic in found}
            self._order.drop_some(lambda inner: str(TopicName.parse(inner.topic_name())) in moved)

    def _move(self, targets: dict[str, Any]) -> None:
        for topic, target in targets.items():
            part = self._parts.get(topic)
            if part is None:  # dropped meanwhile
                continue
            try:
                part.seek(target)
            except AlreadyClosed:
                if self._reads(part):
                    raise
            finally:
                self._promise(part)

    def is_connected(self) -> bool:
        """Tell whether it is connected to the brokers of all topics."""
        return all(part.is_connected() for part in list(self._parts.values()))

    def close(self) -> None:
        """Close the readers of all topics; closing again does nothing.

        Raises:
            pulsar.PulsarException: the first error; all of them are closed all the same.
        """
        self._context.callbacks.refuse("close")
        self._release_()
        _call_each(part.close for part in list(self._parts.values()))

    def _release_(self) -> None:
        """Refuse every use, and have whoever waits find out."""
        self._closed = True
        with self._changed:
            self._changed.notify_all()

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse every use in this child process; a lock may have been held at the fork, for good."""
        super()._after_fork_(refusal)
        self._changed, self._context = Condition(), refusal


def _ignore(_: PartReader) -> None:
    """Hear nothing more of a part."""


def _call_each(calls: Iterable[Callable[[], object]]) -> None:
    """Make each of the calls, and raise what the first one raised that failed."""
    failures = []
    for call in calls:
        try:
            call()
        except pulsar.PulsarException as error:
            failures.append(error)
    if failures:
        raise failures[0]
