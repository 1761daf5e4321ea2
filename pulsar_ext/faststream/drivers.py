"""The classes that a handler may not be annotated with; FastStream names what it wants instead, see `annotations`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from faststream import Context
from faststream._internal.configs import UnderlyingDriverAnnotation

from pulsar_ext.asyncio import Client

from .message import PulsarMessage

if TYPE_CHECKING:
    from faststream._internal.configs import UnderlyingDriverAnnotations

__all__ = ["driver_annotations"]


def driver_annotations(broker: Any) -> UnderlyingDriverAnnotations:
    """Return the annotation to use instead of each bare class.

    Args:
        broker: the class of the broker.
    """
    rows = (
        (Client, "Client", "broker._connection"),
        (PulsarMessage, "PulsarMessage", "message"),
        (broker, "PulsarBroker", "broker"),
    )
    module = f"{__package__}.annotations"
    return {
        kind: UnderlyingDriverAnnotation(type_hint=Annotated[kind, Context(path)], module=module, name=name)
        for kind, name, path in rows
    }
