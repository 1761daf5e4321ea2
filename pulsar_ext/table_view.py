"""Table views: the latest value of every key of a topic, in memory; mirrors Java's `TableViewImpl`.

The C++ client's own reads what is on the topic by recursion: ten thousand messages that come fast overflow its stack,
and the process is gone. Where the connection ends meanwhile, it is empty, without an error. This one has a `Reader`.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, Generic, Self

import pulsar

from pulsar_ext._native import threads

from ._native.fork import never_opened, refuse_after_fork
from ._native.locks import OwnedLock
from ._native.results import AlreadyClosed, Timeout
from .schema.typed import T

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .ids.message_id import MessageId
    from .message import Message
    from .reader import Reader

__all__ = ["End", "TableView"]

_log = logging.getLogger("pulsar_ext")

_LOOK_MILLIS: Final = 1_000
_AGAIN_SECONDS: Final = 1.0
_DOUBTFUL_SECONDS: Final = 3.0
"""After so long without a message that the broker says there is, it is asked for what there is."""
_SILENT_SECONDS: Final = 60.0


class TableView(pulsar.TableView, Generic[T]):  # type: ignore[misc]  # the official client ships no types
    """A `pulsar.TableView`; made by `Client.create_table_view()`.

    Behind a close, and behind its client's, it shows what it has, and follows the topic no longer.
    """

    def __init__(self) -> None:
        super().__init__(None, "", None, pulsar.schema.BytesSchema())
        self._table = self._reader = never_opened("TableView", "Client.create_table_view()")

    @classmethod
    def _assemble_(
        cls,
        reader: Reader,
        topic: str,
        subscription: str | None,
        schema: Any,
        ends_in_a_half: Callable[[], bool],
        end: End,
    ) -> Self:
        """Make a view that follows a reader from now on, which is its own.

        Args:
            reader: reads the topic from its beginning.
            topic: its name.
            subscription: what the application calls the view.
            schema: of the values.
            ends_in_a_half: tells whether the topic ends in a chunked message that has no end, which never comes.
            end: what the view reads up to, if it becomes known in time; else until the broker has no more.

        Raises:
            pulsar.Timeout: for a minute the broker had messages to come, and none came.
            pulsar.PulsarException: the topic could not be read.
        """
        self = cls()
        pulsar.TableView.__init__(self, None, topic, subscription, schema)
        self._reader, self._table = reader, _Table(reader, topic)
        self._table.catch_up(ends_in_a_half, end)
        threads.start(self._table.follow, name="pulsar-ext-table-view")
        weakref.finalize(self, self._table.let_go).atexit = False
        refuse_after_fork(self)
        return self

    @property
    def inner(self) -> Any:
        """The reader that it follows."""
        return self._reader

    def get(self, key: str) -> T | None:
        """Give the value of a key; None if there is none."""
        kept = self._table.values.get(key)
        return None if kept is None else kept.value()

    def keys(self) -> list[str]:
        """Give the keys that there are now, in the order in which they came."""
        return list(self._table.values)

    def values(self) -> list[T]:
        """Give the values that there are now, in the order of `keys()`."""
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[str, T]]:
        """Give the keys that there are now, each with its value."""
        return [(key, kept.value()) for key, kept in list(self._table.values.items())]

    def for_each(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for every key that there is now."""
        for key, value in self.items():
            callback(key, value)

    def listen(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for every change from now on, as `for_each_and_listen()` without the first part.

        Mirrors Java's `TableView.listen`.
        """
        with self._table.lock:
            self._table.listeners.append(lambda key, kept: callback(key, _changed(kept)))

    def for_each_and_listen(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for every key that there is now, and then for every change.

        Changes come on the view's own thread, and none is missed in between. The value of a key that was removed is
        what the schema makes of no bytes, or None. What the callback raises behind a change is logged.
        """
        with self._table.lock:
            self.for_each(callback)
            self.listen(callback)

    def close(self) -> None:
        """Follow the topic no longer; closing again does nothing."""
        self._table.let_go()
        self._reader.close()

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse every use in this child process."""
        self._table = self._reader = refusal

    def __len__(self) -> int:
        return len(self._table.values)

    def __contains__(self, key: object) -> bool:
        return key in self._table.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


class _Kept:
    """What a view keeps of a message: what decoding it takes."""

    __slots__ = ("_class", "_data", "_is_null", "_topic", "_version")

    def __init__(self, message: Message) -> None:
        self._class = type(message)
        self._data: bytes = message.data()
        self._is_null: bool = message.has_null_value()
        self._topic: str = message.topic_name()
        self._version: int = message.inner.int_schema_version()

    @property
    def cluster(self) -> int:
        """Number of the cluster that it was read from."""
        return self._class.cluster

    def value(self) -> Any:
        """Decode it, with the schema that it was written with."""
        message = self._class()
        message.inner = self
        return message.value()

    def data(self) -> bytes:
        """Give the value's bytes."""
        return self._data

    def has_null_value(self) -> bool:
        """Return whether the message was sent without a value."""
        return self._is_null

    def topic_name(self) -> str:
        """Give the topic, or the partition, that it is on."""
        return self._topic

    def int_schema_version(self) -> int:
        """Give the version of the schema that it was written with; -1 if there is none."""
        return self._version

    def message_id(self) -> str:
        """Say what the value is, where it cannot be decoded."""
        return f"of {self._topic}"


def _changed(kept: _Kept | None) -> Any:
    """Return the value that a listener is called with; None for a key that was removed."""
    if kept is None:
        return None
    try:
        return kept.value()
    except Exception:
        if kept.data():
            raise
        return None


class End:
    """The end of a topic, or of each partition, at one time, and if a view has read up to there (pure).

    Whoever finds it out does so while the view is reading already.
    """

    def __init__(self) -> None:
        self._read: dict[str, MessageId] = {}
        self._found: Iterable[MessageId] | None = None
        self._unread: dict[str, tuple[int, int, int]] | None = None

    def find(self, last_ids: Iterable[MessageId]) -> None:
        """Set the last id of each, whose entry is -1 if there is no message; on any thread."""
        self._found = last_ids

    def note(self, message: Message) -> None:
        """Note a message that was read; within a topic, or a partition, they arrive in order."""
        topic = message.topic_name()
        self._read[topic] = message.message_id()
        self._drop_if_read(topic)

    @property
    def is_reached(self) -> bool:
        """Whether everything up to the end was read; False as long as the end is not known."""
        if self._unread is None and self._found is not None:
            self._unread = {str(one.topic_name()): _place_of(one) for one in self._found if one.entry_id() >= 0}
            for topic in list(self._unread):
                self._drop_if_read(topic)
        return self._unread is not None and not self._unread

    def _drop_if_read(self, topic: str) -> None:
        read, last = self._read.get(topic), (self._unread or {}).get(topic)
        if self._unread and read is not None and last is not None and _place_of(read) >= last:
            del self._unread[topic]


def _place_of(message_id: MessageId) -> tuple[int, int, int]:
    """Return what orders the ids of one topic or partition."""
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


class _Table:
    """The values of a view, which one thread changes and any thread reads.

    Args:
        reader: what they come from.
        topic: its name.
    """

    def __init__(self, reader: Reader, topic: str) -> None:
        self.values: dict[str, _Kept] = {}
        self.listeners: list[Callable[[str, _Kept | None], object]] = []
        self.lock = OwnedLock()
        """Held while a value is changed and the listeners hear of it."""
        self._reader, self._topic = reader, topic
        self._is_wanted = True
        self._cluster = reader._message_class_.cluster

    def catch_up(self, ends_in_a_half: Callable[[], bool], end: End) -> None:
        """Read what is on the topic now, and no further if that is known: others may go on writing."""
        since = time.monotonic()
        while not end.is_reached and self._reader.has_message_available():
            try:
                message = self._read()
            except Timeout:
                silent = time.monotonic() - since if self._reader.is_connected() else 0.0
                if silent > _DOUBTFUL_SECONDS and ends_in_a_half():
                    return
                if silent > _SILENT_SECONDS:
                    raise Timeout(
                        f"The broker says that {self._topic} has messages to read, and none came in "
                        f"{_SILENT_SECONDS:.0f} seconds."
                    ) from None
            else:
                since = time.monotonic()
                self._take(message)
                end.note(message)

    def follow(self) -> None:
        """Take what comes until nobody wants it any more, or the reader is closed."""
        while self._is_wanted:
            try:
                self._leave_cluster()
                self._take(self._read())
            except Timeout:
                continue
            except AlreadyClosed:
                return
            except Exception:  # noqa: BLE001  # the next message may be readable
                _log.exception("The table view of %s could not read a message; it goes on.", self._topic)
                threads.sleep(_AGAIN_SECONDS)
        with contextlib.suppress(pulsar.PulsarException):  # nobody wants it, whatever it says
            self._reader.close()

    def let_go(self) -> None:
        """Want nothing more; takes no lock, for a finalizer calls it."""
        self._is_wanted = False

    def _leave_cluster(self) -> None:
        """Remove the keys that only the cluster before had, once all of another cluster was read."""
        number = self._reader._message_class_.cluster
        if number == self._cluster or self._reader.has_message_available():
            return
        with self.lock:
            for key in [key for key, kept in self.values.items() if kept.cluster != number]:
                self._set(key, None)
        self._cluster = number

    def _read(self) -> Message:
        return self._reader.read_next(_LOOK_MILLIS)  # pyright: ignore[reportReturnType]  # it is one of ours

    def _take(self, message: Message) -> None:
        try:
            key = message.partition_key()
        except UnicodeDecodeError:
            _log.warning("The table view of %s leaves out a message whose key is no text.", self._topic)
            return
        if not key:
            return
        kept = _Kept(message)
        with self.lock:
            self._set(key, kept)

    def _set(self, key: str, kept: _Kept | None) -> None:
        """Set or remove the value of a key, and notify the listeners; the lock is held."""
        if kept is not None and kept.data():
            self.values[key] = kept
        else:
            self.values.pop(key, None)
        for listener in tuple(self.listeners):  # one that is added by another hears of the next change
            try:
                listener(key, kept)
            except Exception:  # noqa: BLE001  # the application's
                _log.exception("A listener of the table view of %s raised; the view goes on", self._topic)
