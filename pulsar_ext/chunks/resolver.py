"""Resolution of incomplete ids: by the admin API, by reading, or not at all, with one warning.

The search is in `search.py`. This module applies it to seeks, starts, acknowledgements and negative acknowledgements,
and warns if no admin API answers.

The broker's admin API cannot show an entry that is one chunk of a *compressed* message: it tries to decompress the
chunk, fails, and answers with an error or not at all. So the topic is read again: a reader that starts early enough
assembles the message, and the native id of that message has every chunk.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import pulsar

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import InnerMessageId, inner_id_of
from pulsar_ext._native.results import Timeout
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.errors import (
    AdminError,
    AdminRequired,
    AdminUnavailable,
    IncompleteChunkedMessage,
    InvalidMessageId,
    InvalidUse,
    MessageIdNotFound,
    MessageIdUnresolved,
    TopicRequired,
)
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId, Origin, from_inner
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName

from .search import Chunks, entry_not_found, resolve_chunks

OpenReader = Callable[[str, InnerMessageId], pulsar.Reader]
"""Opens an official reader on a topic, inclusive of the message of a native id."""


_STEPS = (8, 64, 512, 4096)
"""Numbers of entries before the last chunk to start from; a message with more chunks is not found."""
_QUIET_MILLIS = 2_000
_READ_MILLIS = 30_000


def _read_message_at(open_reader: OpenReader, topic: str, position: Position, ledgers: Ledgers) -> MessageId:
    """Read the message that ends at `position`, and began at most 4096 entries earlier; return its live id."""
    for step in _STEPS:
        first = ledgers.up_to(position) - step
        start = ledgers.number(max(first, 1)) or position
        inner = InnerMessageId(-1, start.ledger_id, start.entry_id, -1)
        found = _read_up_to(open_reader, topic, inner, position, _QUIET_MILLIS)
        if found is not None:
            return found
        if first <= 1:
            break
    raise MessageIdUnresolved(
        f"The broker cannot show entry {position} of {topic} (one chunk of a compressed message?), and a reader found "
        f"no message that ends there within {_STEPS[-1]} entries. Nothing was changed.",
        position=position,
    )


def _reread_message(open_reader: OpenReader, topic: str, message_id: ChunkMessageId) -> MessageId:
    """Read a chunked message again and return its live id, with the middle chunks, which its stored id lacks."""
    position = _position(message_id)
    found = _read_up_to(open_reader, topic, message_id.inner, position, _READ_MILLIS)
    if found is None or found.to_text() != message_id.to_text():
        raise MessageIdUnresolved(
            f"{message_id!r} lacks its middle chunks, the admin API does not answer, and the message cannot be read "
            f"again from {topic}. Nothing was acknowledged. Pass Client(admin=…) or set PULSAR_ADMIN_URL.",
            position=position,
        )
    return found


def _read_up_to(
    open_reader: OpenReader, topic: str, start: InnerMessageId, position: Position, quiet_millis: int
) -> MessageId | None:
    reader = open_reader(topic, start)
    try:
        return _read_on(reader, position, quiet_millis)
    except Timeout:
        return None
    finally:
        reader.close()


def _read_on(reader: pulsar.Reader, position: Position, quiet_millis: int) -> MessageId | None:
    """Read up to a position. Separate from the closing of the reader: see `_native/locks.py`."""
    while True:
        live = from_inner(reader.read_next(quiet_millis).message_id())
        at = _position(live)
        if at >= position:
            return live if at == position else None


_HEADER_SECONDS = 3.0
"""Timeout of a request for an entry's headers; for some entries the broker never answers."""
_RETRY_SECONDS = 30.0
"""Time without requests after the admin API did not answer: waiting for it would stall every seek."""


class UnresolvedMessageIdWarning(UserWarning):
    """The admin API does not answer, so an id made of numbers is used unresolved, as by the official client."""


def as_message_id(message_id: object) -> MessageId:
    """Return any id as a `MessageId`: ours, an official wrapper, or a native id."""
    if isinstance(message_id, MessageId):
        return message_id
    inner = inner_id_of(message_id)
    if inner is None:
        raise InvalidMessageId(f"{message_id!r:.100} is not a message id.")
    return MessageId.wrap(inner)  # the official wrapper accepts only numbers


def entry_topic(topic: str | None, message_id: MessageId) -> str:
    """Return the full name of the topic, or the partition, of the id's entry; `topic` or the id must have it."""
    own = message_id.topic_name()
    if own is None and topic is None:
        raise TopicRequired(
            f"The topic of {message_id!r} is unknown, and this consumer has several; set it with "
            "MessageId.deserialize(data, topic=…) or message_id.topic_name(topic)."
        )
    name = TopicName.parse(own or topic or "")
    if message_id.partition() >= 0 and not name.is_partition:
        name = name.partition(message_id.partition())
    return str(name)


