"""The message that a FastStream handler gets: how it is acknowledged, refused and rejected."""

from __future__ import annotations

import contextlib
import logging
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

import pulsar
from faststream.message import StreamMessage

from pulsar_ext.message import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pulsar_ext.asyncio import Consumer

__all__ = ["PulsarMessage", "Raw", "Rejection", "each_of", "have_again"]

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
