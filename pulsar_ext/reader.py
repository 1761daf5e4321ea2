"""Readers: read at full speed, start from and seek to whole messages; mirrors Java's `ReaderImpl`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Self

from ._native.fork import refuse_after_fork
from ._native.handles import ReaderDoor, adopt
from ._native.results import Timeout, cooperative
from .chunks.leftovers import ends_in_a_half
from .message import Message
from .receive.filter import FilteredSource
from .receive.order import ReceiveOrder
from .receive.receiver import Receiving
from .receive.source import NativeSource
from .receive.undecryptable import PermitWatch
from .schema.typed import T

if TYPE_CHECKING:
    from collections.abc import Callable

    import pulsar

    from ._runtime.context import ClientContext
    from .admin import InternalStats
    from .receive.compacted import CompactionFilter
    from .receive.undecryptable import Flow

__all__ = ["Reader"]

_SILENT_SECONDS: Final = 3.0
_LONGEST_SECONDS: Final = 60.0


class Reader(Receiving[T], ReaderDoor):
    """A `pulsar.Reader` that finds a chunked message by whatever id; made by `Client.create_reader()`."""

    __slots__ = (
        "_client",
        "_closed",
        "_context",
        "_filter",
        "_flow",
        "_hear",
        "_message_class",
        "_order",
        "_queued",
        "_source",
        "_topics",
    )

    _filter: Any
    """A `FilteredSource`; None if every message is handed out."""

    def __init__(self) -> None:
        super().__init__()
        self._client = self._context = self._source = self._order = self.inner  # never opened
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
        """Make a reader of an official one.

        Args:
            official: the reader; it is not used afterwards.
            context: of the client that it belongs to.
            message_class: what its messages become.
            topic: what it reads.
            queued: whether the receiver queue has room, so that a read with a timeout is possible.
            compaction: tells what is left of a compacted topic; None if everything is read.
            flow: counts what comes, where messages that cannot be decrypted use up permits.
        """
        self = cls.__new__(cls)
        adopt(self, official, context.opener)
        self._context = context
        self._message_class = message_class
        self._topics = topic
        self._closed = False
        self._queued, self._flow = queued, flow
        self._order = ReceiveOrder()
        native = self._source = NativeSource(self.inner, self._wait_of)
        self._order.take_part(native)
        self._filter = None
        if compaction is not None:
            self._order.take_part(compaction)
            self._filter_by(compaction)
        refuse_after_fork(self)
        return self

    def _filter_by(self, wanted: Callable[[Any], bool]) -> None:
        """Hand out only the C++ messages that a function wants."""
        self._source = self._filter = FilteredSource(self._source, wanted)
        self._order.take_part(self._filter)

    @property
    def _judges_(self) -> bool:
        """Whether Python looks at each message before the application does."""
        return self._filter is not None or super()._judges_

    if TYPE_CHECKING:

        def read_next(self, timeout_millis: int | None = None) -> Message[T]:
            """Read one message, as `receive_next()`."""
            ...
    else:
        read_next = Receiving._receive_next_

    def _look_after_permits_(self, flow: Flow, name: str, move: Callable[[Any], None]) -> None:
        """Have another C++ reader take the place of one whose permits messages have used up that cannot be decrypted.

        Args:
            flow: counts what comes.
            name: by which the broker lists it.
            move: has the next C++ reader begin at the entry of a C++ id.
        """
        permits = PermitWatch(self._context, self._order, flow, self._topics, name, move=move)
        self._order.take_part(permits)
        permits.begin()

    @staticmethod
    def _receives_of(inner: Any) -> tuple[Any, Any]:
        """Give the receive with a timeout of a C++ reader, and the asynchronous one."""
        return cooperative(inner.read_next), inner.read_next_async

    def _has_had_all(self, _: list[InternalStats], /) -> bool:
        return not self.has_message_available()

    def has_message_available(self) -> bool:
        """Tell whether there is a message to read; mirrors Java's `Reader.hasMessageAvailable`.

        While the broker cannot be reached it is asked again; officially the end of a connection means False. A reader
        of key ranges or of a compacted topic reads and drops what it skips, and keeps what it finds for `read_next()`.

        Raises:
            pulsar.PulsarException: for the client's `operation_timeout_seconds` the broker could not be reached.
            pulsar.Timeout: for a minute, the broker had messages to come and none came.
            pulsar.UnknownError: the topic is not persistent, as officially.
            pulsar.AlreadyClosed: the reader is closed.
        """
        found = self._filter
        return self._has_native_message_() if found is None else self._has_message_of(found)

    def _has_message_of(self, found: FilteredSource) -> bool:
        since, seen = time.monotonic(), found.passed_by
        while not found.holds:
            if not self._has_native_message_():
                return False
            if found.peek():
                break
            now = time.monotonic()
            if found.passed_by != seen or not self.inner.is_connected():
                since, seen = now, found.passed_by
            elif now - since > _SILENT_SECONDS and ends_in_a_half(self._context.admin_api, self._topics):
                return False
            elif now - since > _LONGEST_SECONDS:
                raise Timeout(
                    f"The broker says that {self._topics} has messages to read, and none came in "
                    f"{_LONGEST_SECONDS:.0f} seconds."
                )
        return True

    def _has_native_message_(self) -> bool:
        """Ask if the native reader has a message to read, which may be one that is skipped here."""
        self._context.callbacks.refuse("has_message_available")
        return bool(self._ask_stored(lambda inner: inner.has_message_available_async))
