"""What a handler may ask for by an annotation: `async def handle(body: str, message: PulsarMessage)`."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated

from faststream import Context
from faststream._internal.configs import UnderlyingDriverAnnotation, UnderlyingDriverAnnotations

from pulsar_ext.asyncio import Client as AsyncClient

from .message import PulsarMessage as Parsed

__all__ = ["DRIVER_ANNOTATIONS", "Client", "PulsarMessage"]

PulsarMessage = Annotated[Parsed, Context("message")]
"""The message that is handled: its headers, its key, and `ack()`, `nack()` and `reject()`."""

Client = Annotated[AsyncClient, Context("broker._connection")]
"""The broker's client, a `pulsar_ext.asyncio.Client`."""

DRIVER_ANNOTATIONS: UnderlyingDriverAnnotations = MappingProxyType(
    {
        AsyncClient: UnderlyingDriverAnnotation(type_hint=Client, module=__name__, name="Client"),
        Parsed: UnderlyingDriverAnnotation(type_hint=PulsarMessage, module=__name__, name="PulsarMessage"),
    }
)
"""What FastStream names to somebody who annotates with a bare class."""
