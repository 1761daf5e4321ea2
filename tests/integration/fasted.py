"""Shared steps of the FastStream broker's tests: brokers, a loop that checks for leftover tasks, and waiting."""

from __future__ import annotations

import asyncio

import pulsar_ext as pulsar
from pulsar_ext.faststream import PulsarBroker

EARLIEST = pulsar.InitialPosition.Earliest
SHARED = pulsar.ConsumerType.Shared
SECONDS = 180


def faststream_broker(broker, service_url=None, **options):
    """Return a FastStream broker that connects to a broker and logs nothing."""
    return PulsarBroker(
        service_url or broker.service_url, **{"logger": None, **broker.client_options(pulsar), **options}
    )


def run_to_end(steps):
    """Run a coroutine function; fail if a task is left over."""

    async def checked():
        result = await asyncio.wait_for(steps(), SECONDS)
        assert not asyncio.all_tasks() - {asyncio.current_task()}
        return result

    return asyncio.run(checked())


async def until(condition):
    """Wait until a condition is true; the caller has a time limit."""
    while not condition():  # noqa: ASYNC110  # a condition has no event
        await asyncio.sleep(0.02)
