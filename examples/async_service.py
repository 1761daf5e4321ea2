"""The Pulsar side of a web service: open with the application, publish in its handlers, close with it.

With FastAPI: `app = FastAPI(lifespan=lambda app: events(app.state, "pulsar://localhost:6650", "events"))`, and in a
handler `await request.app.state.publish(content, key)`. Nothing here depends on a framework.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pulsar_ext as pulsar
import pulsar_ext.asyncio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def events(state: Any, service_url: str, topic: str) -> AsyncIterator[None]:
    """Provide `state.publish` while the service runs; accepted messages are persisted before it ends."""
    async with pulsar.asyncio.Client(service_url) as client:
        # If the broker is slow, requests wait for queue space here, while the loop runs others.
        producer = await client.create_producer(topic, block_if_queue_full=True, batching_max_publish_delay_ms=2)

        async def publish(content: bytes, key: str | None = None) -> str:
            """Publish an event, and return its id as text once it is persisted."""
            message_id = await producer.send(content, partition_key=key)
            return message_id.to_text()

        state.publish = publish
        yield
