"""Actions for a message whose handler raised: the values of `on_error` of `process()` (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.message import Message
from pulsar_ext.redelivery.letters import check_retry, reconsume_times
from pulsar_ext.redelivery.schedule import Backoff, check_backoff, delay_of


class HandlingConsumer(Protocol):
    """A consumer, whose methods return an awaitable if it is of the asyncio client; it receives only in `process()`."""

    def receive(self, timeout_millis: int, /) -> Any: ...  # noqa: D102
    def flush_acks(self) -> object: ...  # noqa: D102
    def _ask_about_batches_(self, answer: Callable[[bool | None], None], /) -> object: ...
    def acknowledge(self, message: Message, /) -> object: ...  # noqa: D102
    def negative_acknowledge(self, message: Message | MessageId, /) -> object: ...  # noqa: D102
    def reconsume_later(self, message: Message, delay_ms: int, properties: dict[str, str] | None, /) -> object: ...  # noqa: D102
    def send_dead_letter(self, message: Message, properties: dict[str, str] | None, /) -> object: ...  # noqa: D102


class _Action:
    __slots__ = ()
    needs_letters: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Acknowledge(_Action):
    """Acknowledge the message although its handler raised."""

    def carry_out(self, consumer: HandlingConsumer, message: Message) -> object:
        """Acknowledge the message; an async consumer returns an awaitable."""
        return consumer.acknowledge(message)


@dataclass(frozen=True, slots=True)
class Redeliver(_Action):
    """Redeliver the message by a negative acknowledgement, with the delay or the backoff of the subscription.

    With a `dead_letter_policy` the message finally becomes a dead letter.
    """

    def carry_out(self, consumer: HandlingConsumer, message: Message) -> object:
        """Negatively acknowledge the message; an async consumer returns an awaitable."""
        return consumer.negative_acknowledge(message)


@dataclass(frozen=True, slots=True)
class ReconsumeLater(_Action):
    """Send the message again as a retry letter, finally as a dead letter; see `Consumer.reconsume_later()`.

    Args:
        delay_ms: the delay in milliseconds, or a `MultiplierRedeliveryBackoff` or function that returns it for the
            number of earlier retries, 0 at first.
        properties: properties to add to the message's own.

    Raises:
        InvalidUse: an argument is invalid.
    """

    delay_ms: int | Backoff
    properties: dict[str, str] | None = None
    needs_letters = True

    def __post_init__(self) -> None:
        if callable(self.delay_ms):
            check_backoff("delay_ms", self.delay_ms)
        check_retry(0 if callable(self.delay_ms) else self.delay_ms, self.properties)

    def carry_out(self, consumer: HandlingConsumer, message: Message) -> object:
        """Reconsume the message later; an async consumer returns an awaitable."""
        delay = self.delay_ms
        if callable(delay):
            delay = round(delay_of(delay, reconsume_times(message.properties())) * 1000)
        return consumer.reconsume_later(message, delay, self.properties)


@dataclass(frozen=True, slots=True)
class DeadLetter(_Action):
    """Send the message to the dead letter topic at once; see `Consumer.send_dead_letter()`.

    Args:
        properties: properties to add to the message's own.

    Raises:
        InvalidUse: the properties are not a dict of str to str.
    """

    properties: dict[str, str] | None = None
    needs_letters = True

    def __post_init__(self) -> None:
        check_retry(0, self.properties)

    def carry_out(self, consumer: HandlingConsumer, message: Message) -> object:
        """Send a dead letter; an async consumer returns an awaitable."""
        return consumer.send_dead_letter(message, self.properties)


Action = Acknowledge | Redeliver | ReconsumeLater | DeadLetter


def check_on_error(on_error: object, *, has_letters: bool) -> None:
    """Check the `on_error` of `process()` or of a replier, before any message is received."""
    if isinstance(on_error, type) or not callable(on_error):
        check_action(on_error, has_letters=has_letters)


def check_action(action: object, *, has_letters: bool) -> Action:
    """Return an action after checking it."""
    if not isinstance(action, Action):
        names = "Acknowledge(), Redeliver(), ReconsumeLater(delay_ms), DeadLetter()"
        raise InvalidUse(f"on_error must be one of {names}, or a function that returns one, got {action!r}.")
    if action.needs_letters and not has_letters:
        raise InvalidUse(f"{action!r} needs a consumer that was opened with subscribe(…, enable_retry=True).")
    return action
