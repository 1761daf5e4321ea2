"""Readers: read at full speed, start from and seek to whole messages; mirrors Java's `ReaderImpl`.

`receive.order.Part` lists the order in which a seek, a close and other transitions call its parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from ._native.fork import refuse_after_fork
from ._native.handles import ReaderHandle, adopt
from ._native.messages import InnerMessage, InnerMessageId, InnerReader
from ._native.results import Timeout, cooperative
from ._runtime.context import ClientContext
from .chunks.leftovers import ends_in_incomplete_message
from .ids.message_id import AnyMessageId, MessageId
from .message import Message
from .receive.compacted import CompactionFilter
from .receive.filter import FilteredSource
from .receive.order import ReceiveOrder
from .receive.receiver import Receiving
from .receive.source import NativeSource, ReceiveAsync
from .receive.undecryptable import Flow, PermitWatch
from .schema.typed import T

if TYPE_CHECKING:
    import pulsar


__all__ = ["Reader"]

_SILENT_SECONDS: Final = 3.0
_LONGEST_SECONDS: Final = 60.0


class Reader(Receiving[InnerReader, T], ReaderHandle):
    """A `pulsar.Reader` that finds a chunked message by any of its ids; created by `Client.create_reader()`."""

    __slots__ = (
        "_client",
        "_closed",
        "_context",
        "_filter",
        "_flow",
        "_message_class",
        "_on_message",
        "_order",
        "_queued",
        "_source",
        "_topics",
    )

    _filter: FilteredSource | None
    """None if every message is delivered."""

    def __init__(self) -> None:
        super().__init__()
        raising: Any = self.inner  # never opened
        self._client = self._context = self._source = self._order = raising
        self._closed = self._queued = False
        self._filter = None
        self._flow = None
        self._message_class = Message

    @classmethod
    def _assemble_(
        cls,
        official: pulsar.Reader,
        context: ClientContext,
        message_class: type[Message],
        topic: str,
        *,
        queued: bool = True,
        compaction: CompactionFilter | None = None,
        flow: Flow | None = None,
    ) -> Self:
        """Create a reader from an official one, which is not used afterwards.

        `queued` is false if it has no receiver queue, so that a read with a timeout is impossible. `flow` counts
        messages if undecryptable ones can use up permits.
        """
        self = cls.__new__(cls)
        adopt(self, official, context.opener)
        self._context = context
        self._message_class = message_class
        self._topics = topic
        self._closed = False
        self._queued, self._flow = queued, flow
        self._order = ReceiveOrder()
        self._order.cluster = message_class.cluster
        native = self._source = NativeSource(self.inner, self._receive_of)
        self._order.add_subscriber(native)
        self._filter = None
        if compaction is not None:
            self._order.add_subscriber(compaction)
            self._filter_by(compaction)
        refuse_after_fork(self)
        return self

    def _filter_by(self, wanted: Callable[[InnerMessage], bool]) -> FilteredSource:
        """Deliver only the C++ messages that a function accepts; return the filter."""
        self._source = self._filter = found = FilteredSource(self._source, wanted)
        self._order.add_subscriber(found)
        return found

    @property
    def _screens_(self) -> bool:
        """True if Python screens each message before the application receives it."""
        return self._filter is not None or super()._screens_

    if TYPE_CHECKING:

        def read_next(self, timeout_millis: int | None = None) -> Message[T]:
            """Read one message.

            A Ctrl-C ends the wait within 100 ms and loses no message.

            Args:
                timeout_millis: the milliseconds to wait; None waits forever.

            Raises:
                pulsar.Timeout: no message arrived in time.
                pulsar.AlreadyClosed: the reader is closed.
            """
            ...
    else:
        read_next = Receiving._receive_next_

    def _monitor_permits_(self, flow: Flow, name: str, move: Callable[[InnerMessageId], None]) -> None:
        """Replace the C++ reader, listed by the broker as `name`, when undecryptable messages use up its permits."""
        permits = PermitWatch(self._context, self._order, flow, self._topics, name, move=move)
        self._order.add_subscriber(permits)
        permits.begin()

    def _receives_of(self, inner: InnerReader) -> tuple[Callable[[int], InnerMessage], ReceiveAsync]:
        return cooperative(inner.read_next), inner.read_next_async

    def seek(self, messageid: AnyMessageId | int | Mapping[str, AnyMessageId | int]) -> None:
        """Move to a message, or to a publish time in milliseconds; see `Consumer.seek()`.

        Raises:
            IncompleteChunkedMessage: chunks of the message were trimmed, so it cannot be delivered any more.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidUse: the target is neither an id nor an int, or it is an id of one of several partitions.
        """
        self._seek(messageid)

    def get_last_message_ids(self) -> list[MessageId]:
        """Return the id of the last message of each topic and partition; see `Consumer.get_last_message_ids()`."""
        return self._get_last_message_ids()

    def has_reached_end_of_topic(self) -> bool:
        """Return whether every topic was terminated and completely read; mirrors Java's `Reader.hasReachedEndOfTopic`.

        Raises:
            AdminError: the admin API rejected the request, or did not answer; a topic that is not persistent cannot be
                terminated.
        """
        return self._has_reached_end(lambda _: not self.has_message_available())

    @property
    def is_closed(self) -> bool:
        """True if this or its client was closed."""
        return self._closed

    def close(self) -> None:
        """Close; closing again does nothing.

        Raises:
            pulsar.PulsarException: the broker did not answer, or rejected the close; this is closed nevertheless.
        """
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has_message_available(self) -> bool:
        """Return whether there is a message to read; mirrors Java's `Reader.hasMessageAvailable`.

        While the broker cannot be reached, it is asked again; the official client returns False after a lost
        connection. A reader of key ranges or of a compacted topic reads and drops messages that it skips, and keeps the
        first other one for `read_next()`.

        Raises:
            pulsar.PulsarException: the broker could not be reached for the client's `operation_timeout_seconds`.
            pulsar.Timeout: the broker reported messages for a minute, and none arrived.
            pulsar.UnknownError: the topic is not persistent, as officially.
            pulsar.AlreadyClosed: the reader is closed.
        """
        found = self._filter
        return self._has_native_message_() if found is None else self._has_message_of(found)

    def _has_message_of(self, found: FilteredSource) -> bool:
        since, seen = time.monotonic(), found.skipped_count
        while not found.holds:
            if not self._has_native_message_():
                return False
            if found.peek():
                break
            now = time.monotonic()
            if found.skipped_count != seen or not self.inner.is_connected():
                since, seen = now, found.skipped_count
            elif now - since > _SILENT_SECONDS and self._ends_incomplete():
                return False
            elif now - since > _LONGEST_SECONDS:
                raise Timeout(
                    f"The broker reports messages to read on {self._topics}, and none arrived in "
                    f"{_LONGEST_SECONDS:.0f} seconds."
                )
        return True

    def _ends_incomplete(self) -> bool:
        topic = self._topics
        return isinstance(topic, str) and ends_in_incomplete_message(self._context.admin_api, topic)

    def _has_native_message_(self) -> bool:
        """Return if the native reader has a message to read, which may be one that is skipped here."""
        self._context.callbacks.raise_inside("has_message_available")
        return bool(self._ask_stored(lambda inner: inner.has_message_available_async))
