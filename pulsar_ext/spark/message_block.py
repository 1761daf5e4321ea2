"""A block of messages that were taken from a reader in one call.

Each field is fetched for the whole block by one `map` over the C++ messages, so that no Python code runs per message.
Sequence ids are only in `str(message)`; if they are requested, all fields in that text are parsed from it instead of
fetched. If they are not requested, two ids of a large batch determine all positions in it. Rare properties of messages
(chunks, null values, bytes in an ordering key) cost nothing in a block without them.

Ids are read and written serialized, as whole arrays: a call into the C++ client for each number of each id would take a
third of the time to read a message. The serialized fields are in order: 1 ledger, 2 entry, 3 partition, 4 batch index,
6 batch size, 7 first chunk.

`str()` of a C++ message is the only source of its own sequence id, and also has the id, publish time and size. Parsing
them from there saves three calls and their objects per message. Its format is

    Message(prod=NAME, seq=7, publish_time=1700000000000, payload_size=100, msg_id=(5,7,-1,3), props={})

Text in any other format is not parsed.

Messages arrive in order. If two ids are of the same batch, and their batch indexes are as far apart as the messages,
then the messages between them are of that batch. So two ids determine all positions in the batch.

The C++ client returns a key that was sent as bytes in base64, and a text that is valid base64 unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from operator import contains
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_ext._native.messages import InnerMessage, InnerMessageId, sequence_id_of
from pulsar_ext._wire.batch_payload import bytes_of_base64
from pulsar_ext._wire.message_id_data import decode, has_first_chunk
from pulsar_ext.ids.position import Position
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges, SlotFilter
from pulsar_ext.key_shared.hashing import KeyForm, KeyForms, key_slot, key_slots

from .connection import admin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_ext._wire.message_id_data import MessageIdData

    from .options import Settings


_LEDGER, _ENTRY, _PARTITION, _BATCH_INDEX, _BATCH_SIZE = 0x08, 0x10, 0x18, 0x20, 0x30
_LIMITS = np.array([1 << (7 * width) for width in range(1, 9)], np.int64)
"""Smallest numbers for which a varint needs one more byte."""
_LONGEST = 10
_MORE = 0x80


def id_columns(serialized: Sequence[bytes]) -> tuple[Any, Any, Any]:
    """Parse the numbers of ids that the C++ client serialized.

    Returns:
        Arrays of ledgers (64 bits), entries (64 bits) and batch indexes (32 bits; -1 for a message in no batch).

    Raises:
        ValueError: an id does not begin with a ledger and an entry.
    """
    count = len(serialized)
    sizes = np.fromiter(map(len, serialized), np.int64, count)
    # Zeros after the last id keep reads after its end within the buffer.
    data = np.frombuffer(b"".join((*serialized, b"\0" * (_LONGEST + 1))), np.uint8)
    ends = np.cumsum(sizes)
    at = ends - sizes
    every = np.ones(count, bool)
    if (data[at] != _LEDGER).any():
        raise ValueError("a message id does not begin with its ledger")
    ledger, at = _varints(data, at + 1, every)
    if (data[at] != _ENTRY).any():
        raise ValueError("a message id has no entry after its ledger")
    entry, at = _varints(data, at + 1, every)
    has_partition = (data[at] == _PARTITION) & (at < ends)
    _, at = _varints(data, at + has_partition, has_partition)
    has_batch = (data[at] == _BATCH_INDEX) & (at < ends)
    batch, _ = _varints(data, at + has_batch, has_batch)
    return ledger.view(np.int64), entry.view(np.int64), np.where(has_batch, batch.view(np.int64), -1).astype(np.int32)


def _varints(data: Any, at: Any, where: Any) -> tuple[Any, Any]:
    """Read a varint at each index where `where` is true; return the numbers and the indexes after them."""
    numbers = np.zeros(len(at), np.uint64)
    at = at.copy()
    going = where
    for shift in range(0, 7 * _LONGEST, 7):
        octets = data[at]
        numbers |= np.where(going, (octets & 0x7F).astype(np.uint64) << np.uint64(shift), np.uint64(0))
        at += going
        going = going & ((octets & _MORE) != 0)
        if not going.any():
            break
    return numbers, at


def id_bytes(ledger: Any, entry: Any, partition: int, batch: Any, sizes: Any) -> tuple[Any, Any]:
    """Serialize ids as the C++ client does, except those of chunked messages.

    Args:
        ledger: their ledgers.
        entry: their entries.
        partition: the index of the partition; -1 on a topic without partitions.
        batch: their batch indexes; -1 for a message in no batch.
        sizes: the sizes of their batches; 0 for a message in no batch.

    Returns:
        The offset of each id, followed by the end of the last one (32 bits), and the bytes of all ids.
    """
    fields = [(_LEDGER, ledger, None), (_ENTRY, entry, None)]
    if partition != -1:
        fields.append((_PARTITION, np.full(len(ledger), partition), None))
    fields += [(_BATCH_INDEX, batch, batch >= 0), (_BATCH_SIZE, sizes, sizes > 0)]
    written = []
    total = np.zeros(len(ledger), np.int64)
    for tag, numbers, where in fields:
        if where is not None and not where.any():
            continue
        widths = 1 + np.searchsorted(_LIMITS, numbers, side="right")
        size = 1 + widths if where is None or where.all() else np.where(where, 1 + widths, 0)
        written.append((tag, numbers.astype(np.int64), widths, size))
        total += size
    ends = np.cumsum(total)
    offsets = np.zeros(len(ledger) + 1, np.int32)
    offsets[1:] = ends
    data = np.empty(int(ends[-1]), np.uint8)
    at = ends - total
    for tag, numbers, widths, size in written:
        _write(data, at, tag, numbers, widths, size)
        at = at + size
    return offsets, data


def _write(data: Any, at: Any, tag: int, numbers: Any, widths: Any, size: Any) -> None:
    """Write one field of the ids that have it."""
    if not size.all():
        has = np.flatnonzero(size)
        at, numbers, widths = at[has], numbers[has], widths[has]
    data[at] = tag
    for index in range(int(widths.max())):
        octets = (numbers >> (7 * index)) & 0x7F
        data_at = at + 1 + index
        more = widths > index + 1
        octets |= more * _MORE
        if index and not (widths > index).all():
            there = widths > index
            data[data_at[there]] = octets[there]
        else:
            data[data_at] = octets


_PRODUCER, _SEQUENCE_ID = "Message(prod=", ", seq="
_TIME, _SIZE, _ID = b", publish_time=", b", payload_size=", b", msg_id=("
_NO_PROPERTIES = b", props={})"
_WORD = 8
_PADDING = " " * 64
"""Padding after the last text; keeps reads after a number within the buffer."""
_MOST_DIGITS = 20
_COMMA, _MINUS, _CLOSE, _SEMICOLON = b",-);"


@dataclass
class ReprColumns:
    """Fields shown by `str()` of messages, as arrays with one number per message.

    For `chunked` messages, `ledger` and `entry` are those of the *first* chunk; `bare` messages have no properties.
    """

    sequence_id: Any
    publish_time: Any
    payload_size: Any
    ledger: Any
    entry: Any
    batch: Any
    chunked: Any
    bare: Any

    def take(self, indexes: Any) -> ReprColumns:
        """Return the columns of the messages at these indexes."""
        return ReprColumns(**{name: column[indexes] for name, column in vars(self).items()})


class _UnexpectedTextError(Exception):
    """A text has an unexpected format."""


def read_reprs(texts: Sequence[str], producers: str | Sequence[str], partition: int) -> ReprColumns | None:
    """Parse `str()` of messages.

    Args:
        texts: `str()` of C++ messages; not empty.
        producers: the names of their producers: one for all, or one for each.
        partition: the index of the partition that they are from; -1 on a topic without partitions.

    Returns:
        None if a text has an unexpected format, or another producer.
    """
    column = pa.array([*texts, _PADDING], pa.large_string())
    offsets = np.frombuffer(column.buffers()[1], np.int64, len(texts) + 2)
    data = np.frombuffer(column.buffers()[2], np.uint8)
    scan = _Scan(data, offsets[:-2].copy(), offsets[1:-1])
    try:
        if isinstance(producers, str):
            scan.literal(f"{_PRODUCER}{producers}{_SEQUENCE_ID}".encode())
        else:
            scan.literal(_PRODUCER.encode())
            names = {name: len(name.encode()) for name in set(producers)}
            scan.at += np.fromiter(map(names.__getitem__, producers), np.int64, len(texts))
            scan.literal(_SEQUENCE_ID.encode())
        sequence_id = scan.number()
        scan.literal(_TIME)
        publish_time = scan.number()
        scan.literal(_SIZE)
        payload_size = scan.number()
        scan.literal(_ID)
        ledger = scan.number()
        scan.literal(b",")
        entry = scan.number()
        scan.literal(b",%d," % partition)
        batch = scan.number_or_minus_one()
        scan.literal(b")")
    except _UnexpectedTextError:
        return None
    follows = data[scan.at]
    if ((follows != _COMMA) & (follows != _SEMICOLON)).any():
        return None
    return ReprColumns(
        sequence_id,
        publish_time,
        payload_size,
        ledger,
        entry,
        batch.astype(np.int32),
        chunked=follows == _SEMICOLON,
        bare=scan.at + len(_NO_PROPERTIES) == offsets[1:-1],
    )


class _Scan:
    """Cursor into each of many texts, moved forward as they are read."""

    def __init__(self, data: Any, at: Any, ends: Any) -> None:
        self._data = data
        # The eight bytes at each index, as one number.
        self._words = np.ndarray((len(data) - _WORD + 1,), np.uint64, data, strides=(1,))
        self.at = at
        self._ends = ends

    def literal(self, wanted: bytes) -> None:
        """Skip these bytes.

        Raises:
            _UnexpectedTextError: other bytes are at the cursor.
        """
        if (self.at + len(wanted) > self._ends).any():
            raise _UnexpectedTextError
        if len(wanted) < _WORD:
            for index, octet in enumerate(wanted):
                self._expect(self._data, index, octet)
        else:
            # The last word overlaps the one before it.
            for index in (*range(0, len(wanted) - _WORD, _WORD), len(wanted) - _WORD):
                self._expect(self._words, index, np.frombuffer(wanted, np.uint64, 1, index)[0])
        self.at += len(wanted)

    def _expect(self, data: Any, offset: int, wanted: Any) -> None:
        if (data[self.at + offset] != wanted).any():
            raise _UnexpectedTextError

    def number(self) -> Any:
        """Read decimal numbers.

        Returns:
            The numbers; those of more than 63 bits are negative, as in Java.

        Raises:
            _UnexpectedTextError: no digit at the cursor, or more digits than a number of 64 bits has.
        """
        numbers = np.zeros(len(self.at), np.int64)
        going: Any = None
        for index in range(_MOST_DIGITS + 1):
            digits = self._data[self.at] - np.uint8(ord("0"))
            here = digits <= 9  # noqa: PLR2004  # a digit
            if going is not None:
                here &= going
            if here.all():
                numbers *= 10
                numbers += digits
                self.at += 1
                continue
            if not index:
                raise _UnexpectedTextError
            if not here.any():
                return numbers
            going = here
            numbers = np.where(here, numbers * 10 + digits, numbers)
            self.at += here
        raise _UnexpectedTextError

    def number_or_minus_one(self) -> Any:
        """Read decimal numbers or -1.

        Raises:
            _UnexpectedTextError: neither a number nor -1 at the cursor.
        """
        negative = self._data[self.at] == _MINUS
        self.at += negative
        numbers = self.number()
        return np.where(negative, -numbers, numbers)


_WORTH = 16
"""Smallest batch size for which decoding two ids costs less than decoding each message's."""


