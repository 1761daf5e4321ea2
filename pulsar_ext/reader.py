"""Readers: read at full speed, start from and seek to whole messages; mirrors Java's `ReaderImpl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ._native.fork import refuse_after_fork
from ._native.handles import ReaderDoor, adopt
from ._runtime.callbacks import refuse_in_callback
from .message import Message
from .receive.loop import Receiving

if TYPE_CHECKING:
    import pulsar

    from .client.client import Client

__all__ = ["Reader"]


class Reader(Receiving, ReaderDoor):
    """A `pulsar.Reader` that finds a chunked message by whatever id; made by `Client.create_reader()`."""

    __slots__ = ("_answers", "_client", "_closed", "_hear", "_message_class", "_receive_call", "_source", "_topics")

    def __init__(self) -> None:
        super().__init__()
        self._client: Client = None  # type: ignore[assignment]  # never opened
        self._closed = False
        self._message_class = Message
        self._source = self._receive_call = self.inner
        self._answers: Any = None

    @classmethod
    def _of(
        cls, official: pulsar.Reader, client: Client, message_class: type[Message], topic: str, *, queued: bool = True
    ) -> Self:
        """Take over an official reader; the arguments are those of `Consumer._of`."""
        self = cls.__new__(cls)
        adopt(self, official, client)
        self._message_class = message_class
        self._topics = topic
        self._closed = False
        self._receive_from(self.inner.read_next, None if queued else self.inner.read_next_async)
        refuse_after_fork(self)
        return self

    read_next = Receiving._receive  # noqa: SLF001  # pyright: ignore[reportAssignmentType]  # untyped officially

    def has_message_available(self) -> bool:
        """Tell whether there is a message to read."""
        refuse_in_callback(self._client, "has_message_available")
        return bool(self.inner.has_message_available())
