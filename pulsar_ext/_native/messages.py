"""The classes of the C++ binding; construction, wrapping and unwrapping of messages and message ids."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import _pulsar
import pulsar

from pulsar_ext.errors import InvalidMessageId, InvalidUse

from .c_api import TRIED

InnerClient = _pulsar.Client
InnerConsumer = _pulsar.Consumer
InnerProducer = _pulsar.Producer
InnerProducerConfiguration = _pulsar.ProducerConfiguration
InnerReader = _pulsar.Reader
InnerMessage = _pulsar.Message
InnerMessageId = _pulsar.MessageId
InnerMessageBuilder = _pulsar.MessageBuilder

EMPTY_MESSAGE = b"\x00\x00\x00\x02\x18\x00"
"""A message of a batch payload: the length of its metadata, and metadata with an empty payload."""
_SEQUENCE_ID = 4321


class _True:
    __slots__ = ()

    def __bool__(self) -> bool:
        return True


class _Text(_True, str):
    """Empty string that is true."""

    __slots__ = ()


class _Number(_True, int):
    """Zero that is true."""

    __slots__ = ()


def truthy(value: object) -> object:
    """Return a true value equal to `value`, or None for None: official code treats a false one as missing."""
    if value or value is None:
        return value
    if isinstance(value, str):
        return _Text(value)
    return _Number(value) if isinstance(value, int) else value


def wrap_batch(batch: pulsar.MessageBatch, data: bytes, size: int) -> list[InnerMessage]:
    """Return the C++ messages of a batch payload, which must have been validated."""
    batch._msg_batch.parse_from(data, size)
    return [*batch._msg_batch.messages()]


def batch_message(payload: bytes, messages: int) -> InnerMessage:
    """Build one C++ message of a whole batch: the first message's payload, the others being empty and only counted."""
    return batch_messages(payload, messages, InnerMessageId(-1, -1, -1, -1))[0]


def batch_messages(payload: bytes, size: int, base: InnerMessageId) -> list[InnerMessage]:
    """Build the C++ messages of a batch payload whose entry has the C++ id `base`."""
    batch = _pulsar.MessageBatch()
    batch.with_message_id(base)
    batch.parse_from(payload, size)
    return batch.messages()


def serialized_ids(messages: Sequence[object]) -> list[bytes]:
    return list(map(InnerMessageId.serialize, map(InnerMessage.message_id, map(attrgetter("inner"), messages))))


def inner_id_of(message_id: object) -> InnerMessageId | None:
    """Return the C++ id of any message id: ours, an official one, or a C++ id; None if it is not a message id."""
    if isinstance(message_id, _pulsar.MessageId):
        return message_id
    return message_id._msg_id if isinstance(message_id, pulsar.MessageId) else None


def deserialize_inner(data: bytes) -> InnerMessageId:
    """Return the C++ id of serialized bytes, which must have been validated."""
    try:
        return _pulsar.MessageId.deserialize(data)
    except ValueError as error:
        raise InvalidMessageId(f"The C++ client cannot deserialize {data.hex()}: {error}.") from None


def synthetic_batch_ids(base: InnerMessageId, size: int) -> list[InnerMessageId]:
    """Return the C++ ids of a batch of `size` messages in the entry of `base`, with a shared bit set as if received."""
    return [message.message_id() for message in batch_messages(EMPTY_MESSAGE * size, size, base)]


def official_message(inner: InnerMessage | None) -> pulsar.Message:
    return pulsar.Message._wrap(inner)


def inner_message_of(official: pulsar.Message) -> InnerMessage:
    inner: InnerMessage = official._message
    return inner


def sequence_id_of(inner: InnerMessage, producer: str) -> int:
    """Return a message's sequence id, which the C++ client shows only in the message's text."""
    text, begin = str(inner), f"Message(prod={producer}, seq="
    number = text[len(begin) :].partition(",")[0]
    if not (text.startswith(begin) and number.isdecimal()):
        raise _no_sequence_id(text)
    return int(number)


def prove_sequence_ids() -> None:
    """Raise `InvalidUse` if the sequence id of a message of known content cannot be read."""
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
