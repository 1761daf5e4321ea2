"""The producers and consumers of requesters and repliers, for the blocking and the awaited client."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import pulsar

from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName

from .correlations import check_request

__all__ = ["ReplierOptions", "RequesterOptions"]

_REDELIVERY_MILLIS = 1_000


@dataclass(frozen=True, slots=True)
class RequesterOptions:
    """What a requester is made of; see `Client.requester()`.

    Raises:
        InvalidUse: one of them is not valid.
    """

    topic: str
    reply_topic: str | None
    subscription_name: str | None
    timeout_ms: int
    schema: Any
    reply_schema: Any
    producer_options: dict[str, Any]
    _name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        check_request(None, self.timeout_ms)
        TopicName.parse(self.topic)

    @property
    def replies(self) -> str:
        """The topic of the replies: the given one, or one of this requester's own."""
        return self.reply_topic or f"{TopicName.parse(self.topic)}-replies-{self._name}"

    def producing(self) -> dict[str, Any]:
        """Give the arguments of `create_producer()`."""
        return {"topic": self.topic, "schema": self.schema, **sending_whole(self.producer_options)}

    def consuming(self) -> dict[str, Any]:
        """Give the arguments of `subscribe()`."""
        return {
            "topic": self.replies,
            "subscription_name": self.subscription_name or f"requester-{self._name}",
            "schema": self.reply_schema,
        }


@dataclass(frozen=True, slots=True)
class ReplierOptions:
    """What a replier is made of; see `Client.replier()`.

    Raises:
        InvalidUse: one of them is not valid.
    """

    topic: str
    subscription_name: str
    schema: Any
    reply_schema: Any
    consumer_options: dict[str, Any]

    def __post_init__(self) -> None:
        TopicName.parse(self.topic)
        if "message_listener" in self.consumer_options:
            raise InvalidUse("A replier receives with its handler, and can have no listener.")

    def consuming(self) -> dict[str, Any]:
        """Give the arguments of `subscribe()`."""
        return {
            "topic": self.topic,
            "subscription_name": self.subscription_name,
            "schema": self.schema,
            "consumer_type": pulsar.ConsumerType.Shared,
            "initial_position": pulsar.InitialPosition.Earliest,
            "negative_ack_redelivery_delay_ms": _REDELIVERY_MILLIS,
            **self.consumer_options,
        }

    def producing(self, reply_topic: str) -> dict[str, Any]:
        """Give the arguments of `create_producer()`."""
        return {"topic": reply_topic, "schema": self.reply_schema, **sending_whole({})}


def sending_whole(options: dict[str, Any]) -> dict[str, Any]:
    """Have a producer send what is too large for one message in chunks, if it may, and refuse none for want of room.

    How many requests are under way is for those to limit who ask, and wait for the replies.
    """
    return {"chunking_enabled": not options.get("batching_enabled", False), "max_pending_messages": 0, **options}
