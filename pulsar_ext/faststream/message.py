"""Message of a FastStream handler, its creation from a received message, and its headers as properties.

The names of properties are those of FastStream's other brokers. Properties of a `Requester` of this library are
recognized too, so that a handler can reply to it: see docs/request.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, TypeAlias

from faststream._internal.basic_types import DecodedMessage
from faststream.message import StreamMessage, decode_message
from faststream.response import PublishCommand

from pulsar_ext.asyncio import Consumer
from pulsar_ext.asyncio._processing import drive
from pulsar_ext.errors import InvalidUse
from pulsar_ext.message import Message
from pulsar_ext.process import redelivery_steps
from pulsar_ext.request import CORRELATION, REPLY_TOPIC

_CONTENT_TYPE: Final = "content-type"
_CORRELATION_ID: Final = "correlation_id"
_REPLY_TO: Final = "reply_to"


def properties_of(cmd: PublishCommand, content_type: str | None) -> dict[str, str]:
    """Return the properties of a message to send; the application's headers take precedence."""
    ours = {_CONTENT_TYPE: content_type, _CORRELATION_ID: cmd.correlation_id, _REPLY_TO: cmd.reply_to}
    properties = {name: value for name, value in ours.items() if value}
    for name, value in cmd.headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise InvalidUse(
                f"The header {name!r} is of type {type(value).__name__}. Headers are Pulsar's properties, which are "
                "text: convert it to a str. Nothing was sent."
            )
        properties[name] = value
    return properties


Raw: TypeAlias = Message | tuple[Message, ...]
"""Input of a handler: a message, or the messages of a batch."""


class Rejection(Enum):
    """Action for a rejected message."""

    ACKNOWLEDGE = "there is no dead letter topic"
    DEAD_LETTER = "sent to the dead letter topic"
    REDELIVER = "redelivered until the redelivery count makes it a dead letter"


class PulsarMessage(StreamMessage[Raw]):
    """Message of a subscriber, or reply to a request; `raw_message` is the `pulsar_ext.Message`.

    For a subscriber with `batch=True`, `raw_message` is a tuple of messages, to which each call applies together.
    Only the first call of `ack()`, `nack()` or `reject()` has an effect.
    """

    def __init__(
        self,
        raw_message: Raw,
        *,
        consumer: Consumer[bytes] | None = None,
        rejection: Rejection = Rejection.ACKNOWLEDGE,
        **parsed: Any,
    ) -> None:
        super().__init__(raw_message, **parsed)
        self._consumer, self._rejection = consumer, rejection

    @property
    def topic(self) -> str:
        """Full name of the topic or partition; of a batch, that of the first message."""
        return str(each_of(self.raw_message)[0].topic_name())

    @property
    def key(self) -> str | None:
        """Pulsar's `partition_key`, of a batch that of the first message; None without a key."""
        return each_of(self.raw_message)[0].partition_key() or None

    async def ack(self) -> None:
        """Acknowledge the message, which is then not redelivered."""
        if self.committed is None and self._consumer is not None:
            await acknowledge(self._consumer, self.raw_message)
        await super().ack()

    async def nack(self, delay_ms: int | None = None, properties: dict[str, str] | None = None) -> None:
        """Request the message's redelivery.

        Args:
            delay_ms: delay in milliseconds, as a retry letter, for which the subscriber needs `enable_retry`. With
                None, the subscriber's `negative_ack_redelivery_delay_ms` or its backoff applies.
            properties: more properties of the retry letter; only with `delay_ms`.

        Raises:
            InvalidUse, pulsar.PulsarException: see `Consumer.reconsume_later()`, for instance without retry letters;
                the message is redelivered without a letter.
        """
        consumer = self._consumer
        if self.committed is None and consumer is not None:
            if delay_ms is None:
                await redeliver(consumer, self.raw_message)
            else:
                await self._each(consumer, lambda raw: consumer.reconsume_later(raw, delay_ms, properties))
        await super().nack()

    async def reject(self, properties: dict[str, str] | None = None) -> None:
        """Send the message to the dead letter topic, or acknowledge it if there is no such topic.

        A subscriber to a pattern that has a dead letter policy cannot send letters itself. Its messages are redelivered
        until the policy makes them dead letters.

        Args:
            properties: more properties of the dead letter, such as the reason.

        Raises:
            InvalidUse, pulsar.PulsarException: see `Consumer.send_dead_letter()`; the message is redelivered.
        """
        consumer = self._consumer
        if self.committed is None and consumer is not None:
            if self._rejection is Rejection.DEAD_LETTER:
                await self._each(consumer, lambda raw: consumer.send_dead_letter(raw, properties))
            elif self._rejection is Rejection.REDELIVER:
                await redeliver(consumer, self.raw_message)
            else:
                await acknowledge(consumer, self.raw_message)
        await super().reject()

    async def _each(self, consumer: Consumer[bytes], send: Callable[[Message], Awaitable[object]]) -> None:
        """Apply `send` to each message; if that fails, the remaining messages are redelivered."""
        remaining = each_of(self.raw_message)
        try:
            while remaining:
                await send(remaining[0])
                remaining = remaining[1:]
        except Exception:
            await redeliver(consumer, remaining)
            raise


