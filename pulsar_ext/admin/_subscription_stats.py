"""What the admin API says of one subscription, as a value (pure); see `_models.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

__all__ = ["SubscriptionStats"]

_Json = Mapping[str, Any]
_UNCOUNTED = frozenset({"Exclusive", "Failover"})
"""On subscriptions of these types the broker does not count what a consumer has and did not acknowledge."""


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """One subscription of a topic's statistics.

    `backlog_entries` counts entries, not messages, whatever the broker's own name `msgBacklog` says.
    """

    type: str
    backlog_entries: int
    unacked_messages: int
    durable: bool
    consumers: tuple[str, ...]
    properties: Mapping[str, str]
    raw: _Json = field(repr=False, compare=False)

    @property
    def sessions(self) -> frozenset[tuple[str, str]]:
        """Of each consumer the address that the broker has it at, and since when."""
        consumers = self.raw.get("consumers") or ()
        return frozenset((one.get("address", ""), one.get("connectedSince", "")) for one in consumers)

    @property
    def held_messages(self) -> int:
        """How many messages its consumers have and did not acknowledge, without those of consumers that are gone."""
        return sum(one.get("unackedMessages", 0) for one in self.raw.get("consumers") or ())

    @property
    def most_held(self) -> int:
        """How many messages its consumers can have at most: on Exclusive and Failover subscriptions nobody counts."""
        if self.type in _UNCOUNTED:
            return sum(one.get("msgOutCounter", 0) for one in self.raw.get("consumers") or ())
        return self.held_messages

    @property
    def delivered_messages(self) -> int:
        """How many messages were delivered on it so far."""
        count: int = self.raw.get("msgOutCounter", 0)
        return count

    @property
    def delayed_messages(self) -> int:
        """How many messages wait for their time."""
        count: int = self.raw.get("msgDelayed", 0)
        return count

    @property
    def active_consumer(self) -> str | None:
        """The name of the consumer of a Failover subscription, or of an Exclusive one, that messages go to."""
        return self.raw.get("activeConsumerName")

    @property
    def takes_more(self) -> bool:
        """Whether each of its consumers that messages go to takes more."""
        active = self.active_consumer if self.type in _UNCOUNTED else None
        return all(
            one.get("availablePermits", 0) > 0 and not one.get("blockedConsumerOnUnackedMsgs")
            for one in self.raw.get("consumers") or ()
            if active is None or one.get("consumerName") == active
        )

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read one value of `subscriptions` in the statistics."""
        return cls(
            type=data.get("type", ""),
            backlog_entries=data.get("msgBacklog", 0),
            unacked_messages=data.get("unackedMessages", 0),
            durable=data.get("durable", data.get("isDurable", True)),
            consumers=tuple(consumer.get("consumerName", "") for consumer in data.get("consumers", ())),
            properties=dict(data.get("subscriptionProperties") or {}),
            raw=data,
        )
