"""Messages received by a consumer, a reader or a listener.

`Message` adds little to the official one: `message_id()` returns a `MessageId` that is hashable and ordered, and a
`ChunkMessageId` for a chunked message; `value()` raises if the official one would decode with a wrong schema. Received
messages have a subclass without a constructor, and one class per schema, which holds the schema: creating a message in
the receive loop is one allocation and one store.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Generic, Self

import pulsar
from pulsar.schema import BytesSchema

from ._native.handles import MessageHandle
from ._native.message_index import index_of
from ._native.messages import InnerMessage, inner_message_of, wrap_batch
from ._native.replicated import replicated_from
from ._native.schemas import value_of
from ._wire.batch_payload import read_batch
from .errors import InvalidUse
from .ids.message_id import MessageId, read_id
from .schema.typed import T, of_another_cluster

_data, _has_null_value = MessageHandle.data, MessageHandle.has_null_value
_ALTERABLE = ("value", "data", "properties", "partition_key", "ordering_key", "event_timestamp")


class Message(MessageHandle, Generic[T]):
    """A received message; `data()`, `value()`, `properties()` and so on are the official ones."""

    cluster = 0
    """Number of the cluster that it was received from; the first one of a client is 0. An acknowledgement of another
    cluster's message is dropped."""

    message_id = read_id  # pyright: ignore[reportAssignmentType]  # the official client ships no types

    def value(self) -> T:
        """Decode the message, with the schema that it was written with.

        Raises:
            pulsar.PulsarException: an Avro schema cannot be fetched from the broker now; call again later.
        """
        if type(self._schema) is BytesSchema:  # the most frequent one, read without an object of the binding
            return _data(self) or (None if _has_null_value(self) else b"")  # type: ignore[return-value]  # T is bytes
        return value_of(self._schema, self.inner)  # type: ignore[no-any-return]  # by the schema that the class was made for

    def replicated_from(self) -> str | None:
        """Return the name of the cluster that replicated the message to this one; None if it was not replicated.

        Mirrors Java's `Message.getReplicatedFrom`; the official Python client does not expose it.

        Raises:
            InvalidUse: this build of the official client does not expose it; use the admin API.
        """
        return replicated_from(self.inner)

    def index(self) -> int | None:
        """Return the message's index on its topic or partition, counted by the broker; None if the broker counts none.

        Indexes increase by 1 for each message, and by 1 for each chunk of a chunked message, whose index is that of its
        last chunk. The broker needs `AppendIndexMetadataInterceptor` and `exposingBrokerEntryMetadataToClientEnabled`.
        Mirrors Java's `Message.getIndex`; the official Python client does not expose it.

        Raises:
            InvalidUse: this build of the official client does not expose it; use the admin API.
        """
        return index_of(self.inner)

    def altered(self, **changes: object) -> Message:
        """Return a copy of the message with another value or other properties.

        It is acknowledged as the original message. Mirrors the messages that Java's interceptors return.

        Args:
            **changes: any of `value`, `data`, `properties`, `partition_key`, `ordering_key` and `event_timestamp`:
                the new result of the method of that name.

        Raises:
            InvalidUse: another name.
        """
        if unknown := changes.keys() - _ALTERABLE:
            raise InvalidUse(f"A message can be altered in {', '.join(_ALTERABLE)}; not in {', '.join(unknown)}.")
        other = copy(self)
        for name, value in changes.items():
            other.__dict__[name] = lambda value=value: value  # hides the method
        return other

    def __copy__(self) -> Self:
        """Return a copy with attributes of its own."""
        other = type(self)()
        other.inner = self.inner
        other.__dict__.update(self.__dict__)
        return other

    @staticmethod
    def _wrap(_message: InnerMessage) -> Message:  # official code calls it by this name
        return received(_message)


class Received(Message[T]):
    """A received message; a `Message` that the application created raises at every use."""

    __init__ = object.__init__  # in C: the receive loop creates one per message


def received(inner: InnerMessage, cls: type[Message] = Received) -> Message:
    """Return a C++ message as one of ours, of a class."""
    message = cls()
    message.inner = inner
    return message


class _MessageOfTopics(Received):
    """A message of a consumer of several topics, whose ids name their topics."""

    def message_id(self) -> MessageId:
        """Return the message's id, which knows its topic."""
        message_id = super().message_id()
        message_id.topic_name(self.inner.topic_name())
        return message_id


def message_class(schema: pulsar.schema.Schema, *, several_topics: bool = False) -> type[Message]:
    """Return the class whose messages decode with `schema`; ids of messages from several topics name theirs."""
    base: type[Message] = _MessageOfTopics if several_topics else Received
    if type(schema) is BytesSchema:
        return base
    return type("Message", (base,), {"_schema": schema, "__module__": __name__})


def at_cluster(messages: type[Message[T]], number: int) -> type[Message[T]]:
    """Return the variant of a message class for the cluster of this number."""
    if messages.cluster == number:
        return messages
    first = messages.__mro__[1] if messages.cluster else messages
    named: dict[str, object] = {"cluster": number, "__module__": __name__}
    if (schema := getattr(first, "_schema", None)) is not None:
        named["_schema"] = of_another_cluster(schema, number)
    return type(first.__name__, (first,), named)


def handled_in(message: Message) -> AbstractContextManager[object]:
    """Return the context of a message's handler: its span if the client is instrumented, else an empty one."""
    block: Callable[[], AbstractContextManager[object]] = vars(message).get("handled_in", nullcontext)
    return block()


def adopt_message(official: pulsar.Message, cls: type[Message]) -> Message:
    """Return a message that official code created as one of ours."""
    return received(inner_message_of(official), cls)


class MessageBatch(pulsar.MessageBatch):  # type: ignore[misc]  # the official client ships no types
    """Parses the payload of a batch, as the official `MessageBatch`, without crashing on invalid data."""

    def parse_from(self, data: bytes, size: int) -> list[Message]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parse `size` messages out of an uncompressed batch payload.

        Raises:
            InvalidUse: `data` is not the payload of a batch of `size` messages.
        """
        read_batch(data, size)
        return [received(inner) for inner in wrap_batch(self, data, size)]
