"""What a subscription's arguments mean for redelivery, and for letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulsar_ext.errors import InvalidUse
from pulsar_ext.message import received

from .backoff import check_backoff
from .dead_letters import DeadLetters
from .delays import OFFICIAL_DELAY_MILLIS, Delays
from .letter_encryption import LetterEncryption
from .letter_producers import LetterProducers
from .retry_letters import RetryLetters, RetryTopics
from .tracker import Redelivery

if TYPE_CHECKING:
    import pulsar

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ack.grouping import Acknowledger
    from pulsar_ext.receive.order import ReceiveOrder

    from .backoff import Backoff

__all__ = ["RedeliveryOptions", "take_over_redelivery"]

_OFFICIAL_TIMEOUT_MILLIS = 10_000
"""The shortest timeout; the official client refuses what is below."""


@dataclass(frozen=True, slots=True)
class RedeliveryOptions:
    """The arguments of `Client.subscribe()` that the official client does not have, about redelivery; see there.

    Raises:
        InvalidUse: one of them is not valid, or does not go without another.
    """

    enable_retry: bool = False
    retry_letter_topic: str | None = None
    negative_ack_redelivery_backoff: Backoff | None = None
    ack_timeout_redelivery_backoff: Backoff | None = None
    letter_encryption_key: str | None = None
    letter_crypto_key_reader: pulsar.CryptoKeyReader | None = None

    def __post_init__(self) -> None:
        if type(self.enable_retry) is not bool:
            raise InvalidUse(f"enable_retry is expected to be True or False, not {self.enable_retry!r}.")
        if self.retry_letter_topic is not None:
            if not isinstance(self.retry_letter_topic, str) or not self.retry_letter_topic:
                raise InvalidUse(f"retry_letter_topic is expected to be a topic, not {self.retry_letter_topic!r}.")
            if not self.enable_retry:
                raise InvalidUse("retry_letter_topic needs enable_retry=True: without it nothing goes there.")
        check_backoff("negative_ack_redelivery_backoff", self.negative_ack_redelivery_backoff)
        check_backoff("ack_timeout_redelivery_backoff", self.ack_timeout_redelivery_backoff)

    def retry_topics(self, named: dict[str, Any], *, splits: bool) -> RetryTopics | None:
        """Have a subscription read the retry topic as well, if it is wanted.

        Args:
            named: the official arguments by name; the topics are changed in them, and the policy where it counts.
            splits: whether the broker redelivers single entries.

        Raises:
            InvalidUse: what is subscribed to cannot have one.
        """
        if self.ack_timeout_redelivery_backoff is not None and not named["unacked_messages_timeout_ms"]:
            raise InvalidUse("ack_timeout_redelivery_backoff needs unacked_messages_timeout_ms, which it adds to.")
        if not self.enable_retry:
            return None
        topics = RetryTopics(
            named["topic"], named["subscription_name"], named["dead_letter_policy"], self.retry_letter_topic
        )
        named["topic"] = topics.topics
        if splits:
            named["dead_letter_policy"] = topics.policy
        return topics


def take_over_redelivery(
    context: ClientContext,
    named: dict[str, Any],
    acks: Acknowledger,
    order: ReceiveOrder,
    options: RedeliveryOptions,
    retry: RetryTopics | None,
    *,
    splits: bool,
) -> Redelivery:
    """Take from a subscription's arguments what the C++ client does not do right with redelivered messages.

    Args:
        context: of the consumer's client.
        named: the official arguments by name; what is taken over is changed in them.
        acks: the consumer's acknowledgements.
        order: of its messages.
        options: the arguments that the official client does not have.
        retry: what is read for retry letters.
        splits: whether the broker redelivers single entries (Shared and Key_Shared subscriptions).
    """
    delay, timeout, policy, subscription = (
        named[name]
        for name in (
            "negative_ack_redelivery_delay_ms",
            "unacked_messages_timeout_ms",
            "dead_letter_policy",
            "subscription_name",
        )
    )
    late = options.ack_timeout_redelivery_backoff
    delays = Delays(
        delay_ms=delay if isinstance(delay, int) else 0,  # the official client refuses what is not an int
        timeout_ms=timeout if isinstance(timeout, int) and (splits or timeout >= _OFFICIAL_TIMEOUT_MILLIS) else 0,
        nack_backoff=options.negative_ack_redelivery_backoff,
        late_backoff=late,
        splits=splits,
    )
    redelivery = Redelivery(context.inquiries, acks, order, delays=delays, resolver=context.resolver)
    acks.collector.chunked = redelivery.acknowledged
    if redelivery.screens and (not splits or (late is not None and timeout >= _OFFICIAL_TIMEOUT_MILLIS)):
        named["unacked_messages_timeout_ms"] = 0
    if isinstance(delay, int):
        named["negative_ack_redelivery_delay_ms"] = min(delay, OFFICIAL_DELAY_MILLIS)
    dies = splits and policy and policy.max_redeliver_count > 0
    encryption = LetterEncryption(
        options.letter_encryption_key, options.letter_crypto_key_reader, named["crypto_key_reader"]
    )
    if not (dies or retry):
        return redelivery
    producers = redelivery.letter_producers = LetterProducers(context, named["schema"], encryption)
    if retry is not None:
        redelivery.retry_letters = RetryLetters(producers, retry, subscription)
    if dies:
        named["dead_letter_policy"] = None
        redelivery.dead_letters = DeadLetters(
            producers,
            policy,
            subscription,
            acknowledge=lambda inner: acks.add_messages([received(inner)]),
            redeliver=redelivery.ask_for,
            cluster=lambda: order.cluster,
        )
    return redelivery
