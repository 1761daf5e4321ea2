"""Message ids: hashable, ordered as in Java, and complete for chunked messages.

A chunked message is stored in many entries. Its id names the last one, and a seek to that entry alone loses the
message; `ChunkMessageId` also has the first chunk. Mirrors Java's `MessageIdImpl`, `BatchMessageIdImpl` and
`ChunkMessageIdImpl` (PIP-107).

`MessageId.origin` is the source of an id, and so how complete it is. An id from a producer or a consumer, and the
bytes of such an id, show if their message is chunked. Bare numbers and text do not; `Client.resolve_message_id`
determines it.
"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pulsar_ext._native.core import held, id_reader, plain_id, serialized
from pulsar_ext._native.handles import MessageHandle, MessageIdHandle
from pulsar_ext._native.messages import InnerMessageId, deserialize_inner, inner_id_of
from pulsar_ext._wire.message_id_data import FIRST_CHUNK_TAG, MessageIdData, decode, encode, has_first_chunk, is_plain
from pulsar_ext.errors import InvalidMessageId


class Origin(enum.Enum):
    """Source of an id, which determines how complete it is."""

    LIVE = "live"
    """From a producer, a consumer or a reader: shows if its message is chunked."""
    BYTES = "bytes"
    """Deserialized: shows if its message is chunked, if the serialized id did."""
    NUMBERS = "numbers"
    """Made of numbers or text: any entry, perhaps one chunk of a message."""

    @property
    def stored(self) -> Origin:
        """Origin of the id after it was stored."""
        return Origin.BYTES if self is Origin.LIVE else self


OrderKey = tuple[int, int, int, int]
"""Ledger, entry, partition and batch index: the order of Java's ids."""

_JAVA = re.compile(r"(-?\d{1,19}):(-?\d{1,19})(?::(-?\d{1,10}))?(?::(-?\d{1,10}))?", re.ASCII)
_OFFICIAL = re.compile(r"\((-?\d{1,19}),(-?\d{1,19}),(-?\d{1,10}),(-?\d{1,10})\)", re.ASCII)
_SHOWN = 60
"""Length to which an invalid text is cut in an error."""
_MAX_POSITION = (1 << 63) - 1
_MAX_INDEX = (1 << 31) - 1
_NUMBERS = ("ledger_id", "entry_id", "partition", "batch_index")


def bare(fields: MessageIdData) -> MessageIdData:
    """Return the id of the whole entry: without batch index, batch size and first chunk."""
    return MessageIdData(fields.ledger_id, fields.entry_id, fields.partition)


def _dict_of(fields: MessageIdData) -> dict[str, object]:
    named: dict[str, object] = {name: getattr(fields, name) for name in _NUMBERS}
    if fields.batch_size:
        named["batch_size"] = fields.batch_size
    if fields.first_chunk is not None:
        named["first_chunk"] = _dict_of(fields.first_chunk)
    return named


def _fields_of(fields: Mapping[str, Any], *, nested: bool = False) -> MessageIdData:
    try:
        first = None if nested or fields.get("first_chunk") is None else _fields_of(fields["first_chunk"], nested=True)
        return MessageIdData(
            ledger_id=_integer(fields["ledger_id"]),
            entry_id=_integer(fields["entry_id"]),
            partition=_integer(fields.get("partition", -1)),
            batch_index=_integer(fields.get("batch_index", -1)),
            batch_size=_integer(fields.get("batch_size", 0)),
            first_chunk=first,
        )
    except KeyError as error:
        raise InvalidMessageId(f"Expected a message id in the format of to_dict(): {error} is missing.") from None
    except (TypeError, AttributeError) as error:
        raise InvalidMessageId(f"Expected a message id in the format of to_dict(): {error!r}.") from None


def _numbers_of_text(text: str) -> list[OrderKey]:
    """Return the numbers of an id's text, or of its first and last chunk, separated by a semicolon; -1 if missing."""
    if not isinstance(text, str):
        raise InvalidMessageId(f"The text of a message id must be a str, got {type(text).__name__}.")
    matches = [_JAVA.fullmatch(part) or _OFFICIAL.fullmatch(part) for part in text.strip().split(";")]
    found = [match.groups(default="-1") for match in matches if match is not None]
    if len(found) < len(matches) or len(found) > 2:  # noqa: PLR2004  # first and last chunk
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        raise InvalidMessageId(
            f"{shown!r} is not a message id; expected 'ledger:entry:partition', "
            "'ledger:entry:partition:batch_index' or, for a chunked message, 'first;last'."
        )
    return [(int(ledger), int(entry), int(partition), int(batch)) for ledger, entry, partition, batch in found]


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value


