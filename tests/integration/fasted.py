"""What the tests of the FastStream broker share: brokers of it, a loop that leaves nothing over, and waiting."""

from __future__ import annotations

import asyncio

import pulsar_ext as pulsar
from pulsar_ext.faststream import PulsarBroker

EARLIEST = pulsar.InitialPosition.Earliest
SHARED = pulsar.ConsumerType.Shared
SECONDS = 180


def faststream_broker(broker, service_url=None, **options):
    """Give a FastStream broker that connects to a broker, and logs nothing."""
    return PulsarBroker(
        service_url or broker.service_url, **{"logger": None, **broker.client_options(pulsar), **options}
    )


def run_to_end(steps):
    """Run a coroutine function; a task that is left over is a failure."""

    async def checked():
        result = await asyncio.wait_for(steps(), SECONDS)
        assert not asyncio.all_tasks() - {asyncio.current_task()}
        return result

    return asyncio.run(checked())


async def until(condition):
    """Wait until something is the case; what waits for it has a time limit of its own."""
    while not condition():  # noqa: ASYNC110  # whatever the condition is, nobody sets an event
        await asyncio.sleep(0.02)