class BatchColumns(NamedTuple):
    """Arrays with a number for each message.

    Args:
        ledger, entry: of its batch (64 bits).
        batch: its index in the batch (32 bits).
        size: the size of the batch (64 bits).
    """

    ledger: Any
    entry: Any
    batch: Any
    size: Any

    def take(self, at: Any) -> BatchColumns:
        """Return the columns of the messages at these indexes."""
        return BatchColumns(*(column[at] for column in self))


def batch_columns(count: int, id_of: Callable[[int], MessageIdData]) -> BatchColumns | None:
    """Return the positions of messages if all of them are in large batches.

    Args:
        count: the number of messages; at least one.
        id_of: returns the id of the message at an index.

    Returns:
        None if a message is in no batch or in a small one, or if part of a batch is missing.
    """
    starts: list[tuple[int, int, int, int]] = []
    lengths: list[int] = []
    at = 0
    while at < count:
        first = id_of(at)
        if first.batch_size < _WORTH or not 0 <= first.batch_index < first.batch_size:
            return None
        length = min(first.batch_size - first.batch_index, count - at)
        last = id_of(at + length - 1)
        expected = first.ledger_id, first.entry_id, first.batch_index + length - 1
        if (last.ledger_id, last.entry_id, last.batch_index) != expected:
            return None
        starts.append((first.ledger_id, first.entry_id, first.batch_index, first.batch_size))
        lengths.append(length)
        at += length
    ledger, entry, begins, size = np.repeat(np.array(starts, np.int64).T, lengths, axis=1)
    batch = begins + np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return BatchColumns(ledger, entry, batch.astype(np.int32), size)