def each_of(raw_message: Raw) -> tuple[Message, ...]:
    """Return the messages of a batch, or the single message."""
    return raw_message if isinstance(raw_message, tuple) else (raw_message,)


async def acknowledge(consumer: Consumer[bytes], raw_message: Raw) -> None:
    """Acknowledge a message, or all messages of a batch."""
    if isinstance(raw_message, tuple):
        await consumer.acknowledge_many(raw_message)
    else:
        await consumer.acknowledge(raw_message)


async def redeliver(consumer: Consumer[bytes], raw_message: Raw) -> None:
    """Request redelivery of each message; one for which the backoff raises gets the delay of a first delivery."""
    for message in each_of(raw_message):
        await drive(redelivery_steps(consumer, message))


class PulsarParser:
    """Parser of messages; `consumer` returns the one that acknowledges them, None for replies."""

    def __init__(
        self, consumer: Callable[[], Consumer[bytes] | None], rejection: Rejection = Rejection.ACKNOWLEDGE
    ) -> None:
        self._consumer, self._rejection = consumer, rejection

    async def parse_message(self, raw: Message) -> PulsarMessage:
        """Parse the properties of a message; its body stays bytes."""
        properties = raw.properties()
        return PulsarMessage(
            raw,
            consumer=self._consumer(),
            rejection=self._rejection,
            body=raw.data(),
            headers=dict(properties),
            reply_to=properties.get(_REPLY_TO) or properties.get(REPLY_TOPIC, ""),
            content_type=properties.get(_CONTENT_TYPE),
            correlation_id=properties.get(_CORRELATION_ID) or properties.get(CORRELATION),
            message_id=raw.message_id().to_text(),
        )

    async def parse_batch(self, raws: tuple[Message, ...]) -> PulsarMessage:
        """Parse the properties of several messages; single fields are those of the first."""
        parsed = await self.parse_message(raws[0])
        parsed.raw_message, parsed.body = raws, [raw.data() for raw in raws]
        parsed.batch_headers = [dict(raw.properties()) for raw in raws]
        parsed.message_id = f"{parsed.message_id} to {raws[-1].message_id().to_text()}"
        return parsed

    async def decode_batch(self, message: StreamMessage[Raw]) -> list[DecodedMessage]:
        """Decode each body, as `decode_message()`."""
        return [await self.decode_message(await self.parse_message(raw)) for raw in each_of(message.raw_message)]

    async def decode_message(self, message: StreamMessage[Raw]) -> DecodedMessage:
        """Decode a body by its content type; without one as JSON, or else as bytes; None without a value."""
        raw = message.raw_message
        if isinstance(raw, Message) and raw.has_null_value():
            return None
        return decode_message(message)
