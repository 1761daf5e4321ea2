"""What a broker, its subscribers and its publishers were asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import BrokerConfig, PublisherUsecaseConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream.exceptions import IncorrectState
from faststream.middlewares import AckPolicy

from pulsar_ext.request.envelope import in_same_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pulsar_ext.asyncio import Client

    from .topics import Topics

__all__ = ["PulsarBrokerConfig", "PulsarPublisherConfig", "PulsarSubscriberConfig"]


@dataclass(kw_only=True)
class PulsarBrokerConfig(BrokerConfig):
    """Of a broker, or of a router, which knows less."""

    may_reply_to: Callable[[str, str], bool] = in_same_namespace
    opened: Client | None = field(default=None, init=False, repr=False)

    @property
    def client(self) -> Client:
        """The client of a broker that is connected."""
        if self.opened is None:
            raise IncorrectState("The broker is not connected: call `await broker.connect()` or `start()` first.")
        return self.opened


@dataclass(kw_only=True)
class PulsarSubscriberConfig(SubscriberUsecaseConfig):
    """Of a subscriber."""

    _outer_config: PulsarBrokerConfig  # pyright: ignore[reportIncompatibleVariableOverride]  # as FastStream's
    topics: Topics
    subscription: str
    subscription_type: Any
    max_workers: int
    max_records: int | None
    """How many messages a handler gets at once; None for one, which is no list."""
    options: Mapping[str, Any]

    @property
    def ack_policy(self) -> AckPolicy:
        """The subscriber's policy, or its router's or broker's; otherwise what fails comes again."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class PulsarPublisherConfig(PublisherUsecaseConfig):
    """Of a publisher."""

    _outer_config: PulsarBrokerConfig  # pyright: ignore[reportIncompatibleVariableOverride]  # as FastStream's
    topic: str
    key: str | None
    headers: Mapping[str, str]
    reply_to: str
    options: Mapping[str, Any] | None
