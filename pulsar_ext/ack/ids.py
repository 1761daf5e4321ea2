"""Determine which messages ids acknowledge: many received ids at a time by their bytes, or any id of the application.

The C++ client writes an id as ledger, entry, partition, batch index and batch size, each only if present, and then the
first chunk. The ids of a batch differ only in the batch index, and most applications acknowledge them in order. A
whole batch is then recognised by comparing bytes, without reading each id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext._wire.protobuf import varint, varint_value
from pulsar_ext.chunks.resolver import is_unresolved
from pulsar_ext.errors import AdminError, InvalidMessageId, InvalidUse, MessageIdUnresolved
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId, Origin
from pulsar_ext.ids.position import Position

from .groups import Entry, Singles

_LONG = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_OCTETS = [bytes([octet]) for octet in range(0x80, 0x100)]
_LAST_OCTETS = [bytes([octet]) for octet in range(0x80)]
_SHAPE = re.compile(
    rb"(\x08%b\x10%b(?:\x18%b)?)(?:(\x20)%b(?:\x30%b)?|\x30\x00)?(:.*)?" % (_LONG, _LONG, _LONG, _LONG, _LONG),
    re.DOTALL,
)


def is_complete_id(data: bytes) -> bool:
    """Return True if an unchunked id contains the size of its batch, or has no batch."""
    match = _SHAPE.fullmatch(data)
    if match is None or match[8] is not None:
        return False
    return match[5] is None or (match[7] is not None and _number(match[7]) > _number(match[6]))


def singles(ids: Sequence[bytes]) -> Singles | None:
    """Read the serialized ids of single messages of one ledger at once, if they differ only in the entry."""
    match = _SHAPE.fullmatch(ids[0]) if ids else None
    if match is None or match[5] is not None or match[8] is not None:
        return None
    partition, ledger, first = -1 if match[4] is None else _number(match[4]), _number(match[2]), _number(match[3])
    size, start, stop = len(ids[0]), match.start(3), match.end(3)
    if _are_consecutive(ids, first, ids[0][:start], ids[0][stop:]):
        return Singles(partition, ledger, range(first, first + len(ids)))
    joined, count = b"".join(ids), len(ids)
    if set(map(len, ids)) != {size}:
        return None
    for at in (*range(start), *range(stop, size)):
        if joined[at::size] != ids[0][at : at + 1] * count:
            return None
    # The octets of the entry ids, by index; all but the last must have the continuation bit.
    places = [joined[at::size] for at in range(start, stop)]
    if max(places[-1]) > 0x7F or any(min(place) < 0x80 for place in places[:-1]):  # noqa: PLR2004  # seven bits each
        return None
    entries = [octet & 0x7F for octet in places[0]]
    for shift, place in enumerate(places[1:], 1):
        entries = [entry | (octet & 0x7F) << 7 * shift for entry, octet in zip(entries, place, strict=True)]
    return Singles(partition, ledger, entries)


def _are_consecutive(ids: Sequence[bytes], first: int, head: bytes, tail: bytes) -> bool:
    """Return True if the ids are those of consecutive entries, by building these ids."""
    at, count = 0, len(ids)
    while at < count:
        # Consecutive entries differ in their first octet only, until its seven bits are used up.
        octet = (first + at) & 0x7F
        stop = min(at + 0x80 - octet, count)
        if not (above := (first + at) >> 7):
            lows, rest = _LAST_OCTETS, tail
        else:
            lows, rest = _OCTETS, varint(above) + tail
        some, between = ids[at:stop], rest + head
        # If all ids have this size, equal bytes mean equal ids; one comparison is faster than many.
        if set(map(len, some)) != {len(between) + 1}:
            return False
        if b"".join(some) != head + between.join(lows[octet : octet + stop - at]) + rest:
            return False
        at = stop
    return True


def gather(ids: Sequence[bytes]) -> Iterator[tuple[int, Entry, int, int, int]]:
    """Read serialized ids in the order of the acknowledgements, and combine adjacent ids of the same batch.

    Yield the partition (-1 without one), `(ledger, entry)`, the batch size (0 without a batch, -1 if the id does not
    contain it, -2 for a chunked message, whose entry is the last chunk's), the bit set of the acknowledged messages,
    and the index in `ids` of the last of them.
    """
    at, count = 0, len(ids)
    while at < count:
        match = _SHAPE.fullmatch(ids[at])
        if match is None:
            raise InvalidMessageId(f"The C++ client wrote an invalid id: {ids[at].hex()}.")
        head, ledger, entry, partition, batched, index, size, chunk = match.groups()
        position = (_number(ledger), _number(entry))
        part = -1 if partition is None else _number(partition)
        if chunk is not None:
            yield part, position, -2, 0, at
        elif batched is None:
            yield part, position, 0, 0, at
        elif size is None or not (messages := _number(size)):
            yield part, position, -1, 1 << _number(index), at
        else:
            first = _number(index)
            tails = _tails(messages)
            if first == 0 and list(ids[at : at + messages]) == [head + tail for tail in tails]:
                at += messages - 1
                yield part, position, messages, (1 << messages) - 1, at
            else:
                bits = 1 << first
                numbers = _numbers(messages)
                length = len(head)
                while at + 1 < count and ids[at + 1].startswith(head):
                    number = numbers.get(ids[at + 1][length:])
                    if number is None:
                        break
                    bits |= 1 << number
                    at += 1
                yield part, position, messages, bits, at
        at += 1


def _number(octets: bytes) -> int:
    value = varint_value(octets)
    return value - (1 << 64) if value >> 63 else value


@lru_cache(maxsize=64)
def _tails(size: int) -> tuple[bytes, ...]:
    """Return the last bytes of each id of a batch of `size`."""
    return tuple(b"\x20" + varint(index) + b"\x30" + varint(size) for index in range(size))


@lru_cache(maxsize=64)
def _numbers(size: int) -> dict[bytes, int]:
    return {tail: index for index, tail in enumerate(_tails(size))}


class Acknowledged(NamedTuple):
    """The messages that one id acknowledges."""

    entry: Entry
    size: int = 0
    """Number of messages in its batch; 0 for a whole entry."""
    batch_index: int = -1
    whole_entries: tuple[tuple[Entry, InnerMessageId | None], ...] = ()
    """Entries of the whole message, each with its native id if only that one knows all chunks."""


def acknowledged_by(
    context: ClientContext, topic: str, message_id: MessageId, known_size: Callable[[Entry], int]
) -> Acknowledged:
    """Resolve an id to the messages that it acknowledges."""
    data = decode(message_id.serialize())
    entry = (data.ledger_id, data.entry_id)
    if message_id.batch_index() >= 0:
        size = _size(context, topic, message_id, data.batch_size, known_size)
        return Acknowledged(entry, size, message_id.batch_index())
    if isinstance(message_id, ChunkMessageId) or is_unresolved(message_id):
        is_live = message_id.origin is Origin.LIVE
        inners = [message_id.inner] if is_live else context.resolver.to_acknowledge(topic, message_id)
        return Acknowledged(entry, whole_entries=tuple(((one.ledger_id(), one.entry_id()), one) for one in inners))
    return Acknowledged(entry, whole_entries=((entry, None),))


def acknowledged_up_to(
    context: ClientContext, topic: str, message_id: MessageId, known_size: Callable[[Entry], int]
) -> Acknowledged:
    """Resolve an id to the position that it acknowledges cumulatively; see `acknowledged_by()`."""
    if is_unresolved(message_id):
        last = context.resolver.last_entry(topic, message_id)
        return Acknowledged((last.ledger_id(), last.entry_id()))
    data = decode(message_id.serialize())
    size = _size(context, topic, message_id, data.batch_size, known_size) if data.batch_index >= 0 else 0
    return Acknowledged((data.ledger_id, data.entry_id), size, message_id.batch_index())


def _size(
    context: ClientContext, topic: str, message_id: MessageId, stated: int, known_size: Callable[[Entry], int]
) -> int:
    """Return the number of messages in the id's batch."""
    index = message_id.batch_index()
    if stated > index:
        return stated
    entry = (message_id.ledger_id(), message_id.entry_id())
    known = known_size(entry)
    if known > index:
        return known
    try:
        headers = context.admin_api().entry(topic, *entry)
    except AdminError as error:
        raise MessageIdUnresolved(
            f"{message_id!r} does not contain the size of its batch, and the admin API does not show it: {error} "
            "Nothing was acknowledged. Store message_id.serialize() instead of numbers, or set Client(admin=…).",
            position=Position(*entry),
        ) from None
    found = headers.num_messages_in_batch or 1
    if found <= index:
        raise InvalidUse(
            f"The batch of {message_id!r} has {found} messages, so batch index {index} is invalid. Nothing was "
            "acknowledged."
        )
    return found