def _checked_order(partition: int, ledger_id: int, entry_id: int, batch_index: int) -> OrderKey:
    if not (type(ledger_id) is type(entry_id) is type(partition) is type(batch_index) is int):
        ledger_id, entry_id, partition, batch_index = map(operator.index, (ledger_id, entry_id, partition, batch_index))
    _check_numbers(partition, ledger_id, entry_id, batch_index)
    return ledger_id, entry_id, partition, batch_index


def _check_numbers(partition: int, ledger_id: int, entry_id: int, batch_index: int) -> None:
    if (
        -1 <= partition <= _MAX_INDEX
        and -1 <= ledger_id <= _MAX_POSITION
        and -1 <= entry_id <= _MAX_POSITION
        and -1 <= batch_index <= _MAX_INDEX
    ):
        return
    raise InvalidMessageId(
        f"partition {partition}, ledger {ledger_id}, entry {entry_id}, batch index {batch_index}: each must be >= -1 "
        "and fit into 64 bits (ledger and entry) or 32 bits."
    )


_LIVE, _BYTES = Origin.LIVE, Origin.BYTES
_create = object.__new__
_UNSET: dict[str, object] = {"_data": None, "_batch_size": 0, "_topic": None, "origin": _LIVE}
"""Values of empty slots."""


class MessageId(MessageIdHandle):
    """Id of one message; for a chunked message see `ChunkMessageId`.

    Args:
        partition: index of the partition, -1 on a topic without partitions.
        ledger_id: the ledger, -1 only in `MessageId.earliest`.
        entry_id: the entry in that ledger.
        batch_index: index in the entry's batch, -1 for a message that is not in a batch.

    Raises:
        InvalidMessageId: a number is below -1 or does not fit (64 bits for ledger and entry, 32 for the others).
        TypeError: a number is not an integer.
    """

    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]

    __slots__ = ("origin",)
    _data: bytes | None
    origin: Origin

    def __init__(self, partition: int = -1, ledger_id: int = -1, entry_id: int = -1, batch_index: int = -1) -> None:
        self._order: OrderKey | None = _checked_order(partition, ledger_id, entry_id, batch_index)
        self.origin = Origin.NUMBERS
        self._topic: str | None = None

    if not TYPE_CHECKING:  # it would hide misspelt names

        def __getattr__(self, name: str) -> object:
            # Called for an empty slot only. C++ ids are made on demand: most ids are only compared or stored.
            if name in ("inner", "_msg_id"):
                self.inner = self._made()
                return self.inner
            if name in _UNSET:
                return _UNSET[name]
            raise AttributeError(name)

    def _made(self) -> InnerMessageId:
        inner: InnerMessageId | None = held(self)
        if inner is not None:
            return inner
        if self._data is None and self._order is not None:
            ledger_id, entry_id, partition, batch_index = self._order
            if not self._batch_size:
                return InnerMessageId(partition, ledger_id, entry_id, batch_index)
            self._data = encode(MessageIdData(ledger_id, entry_id, partition, batch_index, batch_size=self._batch_size))
        return deserialize_inner(self._data or b"")

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """Return the id of bytes that `serialize()` of any client returned, a `ChunkMessageId` of a chunked message.

        Args:
            message_id_bytes: the bytes.
            topic: the id's topic or partition, which consumers of several topics need.

        Raises:
            InvalidMessageId: the bytes are not a message id.
        """
        data = bytes(message_id_bytes) if isinstance(message_id_bytes, bytearray | memoryview) else message_id_bytes
        message_id = _from_plain(data) or _from_fields(decode(data), data, Origin.BYTES)
        if topic is not None:
            message_id.topic_name(topic)
        return message_id

    @staticmethod
    def parse(text: str) -> MessageId:
        """Return the id of a text: `to_text()`, Java's `toString()`, the official `str()`, or `ledger:entry`.

        Raises:
            InvalidMessageId: the text has another format.
        """
        ids = [MessageId(partition, ledger, entry, batch) for ledger, entry, partition, batch in _numbers_of_text(text)]
        return ids[0] if len(ids) == 1 else ChunkMessageId(*ids)

    @classmethod
    def wrap(cls, msg_id: MessageId | InnerMessageId) -> MessageId:
        """Wrap a native id, as the official `MessageId.wrap`; an id of this class is returned unchanged.

        A native id may be a topic's last id. For a chunked message it names the last chunk only, like bare numbers.
        """
        if isinstance(msg_id, MessageId):
            return msg_id
        ours = from_inner(msg_id)
        ours.origin = Origin.BYTES if isinstance(ours, ChunkMessageId) else Origin.NUMBERS
        return ours

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> MessageId:
        """Return the id of the output of `to_dict()`, for instance from JSON.

        Raises:
            InvalidMessageId: a field is missing or is not a number.
        """
        numbers = _fields_of(fields)
        try:
            origin = Origin(fields.get("origin", Origin.NUMBERS.value))
        except ValueError as error:
            raise InvalidMessageId(f"Expected a message id in the format of to_dict(): {error}.") from None
        message_id = _from_fields(numbers, None, origin)
        message_id.topic_name(fields.get("topic"))
        return message_id

    def to_dict(self) -> dict[str, Any]:
        """Return the id as numbers and text for `json.dumps`; inverse of `from_dict`."""
        out = _dict_of(decode(self.serialize()))
        if self._topic is not None:
            out["topic"] = self._topic
        out["origin"] = self.origin.stored.value
        return out

    def to_text(self) -> str:
        """Return Java's `toString()`: `ledger:entry:partition`, with `:batch_index` for a message in a batch."""
        ledger, entry, partition, batch = self.order_key()
        text = f"{ledger}:{entry}:{partition}"
        return text if batch == -1 else f"{text}:{batch}"

    def serialize(self) -> bytes:
        """Return the bytes that clients in every language can deserialize.

        For a deserialized id, also one of the Java client, these are exactly the original bytes.
        """
        data = self._data
        if data is None:
            if (data := serialized(self)) is None:
                inner = self.inner  # may be made of bytes
                data = self._data or bytes(inner.serialize())
            self._data = data
        return data

    def topic_name(self, topic: str | None = None) -> str | None:
        """Set the topic of the id (as on an official id), or return it; None if it is unknown."""
        if topic is not None:
            self._topic = topic
            self.inner.topic_name(topic)
        return self._topic

    def order_key(self) -> OrderKey:
        """Return ledger, entry, partition and batch index, which determine the order of ids."""
        if self._order is None:
            inner = self.inner
            self._order = (inner.ledger_id(), inner.entry_id(), inner.partition(), inner.batch_index())
        return self._order

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MessageId):
            if self._order and other._order:
                return self._order == other._order
            return bool(self.inner == other.inner)  # ledger, entry, partition, batch index, compared by C++
        key = _order_of(other)
        return NotImplemented if key is None else self.order_key() == key

    __ne__ = object.__ne__  # the inverse of `__eq__`

    def __lt__(self, other: object) -> bool:
        if isinstance(other, MessageId):
            return (self._order or self.order_key()) < (other._order or other.order_key())
        key = _order_of(other)
        return NotImplemented if key is None else self.order_key() < key

    def __le__(self, other: object) -> bool:
        key = _order_of(other)
        return NotImplemented if key is None else self.order_key() <= key

    def __gt__(self, other: object) -> bool:
        key = _order_of(other)
        return NotImplemented if key is None else self.order_key() > key

    def __ge__(self, other: object) -> bool:
        key = _order_of(other)
        return NotImplemented if key is None else self.order_key() >= key

    def __hash__(self) -> int:
        return hash(self.order_key())

    def __repr__(self) -> str:
        return f"{type(self).__name__}.parse({self.to_text()!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.serialize(), self._topic, self.origin.stored)


