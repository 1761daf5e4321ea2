"""Pool of producers and requesters: opened once, closed when idle, reopened after a failure."""

from __future__ import annotations

import asyncio

import pytest

import pulsar_ext as pulsar
from pulsar_ext.asyncio._pool import EndpointPool


class Endpoint:
    """Endpoint that can be closed."""

    def __init__(self):
        self.closed = False

    async def close(self):
        if self.closed:
            raise pulsar.AlreadyClosed("Pulsar error: AlreadyClosed")
        self.closed = True


class Opener:
    """Opener of endpoints, whose first calls may fail."""

    def __init__(self, failures=0):
        self.opened, self._failures = [], failures

    async def __call__(self):
        await asyncio.sleep(0)
        if self._failures:
            self._failures -= 1
            raise pulsar.ConnectError("Pulsar error: ConnectError")
        self.opened.append(Endpoint())
        return self.opened[-1]


def test_endpoint_is_opened_once_for_all_waiting_tasks():
    """Concurrent uses of a name share one endpoint; another name has another one; `close()` closes both for good."""

    async def steps():
        pool, opener = EndpointPool(lambda endpoint: endpoint.closed), Opener()

        async def use(name):
            async with pool.use(name, opener) as endpoint:
                return endpoint

        used = await asyncio.gather(*(use(number % 2) for number in range(20)))
        assert used[::2] == [used[0]] * 10
        assert used[1::2] == [used[1]] * 10
        assert len(opener.opened) == 2
        await pool.close()
        assert all(endpoint.closed for endpoint in opener.opened)
        with pytest.raises(pulsar.AlreadyClosed):
            await use(0)

    asyncio.run(steps())


def test_failed_or_closed_endpoint_is_reopened():
    """A failed opening raises for its waiting tasks; the next use opens it again, also if it closed by itself."""

    async def steps():
        pool, opener = EndpointPool(lambda endpoint: endpoint.closed), Opener(failures=1)
        with pytest.raises(pulsar.ConnectError):
            async with pool.use("t", opener):
                pass
        async with pool.use("t", opener) as first:
            pass
        first.closed = True
        async with pool.use("t", opener) as second:
            assert second is not first
        second.closed = True
        await pool.close()  # an endpoint that closed by itself raises nothing

    asyncio.run(steps())


def test_idle_endpoints_are_closed():
    """An endpoint idle for a minute is closed by the next use of another one; one in use stays open."""
    now = 0.0

    async def steps():
        nonlocal now
        pool, opener = EndpointPool(lambda endpoint: endpoint.closed, clock=lambda: now), Opener()
        async with pool.use("used", opener) as used:
            async with pool.use("idle", opener) as idle:
                pass
            now = 61.0
            async with pool.use("other", opener) as other:
                assert (used.closed, idle.closed, other.closed) == (False, True, False)
            async with pool.use("idle", opener) as again:
                assert again is not idle
        await pool.close()

    asyncio.run(steps())


def test_cancelled_use_keeps_the_opening():
    """A cancelled use does not cancel the opening for other waiting tasks."""

    async def steps():
        pool, opener = EndpointPool(lambda endpoint: endpoint.closed), Opener()

        async def use():
            async with pool.use("t", opener) as endpoint:
                return endpoint

        one, other = asyncio.create_task(use()), asyncio.create_task(use())
        await asyncio.sleep(0)
        one.cancel()
        assert await other is opener.opened[0]
        assert len(opener.opened) == 1
        await pool.close()

    asyncio.run(steps())