def batch_index_required(message_id: MessageId, topic: str, messages: int) -> InvalidMessageId:
    """Return the error for an id of an entry with several messages that does not choose one."""
    return InvalidMessageId(
        f"Entry {message_id!r} of {topic} holds {messages} messages, and the id does not choose one. Nothing was "
        f"changed; pass the batch index, 0 to {messages - 1}: MessageId(partition, ledger_id, entry_id, index)."
    )


def seek_time(target: int) -> int:
    """Return the publish time of a seek, in milliseconds, after a check."""
    if isinstance(target, bool):
        raise InvalidUse(f"seek({target}): expected a message id or a publish time in ms, got a bool.")
    if not 0 <= target < 1 << 63:
        raise InvalidUse(
            f"seek({target}) must be a publish time in milliseconds, from 0 to 2**63 - 1. Nothing was moved."
        )
    return target


def seek_target(resolver: Resolver, topics: object, target: object) -> InnerMessageId | int:
    """Return the target of a seek for the C++ client: a native id, or a publish time in milliseconds."""
    if isinstance(target, int):
        return seek_time(target)
    topic = topics if isinstance(topics, str) else None
    start = resolver.start_of(topic, target)
    if topic is not None and start.partition() >= 0 and start.topic_name() is None:
        start.topic_name(entry_topic(topic, start))  # the C++ consumer of several partitions reads it
    inner: InnerMessageId = start.inner
    return inner


class Resolver:
    """Resolver of ids to whole messages; `admin` is called on first use."""

    def __init__(self, admin: Callable[[], PulsarAdmin], open_reader: OpenReader) -> None:
        self._admin = admin
        self._open_reader = open_reader
        self._warned = False
        self._lock = Lock()
        self._unavailable: tuple[float, AdminUnavailable] | None = None

    def forget(self) -> None:
        """Reset the state of requests and warnings, because the client has connected to another cluster."""
        self._warned, self._unavailable = False, None

    def resolve(self, topic: str | None, message_id: object) -> MessageId:
        """Return the id of the whole message, or unchanged if the entry has several; raise as `resolve_chunks()`."""
        return self._resolve(topic, as_message_id(message_id))[0]

    def message_of(self, topic: str | None, message_id: object) -> MessageId:
        """Return the id of the whole message as `resolve()`, but raise if the entry has several messages."""
        ours = as_message_id(message_id)
        whole, messages = self._resolve(topic, ours)
        if messages > 1:
            raise batch_index_required(ours, entry_topic(topic, ours), messages)
        return whole

    def _resolve(self, topic: str | None, ours: MessageId) -> tuple[MessageId, int]:
        """Return the resolved id, and the number of messages that it may refer to."""
        if not is_unresolved(ours):
            return ours, 1
        name = entry_topic(topic, ours)
        found = self.find(name, ours)
        if isinstance(found, Chunks):
            whole, messages = _whole(ours, found), found.messages
        else:
            whole, messages = found, decode(found.serialize()).batch_size if found.batch_index() >= 0 else 1
        if messages > 1:
            return ours, messages
        whole.topic_name(name)
        return whole, 1

    def start_of(self, topic: str | None, message_id: object) -> MessageId:
        """Return the id to seek to; raise if it is undeliverable or beyond the end. Unchanged without an admin API."""
        ours = as_message_id(message_id)
        if not is_unresolved(ours):
            return ours
        try:
            return self.message_of(topic, ours)
        except IncompleteChunkedMessage:
            raise
        except MessageIdNotFound:
            self._check_not_beyond_end(topic, ours)
            return ours  # trimmed: the broker continues with the next existing message
        except AdminError as error:
            self._warn(ours, error)
            return ours

    def to_acknowledge(self, topic: str, message_id: MessageId) -> list[InnerMessageId]:
        """Return the native ids that together acknowledge the id's whole message."""
        found = self._find_or_warn(topic, message_id)
        if isinstance(found, Chunks):
            # If the broker sees the first chunk acknowledged without the others, it never redelivers them.
            return [inner_entry(position, message_id, topic) for position in reversed(found.positions)]
        if found is None and isinstance(message_id, ChunkMessageId):
            found = _reread_message(self._open_reader, topic, message_id)
        return [_with_topic((found or message_id).inner, topic)]

    def to_redeliver(self, topic: str, message_id: MessageId) -> list[InnerMessageId]:
        """Return the native ids of the entries to redeliver for the id's whole message, perhaps with others between."""
        found = self._find_or_warn(topic, message_id)
        positions = found.positions if isinstance(found, Chunks) else _span(found or message_id)
        return [inner_entry(position, message_id, topic) for position in positions]

    def last_entry(self, topic: str, message_id: MessageId) -> InnerMessageId:
        """Return the native id of the last entry of the id's message."""
        found = self._find_or_warn(topic, message_id)
        if isinstance(found, Chunks):
            return inner_entry(found.positions[-1], message_id, topic)
        return _with_topic((found or message_id).inner, topic)

    def find(self, topic: str, message_id: MessageId) -> Chunks | MessageId:
        """Return the message's chunks or, if its headers are unavailable, its live id; raise as `resolve_chunks()`."""
        if not TopicName.parse(topic).is_persistent:
            return Chunks((_position(message_id),))
        unavailable = self._unavailable
        if unavailable is not None and time.monotonic() - unavailable[0] < _RETRY_SECONDS:
            raise unavailable[1].with_traceback(None)
        self._unavailable = None
        admin = self._admin().within(_HEADER_SECONDS)
        try:
            return resolve_chunks(admin, topic, _position(message_id))
        except IncompleteChunkedMessage:
            raise
        except MessageIdNotFound:
            # A wrong address does not have such an entry either, so this checks that it has the topic.
            admin.internal_stats(topic)
            raise
        except AdminError as error:
            try:
                ledgers = Ledgers(admin.internal_stats(topic).ledger_sizes())
            except AdminError:
                if isinstance(error, AdminUnavailable):
                    self._unavailable = (time.monotonic(), error)
                raise error from None
        position = _position(message_id)
        # Brokers before 4.0 do not answer for an entry after the last one of its ledger.
        if ledgers.number(ledgers.up_to(position)) != position:
            raise entry_not_found(position)
        return _read_message_at(self._open_reader, topic, position, ledgers)

    def _find_or_warn(self, topic: str, message_id: MessageId) -> Chunks | MessageId | None:
        """Return the message's chunks or live id; None if the admin API does not answer or the entry does not exist."""
        try:
            return self.find(topic, message_id)
        except MessageIdNotFound:
            return None
        except AdminRequired:
            if isinstance(message_id, ChunkMessageId):  # it has both ends of its message
                return None
            raise
        except AdminError as error:
            self._warn(message_id, error)
            return None

    def _warn(self, message_id: MessageId, error: AdminError) -> None:
        """Warn once in this client about the risk without an admin API."""
        with self._lock:
            if self._warned:
                return
            self._warned = True
        warnings.warn(
            f"The admin API cannot show if {message_id!r} is part of a chunked message: {error} It is used unresolved. "
            "If it is a chunk, a seek or a start skips the message, and an acknowledgement misses other chunks. Pass "
            "Client(admin=…) or set PULSAR_ADMIN_URL, or store message_id.serialize() instead of numbers.",
            UnresolvedMessageIdWarning,
            stacklevel=4,
        )

    def _check_not_beyond_end(self, topic: str | None, message_id: MessageId) -> None:
        name = entry_topic(topic, message_id)
        last = self._admin().internal_stats(name).last_confirmed_entry
        if _position(message_id) > last:
            raise MessageIdNotFound(
                f"{message_id!r} is beyond the end of {name}, whose last entry is {last}: a start there would silently "
                "drop the messages in between. Use MessageId.latest to wait for the next message.",
                position=_position(message_id),
            )