def _order_of(other: object) -> OrderKey | None:
    """Return the numbers of any id in the order of comparison; None for other objects."""
    if isinstance(other, MessageId):
        return other.order_key()
    inner = inner_id_of(other)
    return None if inner is None else (inner.ledger_id(), inner.entry_id(), inner.partition(), inner.batch_index())


class ChunkMessageId(MessageId):
    """Id of a chunked message: its first and its last chunk.

    It compares, hashes and counts as the id of its last chunk. A seek or an inclusive start goes to its first chunk.

    Args:
        first: the id of the first chunk.
        last: the id of the last chunk.

    Raises:
        InvalidMessageId: the two are on different partitions, out of order, or in a batch.
    """

    __slots__ = ()

    def __init__(self, first: MessageId, last: MessageId) -> None:
        one, two = decode(first.serialize()), decode(last.serialize())
        if one.first_chunk or two.first_chunk or one.batch_index != -1 or two.batch_index != -1:
            raise InvalidMessageId(f"A chunk must be neither chunked nor in a batch, got {first!r}, {last!r}.")
        if one.partition != two.partition or (one.ledger_id, one.entry_id) > (two.ledger_id, two.entry_id):
            raise InvalidMessageId(f"{first!r} cannot be the first chunk of a message that ends at {last!r}.")
        super().__init__(two.partition, two.ledger_id, two.entry_id)
        self._data = encode(MessageIdData(two.ledger_id, two.entry_id, two.partition, first_chunk=bare(one)))
        self.origin = Origin.BYTES

    def first_chunk_message_id(self) -> MessageId:
        """Return the id of the first chunk; Java's `getFirstChunkMessageId()`."""
        first = decode(self.serialize()).first_chunk
        assert first is not None  # noqa: S101  # true for every ChunkMessageId
        return self._chunk(first.ledger_id, first.entry_id)

    def last_chunk_message_id(self) -> MessageId:
        """Return the id of the last chunk as a plain id; Java's `getLastChunkMessageId()`."""
        return self._chunk(self.ledger_id(), self.entry_id())

    def to_text(self) -> str:
        """Return Java's `toString()`: the first chunk, a semicolon, the last chunk."""
        return f"{self.first_chunk_message_id().to_text()};{super().to_text()}"

    def _chunk(self, ledger_id: int, entry_id: int) -> MessageId:
        chunk = MessageId(self.partition(), ledger_id, entry_id)
        chunk.topic_name(self._topic)
        return chunk


