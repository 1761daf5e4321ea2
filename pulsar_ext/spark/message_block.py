"""A block of messages, taken from a reader at once, and its columns as Arrow arrays.

Each field is fetched for the whole block by one `map` over the C++ messages, so no line of Python runs for a single
message; what a message's text tells (`message_texts`) is not asked for at all; what a field rarely has (chunks,
properties, null values, bytes in an ordering key) costs nothing where it is not there.
"""

from __future__ import annotations

from functools import cached_property
from itertools import repeat
from operator import contains
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulsar_ext._native.messages import InnerMessage, InnerMessageId
from pulsar_ext._wire.message_id_data import MessageIdData, decode, encode, has_first_chunk
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.position import Position
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.key_shared.hashing import key_slot, key_slots
from pulsar_ext.key_shared.key_encoding import KeyForm, KeyForms, bytes_of_base64
from pulsar_ext.key_shared.slot_filter import SlotFilter

from .id_columns import id_bytes, id_columns
from .message_repr import Told, read_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Block", "Ids", "Keys", "Sizes"]

_FIRST_CHUNK_TAG = 0x3A
_MILLIS = 1000


class Ids:
    """The (ledger, entry, batch index) of each message of a block, one tuple at a time."""

    def __init__(self, block: Block) -> None:
        self._block = block

    def __len__(self) -> int:
        return len(self._block.inners)

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        ledger, entry, batch = self._block.positions
        return int(ledger[index]), int(entry[index]), int(batch[index])


class Sizes:
    """How many messages the batch of each message of a block has; only where it is asked for."""

    def __init__(self, block: Block) -> None:
        self._block = block

    def __getitem__(self, index: int) -> int:
        return decode(self._block.serialized(index)).batch_size or 1


class Keys:
    """How keys become bytes and slots.

    Args:
        forms: finds out what a key is; None takes each as the text that it looks like.
    """

    def __init__(self, forms: KeyForms | None) -> None:
        self._forms = forms
        self._slots = None if forms is None else SlotFilter(KeyHashRanges.full(), forms)

    @property
    def exact(self) -> bool:
        """Whether each key that may be something else is asked about."""
        return self._forms is not None

    def key(self, inner: Any, text: str) -> bytes | None:
        """Give the key of one message: its bytes where it was sent as such."""
        other = bytes_of_base64(text) if text else b""
        if self._forms is None or other is None:
            return text.encode() if text else None
        form = self._forms.form_of(inner, text)
        if form is KeyForm.BASE64:
            return other
        return None if form is KeyForm.NONE else text.encode()

    def slot(self, inner: Any) -> int:
        """Give the slot of one message, asked for exactly."""
        assert self._slots is not None  # noqa: S101  # only where `exact`
        return self._slots.slot(inner)


