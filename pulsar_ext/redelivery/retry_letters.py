"""Retry letters: a message that is to be consumed later goes to a topic of its own, and comes from there again.

The consumer reads that topic along with its own. The letter is persisted before the message is acknowledged: if the
process dies between the two, the message comes twice, and is never lost. Mirrors `reconsumeLater` of Java's
`ConsumerImpl`, and what its `ConsumerBuilderImpl` does with `enableRetry(true)`; the official client has neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext.ack.acknowledging import Acknowledging
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import from_inner
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.receive.many import ReceivingMany
from pulsar_ext.schema.typed import T

from .letter_properties import (
    MAX_RECONSUME_TIMES,
    check_retry,
    dead_letter_topic,
    origin_properties,
    retried,
    retry_topic,
)

if TYPE_CHECKING:
    from pulsar_ext.message import Message

    from .letter_producers import LetterProducers

__all__ = ["Reconsuming", "RetryLetters", "RetryTopics"]


class RetryTopics:
    """What a consumer with `enable_retry` reads, and where its letters go.

    Args:
        topic: what `subscribe()` was given.
        subscription: its name.
        policy: the official `ConsumerDeadLetterPolicy`, or None for the default one.
        retry_letter_topic: None for the default one.

    Raises:
        InvalidUse: the topic is a pattern, which names no topic of its own; nothing was opened.
    """

    def __init__(self, topic: Any, subscription: str, policy: Any, retry_letter_topic: str | None) -> None:
        given = [topic] if isinstance(topic, str) else topic
        if not isinstance(given, list) or not given:
            raise InvalidUse("enable_retry needs a topic or a list of topics: a pattern has no name for a retry topic.")
        names = {str(TopicName.parse(one)) for one in given}
        first = min(given)  # Java's consumer keeps the topics sorted
        self.retry = retry_letter_topic or retry_topic(first, subscription)
        self.topics: list[str] = given if str(TopicName.parse(self.retry)) in names else [*given, self.retry]
        """What the consumer reads."""
        known = policy or pulsar.ConsumerDeadLetterPolicy(MAX_RECONSUME_TIMES)
        self.policy = pulsar.ConsumerDeadLetterPolicy(
            known.max_redeliver_count,
            known.dead_letter_topic or dead_letter_topic(first, subscription),
            known.initial_subscription_name,
        )
        """Where what was consumed later too often goes, and after how many times."""


class RetryLetters:
    """The retry letters of one consumer.

    Args:
        producers: what they are sent with.
        topics: where they go.
        subscription: the consumer's.
    """

    def __init__(self, producers: LetterProducers, topics: RetryTopics, subscription: str) -> None:
        self._producers, self._topics, self._subscription = producers, topics, subscription
        self._read = {_parent(topic) for topic in topics.topics}

    def send(self, inner: Any, delay_ms: int, properties: dict[str, str] | None) -> None:
        """Send a C++ message to the retry topic, or to the dead letter topic if it was there often enough.

        Raises:
            InvalidUse: it cannot be counted, or is of a topic that the consumer does not read; nothing was sent.
            pulsar.PulsarException: the letter was not persisted, or nobody knows whether it was.
        """
        letter, times = retried(self._properties(inner, properties), delay_ms)
        if times > self._topics.policy.max_redeliver_count:
            self._send_dead(inner, letter)
        else:
            self._producers.send(self._topics.retry, inner, letter, delay_ms=delay_ms)

    def send_dead(self, inner: Any, properties: dict[str, str] | None) -> None:
        """Send a C++ message to the dead letter topic, however often it came; raises as `send()`."""
        self._send_dead(inner, self._properties(inner, properties))

    def _send_dead(self, inner: Any, letter: dict[str, str]) -> None:
        policy = self._topics.policy
        self._producers.send_dead(
            policy.dead_letter_topic, inner, letter, self._subscription, policy.initial_subscription_name
        )

    def _properties(self, inner: Any, properties: dict[str, str] | None) -> dict[str, str]:
        """Give a letter's properties: the message's own, where it came from, and those that win over them."""
        topic = _parent(inner.topic_name())
        if topic not in self._read:
            raise InvalidUse(
                f"The message is of {topic}, which this consumer does not read: reconsume it with the consumer that "
                "received it. Nothing was sent."
            )
        message_id = from_inner(inner.message_id()).to_text()
        return {**origin_properties(inner.properties(), topic, message_id, self._subscription), **(properties or {})}


class Reconsuming(Acknowledging, ReceivingMany[T]):
    """What a `Consumer` does with messages that are to be consumed later."""

    __slots__ = ()
    _redelivery: Any

    def reconsume_later(self, message: Any, delay_ms: int, properties: dict[str, str] | None = None) -> None:
        """Have one message come again after a delay, as a letter in the retry topic, and acknowledge it.

        It returns when the letter is persisted. A message that was consumed later `max_redeliver_count` times goes to
        the dead letter topic instead. After an error the message is not acknowledged, and may come twice. Java's
        `reconsumeLater`.

        Args:
            message: a received message; of a batch that one message, of a chunked one all of it.
            delay_ms: after how many milliseconds it comes again; on an Exclusive or Failover subscription the broker
                takes no notice of it.
            properties: are added to the message's own, and win over them.

        Raises:
            InvalidUse: the consumer was opened without `enable_retry`, the delay or the properties are not valid, or
                this is a callback of the client's; nothing was sent.
            pulsar.PulsarException: the letter was not persisted, or nobody knows whether it was.
        """
        ours, letters = self._lettered("reconsume_later", message, delay_ms, properties)
        letters.send(ours.inner, delay_ms, properties)
        self.acknowledge(ours)

    def reconsume_later_cumulative(self, message: Any, delay_ms: int, properties: dict[str, str] | None = None) -> None:
        """Have one message come again as `reconsume_later()`, and acknowledge every message up to it and it too.

        Of several topics those of the message's own topic, or partition. Java's `reconsumeLaterCumulative`.

        Raises:
            InvalidUse, pulsar.PulsarException: as `reconsume_later()`.
            pulsar.CumulativeAcknowledgementNotAllowedError: on a Shared or Key_Shared subscription; nothing was sent.
        """
        if self._splits:
            self.acknowledge_cumulative(message)  # refuses, before anything is sent
        ours, letters = self._lettered("reconsume_later_cumulative", message, delay_ms, properties)
        letters.send(ours.inner, delay_ms, properties)
        self.acknowledge_cumulative(ours)

    def send_dead_letter(self, message: Any, properties: dict[str, str] | None = None) -> None:
        """Have one message go to the dead letter topic at once, and acknowledge it: to try again would not help.

        It returns when the letter is persisted. After an error the message is not acknowledged, and may come twice.

        Args:
            message: a received message; of a batch that one message, of a chunked one all of it.
            properties: are added to the message's own, and win over them.

        Raises:
            InvalidUse, pulsar.PulsarException: as `reconsume_later()`.
        """
        ours, letters = self._lettered("send_dead_letter", message, 0, properties)
        letters.send_dead(ours.inner, properties)
        self.acknowledge(ours)

    @property
    def _has_letters_(self) -> bool:
        """Whether it was opened with `enable_retry=True`."""
        return self._redelivery.retry_letters is not None

    def _lettered(
        self, method: str, message: Any, delay_ms: int, properties: dict[str, str] | None
    ) -> tuple[Message, RetryLetters]:
        """Give a message as one of this consumer's, and what sends its letter, if it can have one."""
        self._context.callbacks.refuse(method)
        self._refuse_closed()
        letters: RetryLetters | None = self._redelivery.retry_letters
        if letters is None:
            raise InvalidUse(f"{method}() needs a consumer that was opened with subscribe(…, enable_retry=True).")
        if not isinstance(message, InnerMessage | pulsar.Message):
            raise InvalidUse(f"{method}() takes a received message, not {type(message).__name__}: an id has no data.")
        check_retry(delay_ms, properties)
        return self._own(message), letters


def _parent(topic: str) -> str:
    return str(TopicName.parse(topic).parent)
