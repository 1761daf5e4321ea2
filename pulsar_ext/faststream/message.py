"""The message that a FastStream handler gets, how it is made of what was received, and its headers as properties.

The names of properties are those of FastStream's other brokers. What a `Requester` of this library writes is read as
well, so that a handler answers it: see docs/request.md.
"""

from __future__ import annotations

import contextlib
import logging
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pulsar
from faststream.message import StreamMessage, decode_message

from pulsar_ext.errors import InvalidUse
from pulsar_ext.message import Message
from pulsar_ext.request.envelope import CORRELATION, REPLY_TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from faststream._internal.basic_types import DecodedMessage

    from pulsar_ext.asyncio import Consumer


_CONTENT_TYPE: Final = "content-type"
_CORRELATION_ID: Final = "correlation_id"
_REPLY_TO: Final = "reply_to"


def properties_of(
    headers: Mapping[str, Any], *, content_type: str | None, correlation_id: str | None, reply_to: str
) -> dict[str, str]:
    """Give the properties of a message that is sent; the application's headers win.

    Raises:
        InvalidUse: a header is not text, as properties are.
    """
    ours = {_CONTENT_TYPE: content_type, _CORRELATION_ID: correlation_id, _REPLY_TO: reply_to}
    properties = {name: value for name, value in ours.items() if value}
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise InvalidUse(
                f"The header {name!r} is of type {type(value).__name__}. Headers are Pulsar's properties, which are "
                "text: convert it to a str. Nothing was sent."
            )
        properties[name] = value
    return properties


def content_type_of(properties: Mapping[str, str]) -> str | None:
    """Give what the body is, None if the sender did not say."""
    return properties.get(_CONTENT_TYPE)


def correlation_id_of(properties: Mapping[str, str]) -> str | None:
    """Give the correlation id, of FastStream or of a requester."""
    return properties.get(_CORRELATION_ID) or properties.get(CORRELATION)


def reply_topic_of(properties: Mapping[str, str]) -> str:
    """Give the topic that a reply goes to, empty if none is wanted."""
    return properties.get(_REPLY_TO) or properties.get(REPLY_TOPIC, "")


def answering(properties: Mapping[str, str]) -> dict[str, str]:
    """Give the properties by which a requester knows a reply to a request with these properties."""
    asked = properties.get(CORRELATION)
    return {} if asked is None else {CORRELATION: asked}


_log = logging.getLogger("pulsar_ext")
Raw: TypeAlias = Message | tuple[Message, ...]
"""What a handler gets: a message, or those of a batch."""


class Rejection(Enum):
    """What becomes of a message that is rejected."""

    ACKNOWLEDGE = "acknowledged"
    """There is no dead letter topic: it is done with."""
    DEAD_LETTER = "sent to the dead letter topic"
    REDELIVER = "delivered again"
    """Only the broker's count of redeliveries makes it a dead letter."""


class PulsarMessage(StreamMessage[Raw]):
    """A message of a subscriber, or the reply to a request; `raw_message` is the `pulsar_ext.Message`.

    Of a subscriber with `batch=True` it is a tuple of them, which are settled together.
    The first of `ack()`, `nack()` and `reject()` counts, and the others do nothing then.

    Args:
        raw_message: what was received.
        consumer: what received it; None for a reply, and in memory, where there is nothing to acknowledge.
        rejection: what `reject()` does.
        **parsed: as for FastStream's `StreamMessage`.
    """

    def __init__(
        self,
        raw_message: Raw,
        *,
        consumer: Consumer[Any] | None = None,
        rejection: Rejection = Rejection.ACKNOWLEDGE,
        **parsed: Any,
    ) -> None:
        super().__init__(raw_message, **parsed)
        self._consumer, self._rejection = consumer, rejection

    @property
    def topic(self) -> str:
        """The full name of the topic, or of the partition, that it came from, of a batch the first one's."""
        return str(each_of(self.raw_message)[0].topic_name())

    @property
    def key(self) -> str | None:
        """Its key, Pulsar's `partition_key`, of a batch the first one's; None if it has none."""
        return each_of(self.raw_message)[0].partition_key() or None

    async def ack(self) -> None:
        """Acknowledge it; it does not come again."""
        if self.committed is None and self._consumer is not None:
            await acknowledge(self._consumer, self.raw_message)
        await super().ack()

    async def nack(self, delay_ms: int | None = None, properties: dict[str, str] | None = None) -> None:
        """Have it come again.

        Args:
            delay_ms: after how many milliseconds, as a retry letter, for which the subscriber needs `enable_retry`.
                None leaves it to the subscriber's `negative_ack_redelivery_delay_ms` or its backoff.
            properties: what the retry letter says besides; only with `delay_ms`.

        Raises:
            InvalidUse, pulsar.PulsarException: as `Consumer.reconsume_later()`, such as where there are no retry
                letters; it comes again without a letter.
        """
        consumer = self._consumer
        if self.committed is None and consumer is not None:
            if delay_ms is None:
                await have_again(consumer, self.raw_message)
            else:
                await self._each(consumer, lambda raw: consumer.reconsume_later(raw, delay_ms, properties))
        await super().nack()

    async def reject(self, properties: dict[str, str] | None = None) -> None:
        """Give it up: it goes to the dead letter topic, and is acknowledged if there is none.

        A subscriber to a pattern that has a dead letter policy cannot send letters itself. There the message is
        delivered again, and the policy makes it a dead letter in the end.

        Args:
            properties: what the dead letter says besides, such as the reason.

        Raises:
            InvalidUse, pulsar.PulsarException: as `Consumer.send_dead_letter()`; it comes again.
        """
        consumer = self._consumer
        if self.committed is None and consumer is not None:
            if self._rejection is Rejection.DEAD_LETTER:
                await self._each(consumer, lambda raw: consumer.send_dead_letter(raw, properties))
            elif self._rejection is Rejection.REDELIVER:
                await have_again(consumer, self.raw_message)
            else:
                await acknowledge(consumer, self.raw_message)
        await super().reject()

    async def _each(self, consumer: Consumer[Any], settle: Callable[[Message], Awaitable[object]]) -> None:
        """Settle each message; if that fails, the rest is delivered again, because nobody else settles it."""
        left = each_of(self.raw_message)
        try:
            while left:
                await settle(left[0])
                left = left[1:]
        except Exception:
            await have_again(consumer, left)
            raise