class Block:
    """Messages of one topic partition, in order.

    Args:
        inners: the C++ messages; not empty.
        topic: the full name of the topic partition.
        partition: its index, -1 on a topic without partitions.
        keys: how keys are read.
    """

    def __init__(self, inners: list[Any], topic: str, partition: int, keys: Keys) -> None:
        self.inners = inners
        self.topic = topic
        self.partition = partition
        self._keys = keys

    def __len__(self) -> int:
        return len(self.inners)

    def take(self, indexes: Sequence[int]) -> Block:
        """Give a block of some of the messages, which keeps what is known of them."""
        taken = Block([self.inners[index] for index in indexes], self.topic, self.partition, self._keys)
        at = np.asarray(indexes, np.int64)
        for name, value in vars(self).items():
            if name in _LISTS:
                setattr(taken, name, [value[index] for index in indexes])
            elif name in _ARRAYS:
                setattr(taken, name, value[at])
        if "told" in vars(self):
            taken.told = None if self.told is None else self.told.take(at)
        if "positions" in vars(self):
            ledger, entry, batch = self.positions
            taken.positions = (ledger[at], entry[at], batch[at])
        return taken

    def serialized(self, index: int) -> bytes:
        """Give the bytes of one message's id."""
        data: bytes = self.inners[index].message_id().serialize()
        return data

    def release(self) -> None:
        """Let go of the messages: what was made of them stays."""
        vars(self).clear()

    # -- what is asked of the C++ messages, once ---------------------------------------------------------------------

    @cached_property
    def told(self) -> Told | None:
        """What the messages' texts tell; None where one of them does not look as it should."""
        try:
            texts = list(map(str, self.inners))
            producer = self.inners[0].producer_name()
            told = read_texts(texts, producer, self.partition)
            # A text with properties could hold anything, so there the name counts that the call gives.
            if told is None or any(
                self.inners[index].producer_name() != producer for index in np.flatnonzero(~told.bare).tolist()
            ):
                told = read_texts(texts, self.producers, self.partition)
            else:
                self.producers = [producer] * len(self)
        except UnicodeDecodeError:
            return None
        return told

    @cached_property
    def id_bytes(self) -> list[bytes]:
        """The ids' serialized form, asked for message by message."""
        return list(map(InnerMessageId.serialize, map(InnerMessage.message_id, self.inners)))

    @cached_property
    def positions(self) -> tuple[Any, Any, Any]:
        """Ledgers, entries and batch indexes, as numpy arrays."""
        told = self.told
        if told is None:
            return id_columns(self.id_bytes)
        ledger, entry = told.ledger, told.entry
        if self.firsts:
            chunked = list(self.firsts)
            ledger, entry = ledger.copy(), entry.copy()
            ledger[chunked], entry[chunked], _ = id_columns([self.serialized(index) for index in chunked])
        return ledger, entry, told.batch

    @cached_property
    def firsts(self) -> dict[int, Position]:
        """Where the first chunk is, by index, of chunked messages."""
        told = self.told
        if told is not None:
            return {
                index: Position(int(told.ledger[index]), int(told.entry[index]))
                for index in np.flatnonzero(told.chunked).tolist()
            }
        found = {}
        # The tag's byte may be part of a number as well, so those few are looked at.
        for index in np.flatnonzero(list(map(contains, self.id_bytes, repeat(_FIRST_CHUNK_TAG)))).tolist():
            data = self.id_bytes[index]
            if has_first_chunk(data):
                first = decode(data).first_chunk
                if first is not None:
                    found[index] = Position(first.ledger_id, first.entry_id)
        return found

    @cached_property
    def data(self) -> list[bytes]:
        """The payloads."""
        return list(map(InnerMessage.data, self.inners))

    @cached_property
    def values(self) -> list[bytes | None]:
        """The payloads, None where the value is null."""
        if all(self.data):
            return self.data  # type: ignore[return-value]  # a list of bytes is one of bytes or None
        return [
            None if not one and inner.has_null_value() else one
            for one, inner in zip(self.data, self.inners, strict=True)
        ]

    @cached_property
    def texts(self) -> list[str]:
        """The keys as the C++ client shows them."""
        return list(map(InnerMessage.partition_key, self.inners))

    @cached_property
    def ordering(self) -> list[bytes]:
        """The ordering keys; empty where there is none."""
        try:
            texts = list(map(InnerMessage.ordering_key, self.inners))
        except UnicodeDecodeError:
            return [_ordering(inner) for inner in self.inners]
        if not any(texts):
            return [b""] * len(texts)
        return [text.encode() for text in texts]

    @cached_property
    def sequence_ids(self) -> Any:
        """The messages' own sequence ids, as a numpy array; the C++ client only shows them in a message's text."""
        if self.told is not None:
            return self.told.sequence
        found = []
        for text, producer in zip(map(str, self.inners), self.producers, strict=True):
            begin = _SEQUENCE_AT + len(producer)
            found.append(int(text[begin : text.index(",", begin)]))
        return np.array(found, np.uint64).view(np.int64)

    @cached_property
    def weight(self) -> int:
        """How many bytes all payloads have."""
        return sum(map(len, self.data)) if self.told is None else int(self.told.size.sum())

    @cached_property
    def producers(self) -> list[str]:
        """The producers' names."""
        return list(map(InnerMessage.producer_name, self.inners))

    @cached_property
    def slots(self) -> Any:
        """The key slots, as a numpy array."""
        if self._keys.exact:
            return np.fromiter(map(self._keys.slot, self.inners), np.int32, len(self))
        slots = key_slots(self._text_column.cast(pa.large_string())).astype(np.int32)
        if self._keyless:
            names, numbers = self.producers, self.sequence_ids.tolist()
            for index, text in enumerate(self.texts):
                if not text:
                    slots[index] = key_slot(f"{names[index]}-{numbers[index]}")
        if any(self.ordering):
            for index, ordering in enumerate(self.ordering):
                if ordering:
                    slots[index] = key_slot(ordering)
        return slots

    # -- the columns -------------------------------------------------------------------------------------------------

    def column(self, name: str, kind: Any) -> Any:
        """Give one column as an Arrow array of that type.

        Raises:
            InvalidUse: a text is wanted of bytes that are no UTF-8.
        """
        return _COLUMNS[name](self, kind)

    def _value(self, kind: Any) -> Any:
        return self._textual(self.values, kind)

    def _key(self, kind: Any) -> Any:
        if self._keys.exact:
            return self._textual(list(map(self._keys.key, self.inners, self.texts)), kind)
        keys = self._text_column
        if self._keyless:
            keys = pa.array([text or None for text in self.texts], pa.string())
        return keys if kind == pa.string() else keys.cast(kind)

    @cached_property
    def _text_column(self) -> Any:
        return pa.array(self.texts, pa.string())

    @cached_property
    def _keyless(self) -> bool:
        return "" in self.texts

    def _ordering_key(self, kind: Any) -> Any:
        return pa.array([one or None for one in self.ordering], kind)

    def _topic(self, kind: Any) -> Any:
        return pa.repeat(pa.scalar(self.topic, kind), len(self))

    def _partition(self, kind: Any) -> Any:
        return pa.repeat(pa.scalar(self.partition, kind), len(self))

    def _message_id(self, kind: Any) -> Any:
        sizes = None if self.firsts else self._batch_sizes()
        if self.told is None or sizes is None:
            return pa.array(self.id_bytes, kind)
        ledger, entry, batch = self.positions
        offsets, data = id_bytes(ledger, entry, self.partition, batch, sizes)
        return pa.Array.from_buffers(kind, len(self), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def _batch_sizes(self) -> Any:
        """Give the sizes of the messages' batches as an array, asked for once a batch; None where that is no gain."""
        ledger, entry, batch = self.positions
        first = np.concatenate(([True], (np.diff(ledger) != 0) | (np.diff(entry) != 0)))
        begins = np.flatnonzero(first & (batch >= 0))
        if len(begins) * _WORTH > len(self):
            return None
        sizes = np.zeros(len(self), np.int64)
        sizes[begins] = [decode(self.serialized(index)).batch_size or 0 for index in begins.tolist()]
        # Each message has what the first of its entry has; those in no batch have none.
        return sizes[np.flatnonzero(first)[np.cumsum(first) - 1]]

    def _first_chunk_id(self, kind: Any) -> Any:
        if not self.firsts:
            return pa.nulls(len(self), kind)
        found: list[bytes | None] = [None] * len(self)
        for index, first in self.firsts.items():
            found[index] = encode(MessageIdData(first.ledger_id, first.entry_id, self.partition))
        return pa.array(found, kind)

    def _publish_time(self, kind: Any) -> Any:
        told = self.told
        if told is None:
            millis = np.fromiter(map(InnerMessage.publish_timestamp, self.inners), np.int64, len(self))
        else:
            millis = told.publish_time
        return pa.array(millis * _MILLIS, pa.timestamp("us", tz="UTC")).cast(kind)

    def _event_time(self, kind: Any) -> Any:
        millis = np.fromiter(map(InnerMessage.event_timestamp, self.inners), np.int64, len(self))
        if not millis.any():
            return pa.nulls(len(self), kind)
        return pa.array(millis * _MILLIS, pa.timestamp("us", tz="UTC"), mask=millis == 0).cast(kind)

    def _properties(self, kind: Any) -> Any:
        names: list[str] = []
        items: list[str] = []
        counts = np.zeros(len(self) + 1, np.int32)
        having = range(len(self)) if self.told is None else np.flatnonzero(~self.told.bare).tolist()
        for index in having:
            one = self.inners[index].properties()
            names.extend(one)
            items.extend(one.values())
            counts[index + 1] = len(one)
        offsets = np.cumsum(counts, dtype=np.int32)
        return pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(names, kind.key_type), pa.array(items, kind.item_type), type=kind
        )

    def _sequence_id(self, kind: Any) -> Any:
        return pa.array(self.sequence_ids, kind)

    def _producer_name(self, kind: Any) -> Any:
        return pa.array(self.producers, kind)

    def _key_slot(self, kind: Any) -> Any:
        return pa.array(self.slots, kind)

    def _ledger_id(self, kind: Any) -> Any:
        return pa.array(self.positions[0], kind)

    def _entry_id(self, kind: Any) -> Any:
        return pa.array(self.positions[1], kind)

    def _begin_ledger_id(self, kind: Any) -> Any:
        return pa.array(self._begins[0], kind)

    def _begin_entry_id(self, kind: Any) -> Any:
        return pa.array(self._begins[1], kind)

    @cached_property
    def _begins(self) -> tuple[Any, Any]:
        ledger, entry, _ = self.positions
        if self.firsts:
            ledger, entry = ledger.copy(), entry.copy()
            for index, first in self.firsts.items():
                ledger[index], entry[index] = first.ledger_id, first.entry_id
        return ledger, entry

    def _batch_index(self, kind: Any) -> Any:
        return pa.array(self.positions[2], kind)

    def _textual(self, values: Sequence[bytes | None], kind: Any) -> Any:
        found = pa.array(values, pa.binary())
        if kind != pa.string():
            return found if found.type == kind else found.cast(kind)
        try:
            return found.cast(kind)
        except pa.ArrowInvalid:
            for inner, value in zip(self.inners, values, strict=True):
                try:
                    (value or b"").decode()
                except UnicodeDecodeError as error:
                    raise InvalidUse(
                        f"The message {inner.message_id()} on {self.topic} is no UTF-8 text ({error}): read it as "
                        "binary."
                    ) from None
            raise


