"""The official asyncio client, whose sends give whole ids; everything else in it is the official one."""

from __future__ import annotations

from typing import Any

import pulsar.asyncio as _official_asyncio

from ._official import AsyncProducerDoor
from .message_id import MessageId, from_inner

__all__ = ["Client", "Consumer", "Producer", "PulsarException", "Reader"]

Consumer = _official_asyncio.Consumer
Reader = _official_asyncio.Reader
PulsarException = _official_asyncio.PulsarException


class Producer(AsyncProducerDoor):
    """A `pulsar.asyncio.Producer` whose `send` gives a `ChunkMessageId` for a chunked message."""

    async def send(self, *args: Any, **kwargs: Any) -> MessageId:
        """Publish a message and wait until it is persisted; the arguments are the official ones."""
        return from_inner(await self.send_keeping_id(*args, **kwargs))


class Client(_official_asyncio.Client):  # type: ignore[misc]  # the official client ships no types
    """A `pulsar.asyncio.Client` whose producers are those of `pulsar_ext.asyncio`."""

    async def create_producer(self, *args: Any, **kwargs: Any) -> Producer:
        """Create a producer; the arguments are the official ones."""
        return Producer(await super().create_producer(*args, **kwargs))


def __getattr__(name: str) -> Any:
    """Resolve every other name of the official module."""
    return getattr(_official_asyncio, name)