def from_inner(inner: InnerMessageId, topic: Callable[[], str] | None = None) -> MessageId:
    """Wrap a native id of a producer, a consumer or a reader; a chunked id needs its topic, which `topic` returns.

    Only its serialized form shows if it is chunked, so that is made immediately and kept.
    """
    data = inner.serialize()
    chunked = FIRST_CHUNK_TAG in data and has_first_chunk(data)
    message_id = _new(ChunkMessageId if chunked else MessageId, inner, data, _LIVE)
    if chunked and topic is not None:
        message_id._topic = topic()  # noqa: SLF001  # this module's own class
    return message_id


def _id_of(message: MessageHandle) -> MessageId:
    """`Message.message_id()` without the native core; `from_inner` is inlined, because it runs for every message."""
    inner = message.inner.message_id()
    data = inner.serialize()
    if FIRST_CHUNK_TAG in data and has_first_chunk(data):
        return from_inner(inner, message.inner.topic_name)
    message_id = _create(MessageId)
    message_id.inner = inner
    message_id._data = data  # noqa: SLF001  # this module's own class
    message_id._order = None  # noqa: SLF001
    return message_id


def plain_from_inner(inner: InnerMessageId) -> MessageId:
    """Wrap a native id that cannot be chunked."""
    return _new(MessageId, inner, None, _LIVE)


def id_in_batch(order: tuple[int, int, int, int], batch_size: int) -> MessageId:
    """Return the id of a message of a batch, from its ledger, entry, partition and batch index."""
    message_id = _create(MessageId)
    message_id._order = order  # noqa: SLF001  # this module's own class
    message_id._batch_size = batch_size  # noqa: SLF001
    return message_id


def _new(cls: type[MessageId], inner: InnerMessageId, data: bytes | None, origin: Origin) -> MessageId:
    message_id = cls.__new__(cls)
    message_id.inner = inner
    message_id.origin = origin
    message_id._data = data  # noqa: SLF001  # this module's own class
    message_id._order = message_id._topic = None  # noqa: SLF001
    return message_id


def _from_plain(data: bytes) -> MessageId | None:
    """Return the id of bytes in the C++ client's own format, which is fast and covers most; None for others."""
    # The C++ parser reports invalid bytes on stderr, so it only gets valid ones.
    if (made := plain_id(data)) is not None:
        made.origin = _BYTES
        return made  # type: ignore[no-any-return]  # of C++
    if not isinstance(data, bytes) or not is_plain(data):
        return None
    message_id = _create(MessageId)
    message_id.origin = _BYTES
    message_id._data = data  # noqa: SLF001
    message_id._order = message_id._topic = None  # noqa: SLF001
    return message_id


def _from_fields(fields: MessageIdData, data: bytes | None, origin: Origin) -> MessageId:
    for one in (fields, fields.first_chunk):
        if one is not None:
            _check_numbers(one.partition, one.ledger_id, one.entry_id, one.batch_index)
    if fields.batch_size < 0:
        raise InvalidMessageId(f"The size of a batch must be >= 0, got {fields.batch_size}.")
    octets = data or encode(fields)
    return _new(ChunkMessageId if fields.first_chunk else MessageId, deserialize_inner(octets), octets, origin)


def _restore(data: bytes, topic: str | None, origin: Origin) -> MessageId:
    message_id = MessageId.deserialize(data, topic)
    message_id.origin = origin
    return message_id


read_id = id_reader(MessageId, _id_of)
"""`Message.message_id()`."""
MessageId.earliest = from_inner(InnerMessageId.earliest)
MessageId.latest = from_inner(InnerMessageId.latest)

AnyMessageId = MessageId | InnerMessageId
"""A message id as an argument; the official class, which has no type hints, is accepted too."""
