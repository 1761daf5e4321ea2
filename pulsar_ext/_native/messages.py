"""The classes of the C++ binding; construction, wrapping and unwrapping of messages and message ids."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import _pulsar
import pulsar
import pulsar.asyncio
import pulsar.schema
import pulsar.tableview

from pulsar_ext.errors import InvalidMessageId, InvalidUse

from .c_api import TRIED

__all__ = [
    "EMPTY_MESSAGE",
    "InnerClient",
    "InnerConsumer",
    "InnerMessage",
    "InnerMessageBuilder",
    "InnerMessageId",
    "InnerProducer",
    "InnerReader",
    "batch_message",
    "batch_messages",
    "deserialize_inner",
    "inner_id_of",
    "inner_message_of",
    "official_message",
    "prove_sequence_ids",
    "sequence_id_of",
    "serialized_ids",
    "synthetic_batch_ids",
    "truthy",
    "wrap_batch",
]

InnerClient = _pulsar.Client
InnerConsumer = _pulsar.Consumer
InnerProducer = _pulsar.Producer
InnerReader = _pulsar.Reader
InnerMessage = _pulsar.Message
InnerMessageId = _pulsar.MessageId
InnerMessageBuilder = _pulsar.MessageBuilder

EMPTY_MESSAGE = b"\x00\x00\x00\x02\x18\x00"
"""A message of a batch payload: the length of its metadata, and metadata with an empty payload."""
_SEQUENCE_ID = 4321


class _Text(str):
    """Empty string that is true, so that official code does not treat it as missing."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


class _Number(int):
    """Zero that is true, so that official code does not treat it as missing."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


def truthy(value: Any) -> Any:
    """Return a true value equal to `value`, or None for None: the official checks are `if value:`."""
    if value or value is None:
        return value
    if isinstance(value, str):
        return _Text(value)
    return _Number(value) if isinstance(value, int) else value


def wrap_batch(batch: pulsar.MessageBatch, data: bytes, size: int) -> list[Any]:
    """Return the C++ messages of a batch payload, which must have been validated."""
    batch._msg_batch.parse_from(data, size)
    return list(batch._msg_batch.messages())


def batch_message(payload: bytes, messages: int) -> Any:
    """Build one C++ message that contains a whole batch.

    Args:
        payload: a batch payload whose first message's payload is the batch, followed by `messages - 1` empty messages,
            which only make the C++ client count that number of messages.
        messages: the number of messages in the batch.
    """
    return batch_messages(payload, messages, InnerMessageId(-1, -1, -1, -1))[0]


def batch_messages(payload: bytes, size: int, base: Any) -> list[Any]:
    """Build the C++ messages of a batch payload whose entry has the C++ id `base`."""
    batch = _pulsar.MessageBatch()
    batch.with_message_id(base)
    batch.parse_from(payload, size)
    return list(batch.messages())


def serialized_ids(messages: list[Any]) -> list[bytes]:
    """Return the serialized ids of messages of this library."""
    return list(map(InnerMessageId.serialize, map(InnerMessage.message_id, map(attrgetter("inner"), messages))))


def inner_id_of(message_id: Any) -> Any:
    """Return the C++ id of any message id: ours, an official one, or a C++ id; None if it is not a message id."""
    if isinstance(message_id, _pulsar.MessageId):
        return message_id
    return message_id._msg_id if isinstance(message_id, pulsar.MessageId) else None


def deserialize_inner(data: bytes) -> Any:
    """Return the C++ id of serialized bytes, which must have been validated."""
    try:
        return _pulsar.MessageId.deserialize(data)
    except ValueError as error:
        raise InvalidMessageId(f"The C++ client cannot deserialize {data.hex()}: {error}.") from None


def synthetic_batch_ids(base: Any, size: int) -> list[Any]:
    """Return the C++ ids of a batch of `size` messages in the entry of `base`, with a shared bit set as if received."""
    return [message.message_id() for message in batch_messages(EMPTY_MESSAGE * size, size, base)]


def official_message(inner: Any) -> pulsar.Message:
    """Wrap a C++ message in an official one."""
    return pulsar.Message._wrap(inner)


def inner_message_of(official: Any) -> Any:
    """Return the C++ message of an official one."""
    return official._message


def sequence_id_of(inner: Any, producer: str) -> int:
    """Return a message's sequence id, which the C++ client shows only in the message's text.

    Args:
        inner: the C++ message.
        producer: the producer's name.

    Raises:
        InvalidUse: this build of the official client formats the text differently.
    """
    text, begin = str(inner), f"Message(prod={producer}, seq="
    number = text[len(begin) :].partition(",")[0]
    if not (text.startswith(begin) and number.isdecimal()):
        raise _no_sequence_id(text)
    return int(number)


def prove_sequence_ids() -> None:
    """Check on a message of known content that its sequence id can be read; raise like `sequence_id_of()`."""
    builder = InnerMessageBuilder()
    builder.sequence_id(_SEQUENCE_ID)
    built = builder.build()
    if sequence_id_of(built, "") != _SEQUENCE_ID:
        raise _no_sequence_id(str(built))


def _no_sequence_id(text: str) -> InvalidUse:
    return InvalidUse(
        f"pulsar-client {pulsar.__version__} does not show the sequence id of a message like {TRIED}, so the slot of a "
        f"message without a key is unknown; use pulsar-client {TRIED}. Shown is {text[:60]!r}"
    )
