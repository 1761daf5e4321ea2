"""Subscribers and publishers in AsyncAPI, which has no bindings of Pulsar's in FastStream."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from faststream._internal.configs import PublisherSpecificationConfig, SubscriberSpecificationConfig
from faststream._internal.endpoint.publisher import PublisherSpecification
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import BrokerSpec, Message, Operation, PublisherSpec, SubscriberSpec

from .config import PulsarBrokerConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faststream.specification.schema import Tag, TagDict

    from .topics import Topics

__all__ = [
    "PublisherDetails",
    "PulsarPublisherSpecification",
    "PulsarSubscriberSpecification",
    "SubscriberDetails",
    "broker_specification",
]

_DEFAULT_URL: Final = "pulsar://localhost:6650"


def broker_specification(
    url: str | None,
    service_url: Any,
    protocol: str | None,
    version: str | None,
    description: str | None,
    tags: Iterable[Tag | TagDict],
) -> BrokerSpec:
    """Describe a broker, by the URL that was given, or by the service URL without what stands before an `@`."""
    if url is None:
        url = service_url if isinstance(service_url, str) else os.environ.get("PULSAR_URL", _DEFAULT_URL)
        url = re.sub(r"(://|,)[^/@,]*@", r"\1", url.partition("?")[0])
    return BrokerSpec(
        url=[url],
        protocol=protocol or url.partition("://")[0],
        protocol_version=version,
        description=description,
        tags=tags,
        security=None,
    )


@dataclass(kw_only=True)
class SubscriberDetails(SubscriberSpecificationConfig):
    """What is written about a subscriber."""

    topics: Topics


@dataclass(kw_only=True)
class PublisherDetails(PublisherSpecificationConfig):
    """What is written about a publisher."""

    topic: str


class PulsarSubscriberSpecification(SubscriberSpecification[PulsarBrokerConfig, SubscriberDetails]):
    """Describes a subscriber."""

    @property
    def channel_labels(self) -> list[str]:
        """Its topics, each once, or its pattern."""
        return list(dict.fromkeys(self.config.topics.each(self._outer_config.prefix)))

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Return a channel for each topic."""
        payload, labels = resolve_payloads(self.get_payloads()), self.channel_labels
        keys = {self._channel_key(label, split=len(labels) > 1): label for label in labels}
        return {
            key: SubscriberSpec(
                address=label,
                description=self.description,
                operation=Operation(message=Message(title=f"{key}:Message", payload=payload), bindings=None),
                bindings=None,
            )
            for key, label in keys.items()
        }


class PulsarPublisherSpecification(PublisherSpecification[PulsarBrokerConfig, PublisherDetails]):
    """Describes a publisher."""

    @property
    def name(self) -> str:
        """Its title, or its topic."""
        return self.config.title_ or f"{self._topic}:Publisher"

    @property
    def _topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Give its channel."""
        message = Message(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads(), "Publisher"))
        return {
            self.name: PublisherSpec(
                address=self._topic,
                description=self.config.description_,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }
