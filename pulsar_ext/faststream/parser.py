"""From what a consumer received to what FastStream hands on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream.message import StreamMessage, decode_message

from pulsar_ext.message import Message

from .headers import content_type_of, correlation_id_of, reply_topic_of
from .message import PulsarMessage, Rejection

if TYPE_CHECKING:
    from collections.abc import Callable

    from faststream._internal.basic_types import DecodedMessage

    from pulsar_ext.asyncio import Consumer

__all__ = ["PulsarParser"]


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
