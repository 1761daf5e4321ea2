"""C++ messages and message ids: made, wrapped and unwrapped."""

from __future__ import annotations

from typing import Any

import _pulsar
import pulsar
import pulsar.asyncio
import pulsar.schema
import pulsar.tableview

from pulsar_ext.errors import InvalidMessageId, InvalidUse

from .c_api import TRIED

__all__ = [
    "InnerMessage",
    "InnerMessageBuilder",
    "InnerMessageId",
    "batch_message",
    "batch_messages",
    "deserialize_inner",
    "inner_id_of",
    "inner_message_of",
    "known_sequence_ids",
    "made_up_batch",
    "official_message",
    "sequence_id_of",
    "truthy",
    "wrap_batch",
]

InnerMessage = _pulsar.Message
InnerMessageId = _pulsar.MessageId
InnerMessageBuilder = _pulsar.MessageBuilder

_EMPTY_MESSAGE = b"\x00\x00\x00\x02\x18\x00"
"""A message of a batch's payload: the length of its metadata, and metadata that says: no payload."""
_SEQUENCE_ID = 4321


class _Text(str):
    """An empty text that official code does not take for a missing one."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


class _Number(int):
    """A zero that official code does not take for a missing number."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


def truthy(value: Any) -> Any:
    """Give a value that is as good as `value` and not false, unless it is None: the official checks are `if value:`."""
    if value or value is None:
        return value
    if isinstance(value, str):
        return _Text(value)
    return _Number(value) if isinstance(value, int) else value


def wrap_batch(batch: pulsar.MessageBatch, data: bytes, size: int) -> list[Any]:
    """Give the C++ messages of a batch payload that has been checked before."""
    batch._msg_batch.parse_from(data, size)
    return list(batch._msg_batch.messages())


def batch_message(payload: bytes, messages: int) -> Any:
    """Make one C++ message that is a whole batch.

    Args:
        payload: a batch payload whose first message's own payload is the batch, and `messages - 1` empty ones behind
            it, which only make the C++ client count so many.
        messages: how many the batch has.
    """
    return batch_messages(payload, messages, InnerMessageId(-1, -1, -1, -1))[0]


def batch_messages(payload: bytes, size: int, base: Any) -> list[Any]:
    """Make the C++ messages of a batch's payload, whose entry has the C++ id `base`."""
    batch = _pulsar.MessageBatch()
    batch.with_message_id(base)
    batch.parse_from(payload, size)
    return list(batch.messages())


def inner_id_of(message_id: Any) -> Any:
    """Give the C++ id inside any id: ours, the official wrapper, or the C++ id itself; None if it is not an id."""
    if isinstance(message_id, _pulsar.MessageId):
        return message_id
    return message_id._msg_id if isinstance(message_id, pulsar.MessageId) else None


def deserialize_inner(data: bytes) -> Any:
    """Make a C++ id of bytes that have been checked before."""
    try:
        return _pulsar.MessageId.deserialize(data)
    except ValueError as error:
        raise InvalidMessageId(f"The C++ client cannot read {data.hex()}: {error}.") from None


def made_up_batch(base: Any, size: int) -> list[Any]:
    """Give the C++ ids of a batch of `size` messages at the entry of `base`: they share a bit set, as received ones."""
    return [message.message_id() for message in batch_messages(_EMPTY_MESSAGE * size, size, base)]


def official_message(inner: Any) -> pulsar.Message:
    """Wrap a C++ message as officially."""
    return pulsar.Message._wrap(inner)


def inner_message_of(official: Any) -> Any:
    """Give the C++ message inside an official one."""
    return official._message


def sequence_id_of(inner: Any, producer: str) -> int:
    """Return a message's own sequence id, which the C++ client shows in a message's text only.

    Args:
        inner: the C++ message.
        producer: its producer's name.

    Raises:
        InvalidUse: this build of the official client writes that text in another way.
    """
    text, begin = str(inner), f"Message(prod={producer}, seq="
    number = text[len(begin) :].partition(",")[0]
    if not (text.startswith(begin) and number.isdecimal()):
        raise _no_sequence_id(text)
    return int(number)


def known_sequence_ids() -> None:
    """Prove on a message of known content that its sequence id can be read; raise as `sequence_id_of` if not."""
    builder = InnerMessageBuilder()
    builder.sequence_id(_SEQUENCE_ID)
    built = builder.build()
    if sequence_id_of(built, "") != _SEQUENCE_ID:
        raise _no_sequence_id(str(built))


def _no_sequence_id(text: str) -> InvalidUse:
    return InvalidUse(
        f"pulsar-client {pulsar.__version__} does not show the sequence id of a message as {TRIED} does, which works; "
        f"it decides the slot of a message without a key. Shown is {text[:60]!r}"
    )
