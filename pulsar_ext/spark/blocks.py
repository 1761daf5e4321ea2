"""Messages that a reader received, as columns: of the native core, or of the binding, which reads field by field."""

from __future__ import annotations

from array import array
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from pulsar_ext._native import core
from pulsar_ext._native.messages import InnerMessage, sequence_id_of
from pulsar_ext._native.results import Timeout
from pulsar_ext._wire.message_id_data import decode, has_first_chunk
from pulsar_ext._wire.protobuf import signed
from pulsar_ext.key_shared.hashing import key_slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pulsar_ext._native.messages import InnerReader

    Numbers = bytes | array[int]
    Octets = tuple[Numbers, bytes]
    """Column of bytes in Arrow's layout: 32-bit offsets of each value and of the end, and all values."""

_NEXT_MILLIS: Final = 10
_OF_IDS: Final = ("ledger_id", "entry_id", "batch_index")


class Block:
    """C++ messages, and their fields as columns."""

    def __init__(self, inners: Sequence[InnerMessage], payloads: list[bytes] | None = None, /) -> None:
        self._inners = inners
        self._known = {} if payloads is None else {"data": payloads}

    def __len__(self) -> int:
        return len(self._inners)

    def __getitem__(self, index: int, /) -> InnerMessage:
        return self._inners[index]

    def __iter__(self) -> Iterator[InnerMessage]:
        return iter(self._inners)

    def take(self, indexes: list[int], /) -> Block:
        """Return a block of the messages at these indexes, which ascend."""
        return Block([self._inners[index] for index in indexes])

    def numbers(self, name: str, /) -> Numbers:
        """Return a number of each message, 64 bits each, as a buffer."""
        if name in _OF_IDS:
            return array("q", map(itemgetter(_OF_IDS.index(name)), self._positions))
        if name == "is_chunked":
            positions = zip(self._positions, self._inners, strict=True)
            return array("q", [one[2] < 0 and has_first_chunk(_id_bytes(inner)) for one, inner in positions])
        if name == "sequence_id":
            return array("Q", map(sequence_id_of, self._inners, map(bytes.decode, self._values("producer_name"))))
        if name == "key_slot":
            keys = zip(self._values("ordering_key"), self._values("partition_key"), self._inners, strict=True)
            return array("q", [key_slot(ordering or key or _keyless(inner)) for ordering, key, inner in keys])
        return array("Q", map(getattr(InnerMessage, name), self._inners))

    def octets(self, name: str, /) -> Octets:
        """Return a field of each message as bytes."""
        return _column(self._values(name))

    def ids(self) -> Octets:
        """Return the serialized ids."""
        return _column(map(_id_bytes, self._inners))

    def properties(self) -> tuple[Numbers, Octets, Octets]:
        """Return the offsets of the properties of each message and of their end, their names and their values."""
        found = list(map(InnerMessage.properties, self._inners))
        names = _column(name.encode() for one in found for name in one)
        return _offsets(map(len, found)), names, _column(value.encode() for one in found for value in one.values())

    def _values(self, name: str) -> list[bytes]:
        """Return a field of each message, fetched once."""
        if name not in self._known:
            read = getattr(InnerMessage, name)
            try:
                self._known[name] = list(map(str.encode if name != "data" else bytes, map(read, self._inners)))
            except UnicodeDecodeError:
                self._known[name] = [_octets_of(read, inner) for inner in self._inners]
        return self._known[name]

    @cached_property
    def _positions(self) -> list[tuple[int, int, int]]:
        """Ledger, entry and batch index of each message.

        Messages arrive in order, so two ids of a batch whose indexes are as far apart as the messages determine all ids
        between them. If part of a batch is missing, each id is read.
        """
        found: list[tuple[int, int, int]] = []
        while (at := len(found)) < len(self):
            ledger, entry, index = _position(self._inners[at])
            size = decode(_id_bytes(self._inners[at])).batch_size if index >= 0 else 0
            count = max(min(size - index, len(self) - at), 1)
            if _position(self._inners[at + count - 1]) != (ledger, entry, index + count - 1):
                return list(map(_position, self._inners))
            found.extend(zip(repeat(ledger), repeat(entry), range(index, index + count)))
        return found


def read_block(reader: InnerReader, most: int, most_bytes: int, milliseconds: int, /) -> Block:
    """Return messages of a C++ reader.

    Args:
        reader: the C++ reader.
        most: the maximum number of messages.
        most_bytes: the payload in bytes at which the block ends, including the message that reaches it.
        milliseconds: the timeout for the first message; for more messages it is 10 ms.

    Returns:
        The messages; an empty block if none arrived.
    """
    inners: list[InnerMessage] = []
    payloads: list[bytes] = []
    with suppress(Timeout):
        while len(inners) < most and most_bytes > 0:
            inners.append(inner := reader.read_next(_NEXT_MILLIS if inners else milliseconds))
            payloads.append(data := inner.data())
            most_bytes -= len(data)
    return Block(inners, payloads)


def _octets_of(read: Callable[[InnerMessage], str], inner: InnerMessage) -> bytes:
    """Read a text, which may not be UTF-8."""
    try:
        return read(inner).encode()
    except UnicodeDecodeError as error:
        return error.object


def _position(inner: InnerMessage) -> tuple[int, int, int]:
    message_id = inner.message_id()
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


def _id_bytes(inner: InnerMessage) -> bytes:
    return inner.message_id().serialize()


def _keyless(inner: InnerMessage) -> str:
    """Return the text by which the broker computes the slot of a message without a key."""
    name = inner.producer_name()
    return f"{name}-{signed(sequence_id_of(inner, name), 64)}"


def _column(values: Iterable[bytes]) -> Octets:
    every = list(values)
    return _offsets(map(len, every)), b"".join(every)


def _offsets(counts: Iterable[int]) -> array[int]:
    return array("i", accumulate(counts, initial=0))


if not TYPE_CHECKING and core.IS_USED:
    read_block = core.read_block
