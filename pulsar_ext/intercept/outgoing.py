"""A message that is about to be sent, as interceptors see it (pure)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

__all__ = ["OutgoingMessage"]

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message with the arguments of its send. It does not change: an interceptor gives another one.

    Args:
        value: the message's value, before the schema encodes it.
        properties: and the others: as in `Producer.send()`, None for what was not given.
    """

    value: Any
    properties: Mapping[str, str] = field(default_factory=lambda: _NO_PROPERTIES)
    partition_key: str | None = None
    ordering_key: str | None = None
    sequence_id: int | None = None
    replication_clusters: list[str] | None = None
    disable_replication: bool | None = None
    event_timestamp: int | None = None
    deliver_at: int | None = None
    deliver_after: timedelta | None = None
    notes: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What interceptors want to find again with the outcome; it is not sent, and stays through `replace()`."""

    @classmethod
    def of(cls, value: Any, options: dict[str, Any]) -> Self:
        """Make it of a send's arguments.

        Args:
            value: the content.
            options: the other arguments by name.

        Raises:
            TypeError: as the send itself would, for an argument that it does not have.
        """
        properties = options.get("properties")
        if properties is None:
            properties = _NO_PROPERTIES
        elif isinstance(properties, dict):
            properties = MappingProxyType(dict(properties))  # the application may change its own
        return cls(value, **{**options, "properties": properties})

    def replace(self, **changes: Any) -> Self:
        """Give the same message with other fields."""
        if isinstance(properties := changes.get("properties"), dict):
            changes["properties"] = MappingProxyType(dict(properties))
        return dataclasses.replace(self, **changes)

    def with_properties(self, properties: Mapping[str, str]) -> Self:
        """Give the same message with more properties, which win over its own."""
        return self.replace(properties={**self.properties, **properties})

    def options(self) -> dict[str, Any]:
        """Give the arguments of its send by name, besides the value."""
        options = {name: getattr(self, name) for name in _OPTIONS}
        given = {name: value for name, value in options.items() if value is not None}
        if isinstance(self.properties, MappingProxyType):
            given["properties"] = dict(self.properties)
            if not self.properties:
                del given["properties"]
        return given


_OPTIONS = tuple(one.name for one in dataclasses.fields(OutgoingMessage) if one.name not in ("value", "notes"))
