"""What an id that the application gave acknowledges: which entries, or which message of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.chunks.resolver import is_open
from pulsar_ext.errors import AdminError, InvalidUse, MessageIdUnresolved
from pulsar_ext.ids.message_id import ChunkMessageId
from pulsar_ext.ids.origin import Origin
from pulsar_ext.ids.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ids.message_id import MessageId

    from .leaving import Entry

__all__ = ["Acknowledged", "acknowledged_by", "acknowledged_up_to"]


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
