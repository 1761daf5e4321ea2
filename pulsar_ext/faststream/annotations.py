"""Annotations for the arguments of handlers: `async def handle(body: str, message: PulsarMessage)`."""

from __future__ import annotations

from typing import Annotated

from faststream import Context

from pulsar_ext.asyncio import Client as AsyncClient

from .broker import PulsarBroker as Broker
from .message import PulsarMessage as Parsed

PulsarMessage = Annotated[Parsed, Context("message")]
"""Handled message: its headers, its key, and `ack()`, `nack()` and `reject()`."""

PulsarBroker = Annotated[Broker, Context("broker")]
"""Broker that the handler belongs to."""

Client = Annotated[AsyncClient, Context("broker._connection")]
"""Client of the broker, a `pulsar_ext.asyncio.Client`."""
