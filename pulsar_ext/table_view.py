"""Table views: the latest value of every key of a topic, in memory; mirrors Java's `TableViewImpl`.

The C++ client's own table view reads the topic by recursion: ten thousand fast messages overflow its stack and end the
process. If the connection ends during that, it stays empty without an error. This table view uses a `Reader`.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, Self

import pulsar

from pulsar_ext._native import threads

from ._native.fork import never_opened, refuse_after_fork
from ._native.locks import OwnedLock
from ._native.results import AlreadyClosed, Timeout
from .ids.message_id import MessageId
from .message import Message
from .reader import Reader
from .reading import Key, stored_messages
from .schema.typed import T

_log = logging.getLogger("pulsar_ext")

_POLL_MILLIS: Final = 1_000
_RETRY_SECONDS: Final = 1.0


class TableView(pulsar.TableView, Generic[T]):  # type: ignore[misc]  # the official client ships no types
    """A `pulsar.TableView`; created by `Client.create_table_view()`.

    After a close, also of its client, it keeps its values, and does not follow the topic any more.
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
        schema: pulsar.schema.Schema,
        ends_in_incomplete_message: Callable[[], bool],
        end: End,
    ) -> Self:
        """Create a view that owns and follows a reader."""
        self = cls()
        pulsar.TableView.__init__(self, None, topic, subscription, schema)
        self._reader, self._table = reader, _Table(reader, topic)
        self._table.catch_up(ends_in_incomplete_message, end)
        threads.start(self._table.follow, name="pulsar-ext-table-view")
        weakref.finalize(self, self._table.abandon).atexit = False
        refuse_after_fork(self)
        return self

    @property
    def inner(self) -> Reader:
        """Reader that the view follows."""
        reader: Reader = self._reader
        return reader

    def get(self, key: str) -> T | None:
        """Return the value of a key, or None."""
        kept = self._table.values.get(key)
        return None if kept is None else kept.value()

    def keys(self) -> list[str]:
        """Return the current keys, in the order in which they arrived."""
        return list(self._table.values)

    def values(self) -> list[T]:
        """Return the current values, in the order of `keys()`."""
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[str, T]]:
        """Return the current keys, each with its value."""
        return [(key, kept.value()) for key, kept in list(self._table.values.items())]

    def for_each(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for every current key."""
        for key, value in self.items():
            callback(key, value)

    def listen(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for every change from now on, but not for current keys.

        Mirrors Java's `TableView.listen`.
        """
        with self._table.lock:
            self._table.listeners.append(lambda key, kept: callback(key, _changed(kept)))

    def for_each_and_listen(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for every current key, and then for every change.

        The view's own thread calls it for changes, and none is missed in between. The value of a removed key is what
        the schema decodes from no bytes, or None. An exception of the callback after a change is logged.
        """
        with self._table.lock:
            self.for_each(callback)
            self.listen(callback)

    def close(self) -> None:
        """Stop following the topic; closing again does nothing."""
        self._table.abandon()
        self._reader.close()

    def _after_fork_(self, raising: Any) -> None:
        """Make every use raise in this child process."""
        self._table = self._reader = raising

    def __len__(self) -> int:
        return len(self._table.values)

    def __contains__(self, key: object) -> bool:
        return key in self._table.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


class _Kept:
    """The parts of a message that are kept for decoding it."""

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
        """Decode the value, with the schema that it was written with."""
        message = self._class()
        message.inner = self
        return message.value()

    def data(self) -> bytes:
        """Return the value's bytes."""
        return self._data

    def has_null_value(self) -> bool:
        """Return whether the message was sent without a value."""
        return self._is_null

    def topic_name(self) -> str:
        """Return the topic or the partition of the message."""
        return self._topic

    def int_schema_version(self) -> int:
        """Return the version of the schema that it was written with; -1 without one."""
        return self._version

    def message_id(self) -> str:
        """Return the name of the value in the error of a failed decoding."""
        return f"of {self._topic}"


def _changed(kept: _Kept | None) -> Any:
    """Return the value that a listener is called with; None for a removed key."""
    if kept is None:
        return None
    try:
        return kept.value()
    except Exception:
        if kept.data():
            raise
        return None


class End:
    """The end of a topic or of each partition at one time, and whether a view has read up to there (pure).

    The end is queried while the view is already reading.
    """

    def __init__(self) -> None:
        self._read: dict[str, MessageId] = {}
        self._found: Iterable[MessageId] | None = None
        self._unread: dict[str, Key] | None = None

    def find(self, last_ids: Iterable[MessageId]) -> None:
        """Set the last id of each topic or partition, whose entry is -1 if it is empty; on any thread."""
        self._found = last_ids

    def note(self, message: Message) -> None:
        """Note a message that was read; messages of one topic or partition arrive in order."""
        topic = message.topic_name()
        self._read[topic] = message.message_id()
        self._drop_if_read(topic)

    @property
    def is_reached(self) -> bool:
        """True if everything up to the end was read; False while the end is unknown."""
        if self._unread is None and self._found is not None:
            self._unread = {str(one.topic_name()): Key.of(one) for one in self._found if one.entry_id() >= 0}
            for topic in list(self._unread):
                self._drop_if_read(topic)
        return self._unread is not None and not self._unread

    def _drop_if_read(self, topic: str) -> None:
        read, last = self._read.get(topic), (self._unread or {}).get(topic)
        if self._unread and read is not None and last is not None and Key.of(read) >= last:
            del self._unread[topic]


class _Table:
    """The values of a view, which one thread changes and any thread reads."""

    def __init__(self, reader: Reader, topic: str) -> None:
        self.values: dict[str, _Kept] = {}
        self.listeners: list[Callable[[str, _Kept | None], object]] = []
        self.lock = OwnedLock()
        """Held while a value is changed and the listeners are called."""
        self._reader, self._topic = reader, topic
        self._is_wanted = True
        self._cluster = reader._message_class_.cluster

    def catch_up(self, ends_in_incomplete_message: Callable[[], bool], end: End) -> None:
        """Read the messages on the topic, up to its current end if that is known, as others may keep writing."""
        for message in stored_messages(self._reader, ends_in_incomplete_message):
            self._take(message)
            end.note(message)
            if end.is_reached:
                return

    def follow(self) -> None:
        """Apply messages until the view is abandoned or the reader is closed."""
        while self._is_wanted:
            try:
                self._leave_cluster()
                self._take(self._read())
            except Timeout:
                continue
            except AlreadyClosed:
                return
            except Exception:  # noqa: BLE001  # the next message may be readable
                _log.exception("The table view of %s could not read a message; retrying in 1 s", self._topic)
                threads.sleep(_RETRY_SECONDS)
        with contextlib.suppress(pulsar.PulsarException):  # the view is gone, so errors do not matter
            self._reader.close()

    def abandon(self) -> None:
        """Stop following; takes no lock, because a finalizer calls it."""
        self._is_wanted = False

    def _leave_cluster(self) -> None:
        """Remove keys that only the previous cluster had, after everything of the new one was read."""
        number = self._reader._message_class_.cluster
        if number == self._cluster or self._reader.has_message_available():
            return
        with self.lock:
            for key in [key for key, kept in self.values.items() if kept.cluster != number]:
                self._set(key, None)
        self._cluster = number

    def _read(self) -> Message:
        return self._reader.read_next(_POLL_MILLIS)  # pyright: ignore[reportReturnType]  # it is one of ours

    def _take(self, message: Message) -> None:
        try:
            key = message.partition_key()
        except UnicodeDecodeError:
            _log.warning("The table view of %s skips a message whose key is not valid UTF-8.", self._topic)
            return
        if not key:
            return
        kept = _Kept(message)
        with self.lock:
            self._set(key, kept)

    def _set(self, key: str, kept: _Kept | None) -> None:
        """Set or remove the value of a key, and call the listeners; the lock must be held."""
        if kept is not None and kept.data():
            self.values[key] = kept
        else:
            self.values.pop(key, None)
        for listener in tuple(self.listeners):  # a listener added by another one is called at the next change
            try:
                listener(key, kept)
            except Exception:  # noqa: BLE001  # the application's
                _log.exception("A listener of the table view of %s raised; the view continues", self._topic)
