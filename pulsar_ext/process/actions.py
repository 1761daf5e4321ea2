"""What becomes of a message whose handler raised: what `on_error` of `process()` may be, or give (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pulsar_ext.redelivery.backoff import Backoff, check_backoff, delay_of
from pulsar_ext.redelivery.letter_properties import check_retry, reconsume_times

if TYPE_CHECKING:
    from pulsar_ext.message import Message

__all__ = ["ACTIONS", "Acknowledge", "Action", "DeadLetter", "ReconsumeLater", "Redeliver"]


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The message is done with all the same."""

    needs_letters: ClassVar[bool] = False

    def settle(self, consumer: Any, message: Message) -> Any:
        """Have the consumer do so; an awaited one gives what is to be awaited."""
        return consumer.acknowledge(message)


@dataclass(frozen=True, slots=True)
class Redeliver:
    """The message comes again: a negative acknowledgement, with the delay or the backoff of the subscription.

    With a `dead_letter_policy` the message is a dead letter in the end.
    """

    needs_letters: ClassVar[bool] = False

    def settle(self, consumer: Any, message: Message) -> Any:
        """Have the consumer do so; an awaited one gives what is to be awaited."""
        return consumer.negative_acknowledge(message)


@dataclass(frozen=True, slots=True)
class ReconsumeLater:
    """The message comes again as a retry letter, and is a dead letter in the end; see `Consumer.reconsume_later()`.

    Args:
        delay_ms: after how many milliseconds, or what gives them by how often the message was consumed later, 0 at
            first: a `MultiplierRedeliveryBackoff`, or a function.
        properties: are added to the message's own.

    Raises:
        InvalidUse: one of them is not valid.
    """

    delay_ms: int | Backoff
    properties: dict[str, str] | None = None
    needs_letters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if callable(self.delay_ms):
            check_backoff("delay_ms", self.delay_ms)
        check_retry(0 if callable(self.delay_ms) else self.delay_ms, self.properties)

    def settle(self, consumer: Any, message: Message) -> Any:
        """Have the consumer do so; an awaited one gives what is to be awaited."""
        delay = self.delay_ms
        if callable(delay):
            delay = round(delay_of(delay, reconsume_times(message.properties())) * 1000)
        return consumer.reconsume_later(message, delay, self.properties)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The message goes to the dead letter topic at once; see `Consumer.send_dead_letter()`.

    Args:
        properties: are added to the message's own.

    Raises:
        InvalidUse: they are not texts by texts.
    """

    properties: dict[str, str] | None = None
    needs_letters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_retry(0, self.properties)

    def settle(self, consumer: Any, message: Message) -> Any:
        """Have the consumer do so; an awaited one gives what is to be awaited."""
        return consumer.send_dead_letter(message, self.properties)


Action = Acknowledge | Redeliver | ReconsumeLater | DeadLetter
ACTIONS = (Acknowledge, Redeliver, ReconsumeLater, DeadLetter)