class KeyDecoder:
    """Decoder of a key's bytes and slot, by option `keyForms`."""

    def __init__(self, settings: Settings) -> None:
        exact = settings["keyForms"] == "exact"
        self._forms = KeyForms(lambda: admin_of(settings), "exact") if exact else None
        self._slots = None if self._forms is None else SlotFilter(KeyHashRanges.full(), self._forms)

    @property
    def exact(self) -> bool:
        """True if the admin API is queried for each key that may have been sent as bytes."""
        return self._forms is not None

    def decode(self, inner: Any, text: str) -> bytes | None:
        """Return the key of one message: the bytes of its text, or the bytes it was sent as."""
        decoded = bytes_of_base64(text) if text else b""
        if self._forms is None or decoded is None:
            return text.encode() if text else None
        form = self._forms.form_of(inner, text)
        if form is KeyForm.BASE64:
            return decoded
        return None if form is KeyForm.NONE else text.encode()

    def slot(self, inner: Any) -> int:
        """Return the slot that the broker computes for one message; only if `exact`."""
        assert self._slots is not None  # noqa: S101  # only if `exact`
        return self._slots.slot(inner)


_FIRST_CHUNK_TAG = 0x3A


class MessageBlock:
    """Messages of one topic partition, in order.

    Args:
        inners: the C++ messages; not empty.
        topic: the full name of the topic partition.
        partition: its index; -1 on a topic without partitions.
        key_decoder: decodes the keys.
        wants_sequence_ids: true if sequence ids or slots will be requested.
    """

    def __init__(
        self, inners: list[Any], topic: str, partition: int, key_decoder: KeyDecoder, *, wants_sequence_ids: bool
    ) -> None:
        self.inners = inners
        self.topic = topic
        self.partition = partition
        self.key_decoder = key_decoder
        self.wants_sequence_ids = wants_sequence_ids

    def __len__(self) -> int:
        return len(self.inners)

    def take(self, indexes: Sequence[int]) -> MessageBlock:
        """Return a block of the messages at these indexes, with the fields that were fetched already."""
        taken = MessageBlock(
            [self.inners[index] for index in indexes],
            self.topic,
            self.partition,
            self.key_decoder,
            wants_sequence_ids=self.wants_sequence_ids,
        )
        at = np.asarray(indexes, np.int64)
        for name, value in vars(self).items():
            if name in _LISTS:
                setattr(taken, name, [value[index] for index in indexes])
            elif name in _ARRAYS:
                setattr(taken, name, value[at])
        if "reprs" in vars(self):
            taken.reprs = None if self.reprs is None else self.reprs.take(at)
        if "batches" in vars(self):
            taken.batches = None if self.batches is None else self.batches.take(at)
        if "positions" in vars(self):
            ledger, entry, batch = self.positions
            taken.positions = (ledger[at], entry[at], batch[at])
        return taken

    def id_data(self, index: int) -> MessageIdData:
        """Return the id of one message."""
        return decode(self.serialized(index))

    def serialized(self, index: int) -> bytes:
        """Return the serialized id of one message."""
        data: bytes = self.inners[index].message_id().serialize()
        return data

    def batch_size(self, index: int) -> int:
        """Return the batch size of one message; 1 for a message in no batch."""
        return self.id_data(index).batch_size or 1

    def release(self) -> None:
        """Free the messages and their fields; Arrow arrays made from them stay valid."""
        vars(self).clear()

    @cached_property
    def key_column(self) -> Any:
        """Keys as the C++ client returns them, as an Arrow array."""
        return pa.array(self.key_texts, pa.string())

    @cached_property
    def has_keyless(self) -> bool:
        """True if a message has no key, or an empty one."""
        return "" in self.key_texts

    @cached_property
    def begin_columns(self) -> tuple[Any, Any]:
        """Ledgers and entries at which messages begin (their own, or their first chunks'), as numpy arrays."""
        ledger, entry, _ = self.positions
        if self.first_chunks:
            ledger, entry = ledger.copy(), entry.copy()
            for index, first in self.first_chunks.items():
                ledger[index], entry[index] = first.ledger_id, first.entry_id
        return ledger, entry

    # -- fields of the C++ messages, each fetched once -----------------------------------------------------------------

    @cached_property
    def reprs(self) -> ReprColumns | None:
        """Parsed `str()` of the messages; None if it is not needed, or if a text has an unexpected format."""
        if self.batches is not None:
            return None
        try:
            texts = list(map(str, self.inners))
            producer = self.inners[0].producer_name()
            reprs = read_reprs(texts, producer, self.partition)
            # Properties may hold any text, even one that resembles another message: fetch the names of those messages.
            if reprs is None or any(
                self.inners[index].producer_name() != producer for index in np.flatnonzero(~reprs.bare).tolist()
            ):
                reprs = read_reprs(texts, self.producer_names, self.partition)
            else:
                self.producer_names = [producer] * len(self)
        except UnicodeDecodeError:
            return None
        return reprs

    @cached_property
    def id_bytes(self) -> list[bytes]:
        """Serialized ids, fetched message by message."""
        return list(map(InnerMessageId.serialize, map(InnerMessage.message_id, self.inners)))

    @cached_property
    def batches(self) -> BatchColumns | None:
        """Positions of messages in large batches; None if each message has to be decoded."""
        return None if self.wants_sequence_ids else batch_columns(len(self), self.id_data)

    @cached_property
    def positions(self) -> tuple[Any, Any, Any]:
        """Ledgers, entries and batch indexes, as numpy arrays."""
        if self.batches is not None:
            return self.batches.ledger, self.batches.entry, self.batches.batch
        reprs = self.reprs
        if reprs is None:
            return id_columns(self.id_bytes)
        ledger, entry = reprs.ledger, reprs.entry
        if self.first_chunks:
            chunked = list(self.first_chunks)
            ledger, entry = ledger.copy(), entry.copy()
            ledger[chunked], entry[chunked], _ = id_columns([self.serialized(index) for index in chunked])
        return ledger, entry, reprs.batch

    @cached_property
    def first_chunks(self) -> dict[int, Position]:
        """Positions of the first chunks, by index; chunked messages only."""
        if self.batches is not None:
            return {}
        reprs = self.reprs
        if reprs is not None:
            return {
                index: Position(int(reprs.ledger[index]), int(reprs.entry[index]))
                for index in np.flatnonzero(reprs.chunked).tolist()
            }
        found = {}
        # The byte of the tag may also be part of a number, so these few ids are decoded.
        for index in np.flatnonzero(list(map(contains, self.id_bytes, repeat(_FIRST_CHUNK_TAG)))).tolist():
            data = self.id_bytes[index]
            if has_first_chunk(data):
                first = decode(data).first_chunk
                if first is not None:
                    found[index] = Position(first.ledger_id, first.entry_id)
        return found

    @cached_property
    def payloads(self) -> list[bytes]:
        """Payloads of the messages."""
        return list(map(InnerMessage.data, self.inners))

    @cached_property
    def values(self) -> list[bytes | None]:
        """Payloads of the messages; None for a null value."""
        if all(self.payloads):
            return self.payloads  # type: ignore[return-value]  # a list of bytes is one of bytes or None
        return [
            None if not one and inner.has_null_value() else one
            for one, inner in zip(self.payloads, self.inners, strict=True)
        ]

    @cached_property
    def key_texts(self) -> list[str]:
        """Keys as the C++ client returns them."""
        return list(map(InnerMessage.partition_key, self.inners))

    @cached_property
    def ordering_keys(self) -> list[bytes]:
        """Ordering keys; empty for a message without one."""
        try:
            texts = list(map(InnerMessage.ordering_key, self.inners))
        except UnicodeDecodeError:
            return [_ordering_key(inner) for inner in self.inners]
        if not any(texts):
            return [b""] * len(texts)
        return [text.encode() for text in texts]

    @cached_property
    def sequence_ids(self) -> Any:
        """Sequence ids of the messages themselves, as a numpy array; the C++ client has them in `str()` only."""
        if self.reprs is not None:
            return self.reprs.sequence_id
        found = [*map(sequence_id_of, self.inners, self.producer_names)]
        return np.array(found, np.uint64).view(np.int64)

    @cached_property
    def payload_bytes(self) -> int:
        """Total size of the payloads."""
        return sum(map(len, self.payloads)) if self.reprs is None else int(self.reprs.payload_size.sum())

    @cached_property
    def producer_names(self) -> list[str]:
        """Names of the producers."""
        return list(map(InnerMessage.producer_name, self.inners))

    @cached_property
    def slots(self) -> Any:
        """Key slots, as a numpy array."""
        if self.key_decoder.exact:
            return np.fromiter(map(self.key_decoder.slot, self.inners), np.int32, len(self))
        slots = key_slots(self.key_column.cast(pa.large_string())).astype(np.int32)
        if self.has_keyless:
            names, numbers = self.producer_names, self.sequence_ids.tolist()
            for index, text in enumerate(self.key_texts):
                if not text:
                    slots[index] = key_slot(f"{names[index]}-{numbers[index]}")
        if any(self.ordering_keys):
            for index, ordering_key in enumerate(self.ordering_keys):
                if ordering_key:
                    slots[index] = key_slot(ordering_key)
        return slots


_LISTS = frozenset({"id_bytes", "payloads", "key_texts", "ordering_keys", "producer_names"})
_ARRAYS = frozenset({"sequence_ids"})


def _ordering_key(inner: Any) -> bytes:
    try:
        text: str = inner.ordering_key()
    except UnicodeDecodeError as error:
        return error.object
    return text.encode()
