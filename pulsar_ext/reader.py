"""Readers: read at full speed, start from and seek to whole messages; mirrors Java's `ReaderImpl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ._native.fork import refuse_after_fork
from ._native.handles import ReaderDoor, adopt
from ._native.results import UNREACHABLE
from .message import Message
from .receive.loop import Receiving
from .receive.order import ReceiveOrder
from .receive.source import NativeSource
from .schema.typed import T

if TYPE_CHECKING:
    import pulsar

    from ._runtime.context import ClientContext
    from .admin import InternalStats

__all__ = ["Reader"]


class Reader(Receiving[T], ReaderDoor):
    """A `pulsar.Reader` that finds a chunked message by whatever id; made by `Client.create_reader()`."""

    __slots__ = (
        "_client",
        "_closed",
        "_context",
        "_hear",
        "_message_class",
        "_order",
        "_queued",
        "_source",
        "_topics",
    )

    def __init__(self) -> None:
        super().__init__()
        self._client = self._context = self._source = self._order = self.inner  # never opened
        self._closed = self._queued = False
        self._message_class = Message

    @classmethod
    def assemble(
        cls,
        official: pulsar.Reader,
        context: ClientContext,
        message_class: type[Message],
        topic: str,
        *,
        queued: bool = True,
    ) -> Self:
        """Make a reader of an official one.

        Args:
            official: the reader; it is not used afterwards.
            context: of the client that it belongs to.
            message_class: what its messages become.
            topic: what it reads.
            queued: whether the receiver queue has room, so that a read with a timeout is possible.
        """
        self = cls.__new__(cls)
        adopt(self, official, context.opener)
        self._context = context
        self._message_class = message_class
        self._topics = topic
        self._closed = False
        self._queued = queued
        self._order = ReceiveOrder()
        native = self._source = NativeSource(self.inner, self._wait_of)
        self._order.take_part(native)
        refuse_after_fork(self)
        return self

    if TYPE_CHECKING:

        def read_next(self, timeout_millis: int | None = None) -> Message[T]:
            """Read one message, as `receive_next()`."""
            ...
    else:
        read_next = Receiving.receive_next

    @staticmethod
    def _receives_of(inner: Any) -> tuple[Any, Any]:
        """Give the receive with a timeout of a C++ reader, and the asynchronous one."""
        return inner.read_next, inner.read_next_async

    def _has_had_all(self, _: list[InternalStats], /) -> bool:
        return not self.has_message_available()

    def has_message_available(self) -> bool:
        """Tell whether there is a message to read; mirrors Java's `Reader.hasMessageAvailable`.

        While the broker cannot be reached it is asked again; officially the end of a connection means False.

        Raises:
            pulsar.PulsarException: for the client's `operation_timeout_seconds` the broker could not be reached.
            pulsar.AlreadyClosed: the reader is closed.
        """
        self._context.callbacks.refuse("has_message_available")
        return bool(self._ask(lambda inner: inner.has_message_available_async, UNREACHABLE))