def each_of(raw_message: Raw) -> tuple[Message, ...]:
    """Return the messages of a batch, or the one message."""
    return raw_message if isinstance(raw_message, tuple) else (raw_message,)


async def acknowledge(consumer: Consumer[Any], raw_message: Raw) -> None:
    """Acknowledge a message, or all messages of a batch."""
    if isinstance(raw_message, tuple):
        await consumer.acknowledge_many(raw_message)
    else:
        await consumer.acknowledge(raw_message)


async def have_again(consumer: Consumer[Any], raw_message: Raw) -> None:
    """Have a message, or each of a batch, delivered again.

    One for which the subscription's backoff has no delay is delivered as one that came once.
    """
    with contextlib.suppress(pulsar.AlreadyClosed):
        for message in each_of(raw_message):
            try:
                await consumer.negative_acknowledge(message)
            except pulsar.AlreadyClosed:
                raise
            except Exception:  # noqa: BLE001  # the application's backoff; nobody else would have it come again
                _log.exception("%r is delivered again as one that came once", message.message_id())
                await consumer.negative_acknowledge(message.message_id())


class PulsarParser:
    """Reads messages, unless the application has a parser or a decoder of its own.

    Args:
        consumer: gives what acknowledges them; None for replies.
        rejection: what becomes of those that are rejected.
    """

    def __init__(
        self, consumer: Callable[[], Consumer[Any] | None], rejection: Rejection = Rejection.ACKNOWLEDGE
    ) -> None:
        self._consumer, self._rejection = consumer, rejection

    async def parse_message(self, raw: Message) -> PulsarMessage:
        """Read the properties of a message; its body stays bytes."""
        properties = raw.properties()
        return PulsarMessage(
            raw,
            consumer=self._consumer(),
            rejection=self._rejection,
            body=raw.data(),
            headers=dict(properties),
            reply_to=reply_topic_of(properties),
            content_type=content_type_of(properties),
            correlation_id=correlation_id_of(properties),
            message_id=raw.message_id().to_text(),
        )

    async def parse_batch(self, raws: tuple[Message, ...]) -> PulsarMessage:
        """Read the properties of several messages; what there is once is that of the first."""
        parsed = await self.parse_message(raws[0])
        return PulsarMessage(
            raws,
            consumer=self._consumer(),
            rejection=self._rejection,
            body=[raw.data() for raw in raws],
            headers=parsed.headers,
            batch_headers=[dict(raw.properties()) for raw in raws],
            reply_to=parsed.reply_to,
            content_type=parsed.content_type,
            correlation_id=parsed.correlation_id,
            message_id=f"{parsed.message_id} to {raws[-1].message_id().to_text()}",
        )

    async def decode_batch(self, message: StreamMessage[Any]) -> list[DecodedMessage]:
        """Decode each body, as `decode_message()`."""
        return [await self.decode_message(await self.parse_message(raw)) for raw in message.raw_message]

    async def decode_message(self, message: StreamMessage[Any]) -> DecodedMessage:
        """Decode a body by its content type; without one it is JSON, or else bytes.

        Returns:
            None for a message without a value.
        """
        raw = message.raw_message
        if isinstance(raw, Message) and raw.has_null_value():
            return None
        return decode_message(message)
