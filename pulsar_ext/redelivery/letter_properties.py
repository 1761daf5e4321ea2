"""The names and the properties of retry letters and dead letters (pure).

Mirrors Java's `RetryMessageUtil`, and `getPropertiesMap()` and `doReconsumeLater()` of its `ConsumerImpl`, so that
letters go back and forth between clients of both kinds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "MAX_RECONSUME_TIMES",
    "REAL_TOPIC",
    "check_retry",
    "dead_letter_topic",
    "origin_properties",
    "reconsume_times",
    "retried",
    "retry_topic",
]

MAX_RECONSUME_TIMES: Final = 16
"""How many times a message is consumed later where no policy says it."""

REAL_TOPIC: Final = "REAL_TOPIC"
"""Property of a letter: the topic that its message was sent to first."""
_TIMES: Final = "RECONSUMETIMES"
_MOST_MILLIS: Final = timedelta.max // timedelta(milliseconds=1)
"""What a delay can say: 2.7 million years."""


def retry_topic(topic: str, subscription: str) -> str:
    """Name the topic that messages go to until they are consumed later."""
    return f"{TopicName.parse(topic)}-{subscription}-RETRY"


def dead_letter_topic(topic: str, subscription: str) -> str:
    """Name the topic that messages go to which were consumed later too often."""
    return f"{TopicName.parse(topic)}-{subscription}-DLQ"


def origin_properties(properties: Mapping[str, str], topic: str, message_id: str, subscription: str) -> dict[str, str]:
    """Give a letter's properties: the message's own, and where it came from first.

    Args:
        properties: the message's own; of a letter they say already where it came from.
        topic: of the message.
        message_id: in Java's form.
        subscription: of the consumer that sends the letter.
    """
    origin = {
        REAL_TOPIC: topic,
        "ORIGIN_MESSAGE_IDY_TIME": message_id,  # the name that older clients read
        "ORIGIN_MESSAGE_ID": message_id,
        "REAL_SUBSCRIPTION": subscription,
    }
    return origin | dict(properties)


def retried(properties: Mapping[str, str], delay_ms: int) -> tuple[dict[str, str], int]:
    """Count one more time that a message is consumed later.

    Args:
        properties: those of its letter, as far as they are known.
        delay_ms: after how many milliseconds.

    Returns:
        The letter's properties, and how many times it is by now.

    Raises:
        InvalidUse: the message says something else than a count in `RECONSUMETIMES`.
    """
    times = reconsume_times(properties) + 1
    return {**properties, _TIMES: str(times), "DELAY_TIME": str(delay_ms)}, times


def reconsume_times(properties: Mapping[str, str]) -> int:
    """Tell from a message's properties how often it was consumed later.

    Raises:
        InvalidUse: it says something else than a count in `RECONSUMETIMES`.
    """
    times = properties.get(_TIMES, "0")
    if not (times.isascii() and times.isdigit()):
        raise InvalidUse(f"The message's property {_TIMES} is {times!r}, which is no count. It stays unacknowledged.")
    return int(times)


def check_retry(delay_ms: Any, properties: Any) -> None:
    """Refuse what a letter cannot have.

    Raises:
        InvalidUse: the delay is not a number of milliseconds, or the properties are not texts by texts.
    """
    if type(delay_ms) is not int or not 0 <= delay_ms <= _MOST_MILLIS:
        raise InvalidUse(
            f"delay_ms is expected to be a whole number of milliseconds from 0 to {_MOST_MILLIS}, not {delay_ms!r}."
        )
    if properties is None:
        return
    if not isinstance(properties, dict) or not all(isinstance(one, str) for pair in properties.items() for one in pair):
        raise InvalidUse("properties is expected to be a dict whose keys and values are str, or None.")