def inner_entry(position: Position, message_id: MessageId, topic: str) -> InnerMessageId:
    """Return the native id of one entry of the id's message, with its topic."""
    return _with_topic(InnerMessageId(message_id.partition(), position.ledger_id, position.entry_id, -1), topic)


def _with_topic(inner: InnerMessageId, topic: str) -> InnerMessageId:
    inner.topic_name(topic)
    return inner


def is_unresolved(message_id: MessageId) -> bool:
    """Return whether the id may be one chunk of a message, because it is made of numbers."""
    return (
        message_id.origin is Origin.NUMBERS
        and message_id.batch_index() == -1
        and message_id.ledger_id() >= 0
        and message_id.entry_id() >= 0
        and message_id != MessageId.latest
        and not isinstance(message_id, ChunkMessageId)
    )


def _position(message_id: MessageId) -> Position:
    return Position(message_id.ledger_id(), message_id.entry_id())


def _whole(message_id: MessageId, chunks: Chunks) -> MessageId:
    partition = message_id.partition()
    first, last = (
        MessageId(partition, at.ledger_id, at.entry_id) for at in (chunks.positions[0], chunks.positions[-1])
    )
    whole = ChunkMessageId(first, last) if len(chunks.positions) > 1 else last
    whole.origin = Origin.BYTES
    return whole


def _span(message_id: MessageId) -> list[Position]:
    """Return the entries from the first chunk to the last; only these two if their ledgers differ."""
    last = _position(message_id)
    first = _position(message_id.first_chunk_message_id()) if isinstance(message_id, ChunkMessageId) else last
    if first.ledger_id != last.ledger_id:
        return [first, last]
    return [Position(last.ledger_id, entry) for entry in range(first.entry_id, last.entry_id + 1)]
