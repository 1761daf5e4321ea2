"""What ids acknowledge: many received ones at a time, by their bytes, and any id that the application gave.

The C++ client writes an id as ledger, entry, partition, batch index and batch size, each only if it has one, and at the
end the first chunk. The messages of a batch differ in the batch index alone, and most applications acknowledge them in
their order: a whole batch is then recognised by comparing bytes, without reading each id.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_ext._wire.message_id_data import decode
from pulsar_ext._wire.protobuf import varint
from pulsar_ext.chunks.resolver import is_open
from pulsar_ext.errors import AdminError, InvalidMessageId, InvalidUse, MessageIdUnresolved
from pulsar_ext.ids.message_id import ChunkMessageId, Origin
from pulsar_ext.ids.position import Position

from .leaving import Singles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ids.message_id import MessageId

    from .leaving import Entry


_LONG = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_OCTETS = [bytes([octet]) for octet in range(0x80, 0x100)]
_LAST_OCTETS = [bytes([octet]) for octet in range(0x80)]
_SHAPE = re.compile(
    rb"(\x08%b\x10%b(?:\x18%b)?)(?:(\x20)%b(?:\x30%b)?|\x30\x00)?(:.*)?" % (_LONG, _LONG, _LONG, _LONG, _LONG),
    re.DOTALL,
)


def says_all(data: bytes) -> bool:
    """Whether the bytes of an id that is not chunked say how many messages its batch has, if it is of one."""
    match = _SHAPE.fullmatch(data)
    if match is None or match[8] is not None:
        return False
    return match[5] is None or (match[7] is not None and _number(match[7]) > _number(match[6]))


def singles(ids: Sequence[bytes]) -> Singles | None:
    """Read serialized ids at once, if they are of single messages of one ledger that differ in nothing but the entry.

    Args:
        ids: what `serialize()` of C++ ids gave.

    Returns:
        The entries; None if the ids are others, or have to be read one by one.
    """
    match = _SHAPE.fullmatch(ids[0]) if ids else None
    if match is None or match[5] is not None or match[8] is not None:
        return None
    partition, ledger, first = -1 if match[4] is None else _number(match[4]), _number(match[2]), _number(match[3])
    size, start, stop = len(ids[0]), match.start(3), match.end(3)
    if _are_neighbours(ids, first, ids[0][:start], ids[0][stop:]):
        return Singles(partition, ledger, range(first, first + len(ids)))
    joined, count = b"".join(ids), len(ids)
    if set(map(len, ids)) != {size}:
        return None
    for at in (*range(start), *range(stop, size)):
        if joined[at::size] != ids[0][at : at + 1] * count:
            return None
    # The entries' octets, by their place: all but the last say that more follow.
    places = [joined[at::size] for at in range(start, stop)]
    if max(places[-1]) > 0x7F or any(min(place) < 0x80 for place in places[:-1]):  # noqa: PLR2004  # seven bits each
        return None
    entries = [octet & 0x7F for octet in places[0]]
    for shift, place in enumerate(places[1:], 1):
        entries = [entry | (octet & 0x7F) << 7 * shift for entry, octet in zip(entries, place, strict=True)]
    return Singles(partition, ledger, entries)


def _are_neighbours(ids: Sequence[bytes], first: int, head: bytes, tail: bytes) -> bool:
    """Whether ids are those of an entry and of the ones that follow it, by writing those."""
    at, count = 0, len(ids)
    while at < count:
        # Entries differ in the first of their octets alone until its seven bits are used up.
        octet = (first + at) & 0x7F
        stop = min(at + 0x80 - octet, count)
        if not (above := (first + at) >> 7):
            lows, rest = _LAST_OCTETS, tail
        else:
            lows, rest = _OCTETS, varint(above) + tail
        some, between = ids[at:stop], rest + head
        # All of that size: then the bytes are the same one by one if they are in a row, which is faster to compare.
        if set(map(len, some)) != {len(between) + 1}:
            return False
        if b"".join(some) != head + between.join(lows[octet : octet + stop - at]) + rest:
            return False
        at = stop
    return True


def gather(ids: Sequence[bytes]) -> Iterator[tuple[int, Entry, int, int, int]]:
    """Read serialized ids, and give neighbours of the same batch as one.

    Args:
        ids: what `serialize()` of C++ ids gave, in the order of the acknowledgements.

    Yields:
        partition, -1 if none; ledger and entry; the number of the batch's messages, 0 without a batch and -1 if the id
        does not say; the bit set of the acknowledged ones; and the place in `ids` of the last of them. For a
        chunked message the number is -2 and the entry that of its last chunk.

    Raises:
        InvalidMessageId: these are not the bytes of an id.
    """
    at, count = 0, len(ids)
    while at < count:
        match = _SHAPE.fullmatch(ids[at])
        if match is None:
            raise InvalidMessageId(f"The C++ client wrote an id that cannot be read: {ids[at].hex()}.")
        head, ledger, entry, partition, batched, index, size, chunk = match.groups()
        where = (_number(ledger), _number(entry))
        part = -1 if partition is None else _number(partition)
        if chunk is not None:
            yield part, where, -2, 0, at
        elif batched is None:
            yield part, where, 0, 0, at
        elif size is None or not (messages := _number(size)):
            yield part, where, -1, 1 << _number(index), at
        else:
            first = _number(index)
            tails = _tails(messages)
            if first == 0 and list(ids[at : at + messages]) == [head + tail for tail in tails]:
                at += messages - 1
                yield part, where, messages, (1 << messages) - 1, at
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
                yield part, where, messages, bits, at
        at += 1


def gather_numbered(
    numbers: list[int],
    read: Callable[[int, int], Sequence[bytes]],
    own: range,
    *,
    mixed: bool = False,
) -> Iterator[tuple[int, Entry, int, int, int]]:
    """Read the ids of numbered messages, and of a batch only its ends where the numbers say what is between them.

    Messages with consecutive numbers were received one after the other by one thread, from a queue where a batch stands
    in its order. If the last of them is as far behind the first in their batch as its number is, they are that part of
    the batch.

    Args:
        numbers: the number of each message in the order of the acknowledgements, 0 for none.
        read: gives the serialized ids of the messages from one place up to another.
        own: other numbers say nothing.
        mixed: whether several partitions share the queue.

    Yields:
        as `gather`.

    Raises:
        InvalidMessageId: as `gather`.
    """
    at, count = 0, len(numbers)
    while at < count:
        number, stop = numbers[at], count
        if number in own:
            first = read(at, at + 1)[0]
            match = _SHAPE.fullmatch(first)
            if match is not None and match[7] is not None and not (mixed and match[4] is not None):
                index, size = _number(match[6]), _number(match[7])
                stop = min(at + size - index, count)
                length = stop - at
                if (
                    length > 1
                    and numbers[at:stop] == list(range(number, number + length))
                    and read(stop - 1, stop)[0] == match[1] + _tails(size)[index + length - 1]
                ):
                    partition = -1 if match[4] is None else _number(match[4])
                    entry = (_number(match[2]), _number(match[3]))
                    yield partition, entry, size, ((1 << length) - 1) << index, stop - 1
                    at = stop
                    continue
        if stop <= at:
            stop = count  # an index behind its batch's end: not ours to judge
        yield from ((*found[:4], at + found[4]) for found in gather(read(at, stop)))
        at = stop


def _number(octets: bytes) -> int:
    value = 0
    for shift, octet in enumerate(octets):
        value |= (octet & 0x7F) << 7 * shift
    return value - (1 << 64) if value >> 63 else value


@lru_cache(maxsize=64)
def _tails(size: int) -> tuple[bytes, ...]:
    """Give how the ids of a batch of `size` end."""
    return tuple(b"\x20" + varint(index) + b"\x30" + varint(size) for index in range(size))


@lru_cache(maxsize=64)
def _numbers(size: int) -> dict[bytes, int]:
    return {tail: index for index, tail in enumerate(_tails(size))}


class Acknowledged(NamedTuple):
    """What one id acknowledges.

    Args:
        entry: the id's own entry.
        size: how many messages its batch has; 0 for a whole entry.
        place: which of them, -1 for a whole entry.
        wholes: the entries of the whole message, each with its C++ id where only that one knows all chunks.
    """

    entry: Entry
    size: int = 0
    place: int = -1
    wholes: tuple[tuple[Entry, Any], ...] = ()


def acknowledged_by(
    context: ClientContext, topic: str, message_id: MessageId, known_size: Callable[[Entry], int]
) -> Acknowledged:
    """Find out what an id acknowledges.

    Args:
        context: asks the admin API where the id does not say enough.
        topic: the topic, or the partition, of the id.
        message_id: any id.
        known_size: gives how many messages the batch of an entry has, 0 if that is not known.

    Raises:
        MessageIdUnresolved: it cannot be found out; nothing was acknowledged.
        InvalidUse: the id names a message that its batch does not have.
    """
    data = decode(message_id.serialize())
    entry = (data.ledger_id, data.entry_id)
    if message_id.batch_index() >= 0:
        size = _size(context, topic, message_id, data.batch_size, known_size)
        return Acknowledged(entry, size, message_id.batch_index())
    if isinstance(message_id, ChunkMessageId) or is_open(message_id):
        is_live = message_id.origin is Origin.LIVE
        inners = [message_id.inner] if is_live else context.resolver.to_acknowledge(topic, message_id)
        return Acknowledged(entry, wholes=tuple(((one.ledger_id(), one.entry_id()), one) for one in inners))
    return Acknowledged(entry, wholes=((entry, None),))


def acknowledged_up_to(
    context: ClientContext, topic: str, message_id: MessageId, known_size: Callable[[Entry], int]
) -> Acknowledged:
    """Find out up to where an id acknowledges cumulatively; arguments and errors as `acknowledged_by()`."""
    if is_open(message_id):
        last = context.resolver.last_entry(topic, message_id)
        return Acknowledged((last.ledger_id(), last.entry_id()))
    data = decode(message_id.serialize())
    size = _size(context, topic, message_id, data.batch_size, known_size) if data.batch_index >= 0 else 0
    return Acknowledged((data.ledger_id, data.entry_id), size, message_id.batch_index())


def _size(
    context: ClientContext, topic: str, message_id: MessageId, said: int, known_size: Callable[[Entry], int]
) -> int:
    """Give how many messages the id's batch has."""
    index = message_id.batch_index()
    if said > index:
        return said
    entry = (message_id.ledger_id(), message_id.entry_id())
    known = known_size(entry)
    if known > index:
        return known
    try:
        headers = context.admin_api().entry(topic, *entry)
    except AdminError as error:
        raise MessageIdUnresolved(
            f"{message_id!r} does not say how many messages its batch has, nor does the admin API: {error} Nothing "
            "was acknowledged. Store message_id.serialize() instead of numbers, or give Client(admin=…).",
            position=Position(*entry),
        ) from None
    found = headers.num_messages_in_batch or 1
    if found <= index:
        raise InvalidUse(f"{message_id!r} names a message of a batch that has {found}. Nothing was acknowledged.")
    return found