_SEQUENCE_AT = len("Message(prod=") + len(", seq=")
_WORTH = 4
"""How many messages a batch must have, on average, for asking for its size to be cheaper than for each id."""
_LISTS = frozenset({"id_bytes", "data", "texts", "ordering", "producers"})
_ARRAYS = frozenset({"sequence_ids"})
_COLUMNS = {
    "value": Block._value,  # noqa: SLF001  # this module's own class, here and below
    "__key": Block._key,  # noqa: SLF001
    "__orderingKey": Block._ordering_key,  # noqa: SLF001
    "__topic": Block._topic,  # noqa: SLF001
    "__partition": Block._partition,  # noqa: SLF001
    "__messageId": Block._message_id,  # noqa: SLF001
    "__firstChunkId": Block._first_chunk_id,  # noqa: SLF001
    "__publishTime": Block._publish_time,  # noqa: SLF001
    "__eventTime": Block._event_time,  # noqa: SLF001
    "__messageProperties": Block._properties,  # noqa: SLF001
    "__sequenceId": Block._sequence_id,  # noqa: SLF001
    "__producerName": Block._producer_name,  # noqa: SLF001
    "__keySlot": Block._key_slot,  # noqa: SLF001
    "__ledgerId": Block._ledger_id,  # noqa: SLF001
    "__entryId": Block._entry_id,  # noqa: SLF001
    "__beginLedgerId": Block._begin_ledger_id,  # noqa: SLF001
    "__beginEntryId": Block._begin_entry_id,  # noqa: SLF001
    "__batchIndex": Block._batch_index,  # noqa: SLF001
}


def _ordering(inner: Any) -> bytes:
    try:
        text: str = inner.ordering_key()
    except UnicodeDecodeError as error:
        return error.object
    return text.encode()
