"""A block of messages that were taken from a reader at once.

Each field is fetched for the whole block by one `map` over the C++ messages, so that no line of Python runs for each
message. Sequence ids are only in what `str(message)` shows; if they are wanted, everything that is shown is read from
there (`message_repr`), and not fetched. If they are not, two ids of a large batch tell all positions of it
(`batch_columns`). What messages rarely have (chunks, null values, bytes in an ordering key) costs nothing in a block
without it.
"""

from __future__ import annotations

from functools import cached_property
from itertools import repeat
from operator import contains
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulsar_ext._native.messages import InnerMessage, InnerMessageId, sequence_id_of
from pulsar_ext._wire.message_id_data import decode, has_first_chunk
from pulsar_ext.ids.position import Position
from pulsar_ext.key_shared.hashing import key_slot, key_slots

from .batch_columns import BatchColumns, batch_columns
from .id_columns import id_columns
from .message_repr import ReprColumns, read_reprs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_ext._wire.message_id_data import MessageIdData

    from .key_decoder import KeyDecoder

__all__ = ["MessageBlock"]

_FIRST_CHUNK_TAG = 0x3A


class MessageBlock:
    """Messages of one topic partition, in order.

    Args:
        inners: the C++ messages; not empty.
        topic: the full name of the topic partition.
        partition: its index, -1 on a topic without partitions.
        key_decoder: reads the keys.
        wants_sequence_ids: whether sequence ids, or slots, will be asked for.
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
        """Give a block of some of the messages, with what has been fetched of them already."""
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
        """Give the id of one message."""
        return decode(self.serialized(index))

    def serialized(self, index: int) -> bytes:
        """Give the bytes of one message's id."""
        data: bytes = self.inners[index].message_id().serialize()
        return data

    def batch_size(self, index: int) -> int:
        """Give how many messages the batch of one message has; 1 for a message in no batch."""
        return self.id_data(index).batch_size or 1

    def release(self) -> None:
        """Free the messages and their fields; Arrow arrays that were made of them stay valid."""
        vars(self).clear()

    @cached_property
    def key_column(self) -> Any:
        """The keys as the C++ client shows them, as an Arrow array."""
        return pa.array(self.key_texts, pa.string())

    @cached_property
    def has_keyless(self) -> bool:
        """Whether a message has no key, or an empty one."""
        return "" in self.key_texts

    @cached_property
    def begin_columns(self) -> tuple[Any, Any]:
        """The ledgers and the entries at which messages begin (their own, or their first chunks'), as numpy arrays."""
        ledger, entry, _ = self.positions
        if self.first_chunks:
            ledger, entry = ledger.copy(), entry.copy()
            for index, first in self.first_chunks.items():
                ledger[index], entry[index] = first.ledger_id, first.entry_id
        return ledger, entry

    # -- fields of the C++ messages, each fetched once -----------------------------------------------------------------

    @cached_property
    def reprs(self) -> ReprColumns | None:
        """What `str()` of the messages shows; None if it is not needed, or if one is not written as expected."""
        if self.batches is not None:
            return None
        try:
            texts = list(map(str, self.inners))
            producer = self.inners[0].producer_name()
            reprs = read_reprs(texts, producer, self.partition)
            # Properties could hold anything, a text that looks like another message too: ask for the name there.
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
        """The serialized ids, fetched message by message."""
        return list(map(InnerMessageId.serialize, map(InnerMessage.message_id, self.inners)))

    @cached_property
    def batches(self) -> BatchColumns | None:
        """Where the messages are in large batches; None if each message has to be looked at."""
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
        """The positions of the first chunks, by index; chunked messages only."""
        if self.batches is not None:
            return {}
        reprs = self.reprs
        if reprs is not None:
            return {
                index: Position(int(reprs.ledger[index]), int(reprs.entry[index]))
                for index in np.flatnonzero(reprs.chunked).tolist()
            }
        found = {}
        # The byte of the tag may be part of a number as well, so those few ids are decoded.
        for index in np.flatnonzero(list(map(contains, self.id_bytes, repeat(_FIRST_CHUNK_TAG)))).tolist():
            data = self.id_bytes[index]
            if has_first_chunk(data):
                first = decode(data).first_chunk
                if first is not None:
                    found[index] = Position(first.ledger_id, first.entry_id)
        return found

    @cached_property
    def payloads(self) -> list[bytes]:
        """The payloads."""
        return list(map(InnerMessage.data, self.inners))

    @cached_property
    def values(self) -> list[bytes | None]:
        """The payloads; None for a null value."""
        if all(self.payloads):
            return self.payloads  # type: ignore[return-value]  # a list of bytes is one of bytes or None
        return [
            None if not one and inner.has_null_value() else one
            for one, inner in zip(self.payloads, self.inners, strict=True)
        ]

    @cached_property
    def key_texts(self) -> list[str]:
        """The keys as the C++ client shows them."""
        return list(map(InnerMessage.partition_key, self.inners))

    @cached_property
    def ordering_keys(self) -> list[bytes]:
        """The ordering keys; empty for a message without one."""
        try:
            texts = list(map(InnerMessage.ordering_key, self.inners))
        except UnicodeDecodeError:
            return [_ordering_key(inner) for inner in self.inners]
        if not any(texts):
            return [b""] * len(texts)
        return [text.encode() for text in texts]

    @cached_property
    def sequence_ids(self) -> Any:
        """The messages' own sequence ids, as a numpy array; the C++ client shows them in `str()` only."""
        if self.reprs is not None:
            return self.reprs.sequence_id
        found = [*map(sequence_id_of, self.inners, self.producer_names)]
        return np.array(found, np.uint64).view(np.int64)

    @cached_property
    def payload_bytes(self) -> int:
        """The size of all payloads together."""
        return sum(map(len, self.payloads)) if self.reprs is None else int(self.reprs.payload_size.sum())

    @cached_property
    def producer_names(self) -> list[str]:
        """The producers' names."""
        return list(map(InnerMessage.producer_name, self.inners))

    @cached_property
    def slots(self) -> Any:
        """The key slots, as a numpy array."""
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
