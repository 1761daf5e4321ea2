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
from pulsar_ext._wire.message_id_data import decode, has_first_chunk
from pulsar_ext.ids.position import Position
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.key_shared.hashing import key_slot, key_slots
from pulsar_ext.key_shared.key_encoding import KeyForm, KeyForms, bytes_of_base64
from pulsar_ext.key_shared.slot_filter import SlotFilter

from .id_columns import id_columns
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
        self.keys = keys

    def __len__(self) -> int:
        return len(self.inners)

    def take(self, indexes: Sequence[int]) -> Block:
        """Give a block of some of the messages, which keeps what is known of them."""
        taken = Block([self.inners[index] for index in indexes], self.topic, self.partition, self.keys)
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

    @cached_property
    def text_column(self) -> Any:
        """Give the keys' texts as an Arrow array."""
        return pa.array(self.texts, pa.string())

    @cached_property
    def has_keyless(self) -> bool:
        """Whether a message has no key, or an empty one."""
        return "" in self.texts

    @cached_property
    def begins(self) -> tuple[Any, Any]:
        """Give the ledger and the entry at which each message begins: its own, or its first chunk's."""
        ledger, entry, _ = self.positions
        if self.firsts:
            ledger, entry = ledger.copy(), entry.copy()
            for index, first in self.firsts.items():
                ledger[index], entry[index] = first.ledger_id, first.entry_id
        return ledger, entry

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
        if self.keys.exact:
            return np.fromiter(map(self.keys.slot, self.inners), np.int32, len(self))
        slots = key_slots(self.text_column.cast(pa.large_string())).astype(np.int32)
        if self.has_keyless:
            names, numbers = self.producers, self.sequence_ids.tolist()
            for index, text in enumerate(self.texts):
                if not text:
                    slots[index] = key_slot(f"{names[index]}-{numbers[index]}")
        if any(self.ordering):
            for index, ordering in enumerate(self.ordering):
                if ordering:
                    slots[index] = key_slot(ordering)
        return slots


_SEQUENCE_AT = len("Message(prod=") + len(", seq=")
_LISTS = frozenset({"id_bytes", "data", "texts", "ordering", "producers"})
_ARRAYS = frozenset({"sequence_ids"})


def _ordering(inner: Any) -> bytes:
    try:
        text: str = inner.ordering_key()
    except UnicodeDecodeError as error:
        return error.object
    return text.encode()
