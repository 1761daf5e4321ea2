"""Producers and requesters of a FastStream broker: opened once, closed when idle, opened again when they failed."""

from __future__ import annotations

import asyncio

import pytest

import pulsar_ext as pulsar
from pulsar_ext.faststream.sender import Outlets


class Outlet:
    """Something that can be closed."""

    def __init__(self):
        self.closed = False

    async def close(self):
        if self.closed:
            raise pulsar.AlreadyClosed("Pulsar error: AlreadyClosed")
        self.closed = True


class Opener:
    """Opens them, as many as it is asked for, but for the first ones, which fail."""

    def __init__(self, failures=0):
        self.opened, self._failures = [], failures

    async def __call__(self):
        await asyncio.sleep(0)
        if self._failures:
            self._failures -= 1
            raise pulsar.ConnectError("Pulsar error: ConnectError")
        self.opened.append(Outlet())
        return self.opened[-1]


def test_it_is_opened_once_for_all_who_wait():
    """Many tasks that ask at once get the same one; another name has another one; a close closes both."""

    async def steps():
        outlets, opener = Outlets(lambda outlet: outlet.closed), Opener()

        async def use(name):
            async with outlets.lent(name, opener) as outlet:
                return outlet

        used = await asyncio.gather(*(use(number % 2) for number in range(20)))
        assert used[::2] == [used[0]] * 10
        assert used[1::2] == [used[1]] * 10
        assert len(opener.opened) == 2
        await outlets.close()
        assert all(outlet.closed for outlet in opener.opened)

    asyncio.run(steps())


def test_what_failed_or_closed_is_opened_again():
    """Whoever waits for one that cannot be opened hears it; the next one tries again, also if it closed by itself."""

    async def steps():
        outlets, opener = Outlets(lambda outlet: outlet.closed), Opener(failures=1)
        with pytest.raises(pulsar.ConnectError):
            async with outlets.lent("t", opener):
                pass
        async with outlets.lent("t", opener) as first:
            pass
        first.closed = True
        async with outlets.lent("t", opener) as second:
            assert second is not first
        second.closed = True
        await outlets.close()  # one that has closed by itself is no error

    asyncio.run(steps())


def test_idle_ones_are_closed_and_used_ones_are_not():
    """After a minute without use one is closed by the next use of another one, however long a third one is in use."""
    now = 0.0

    async def steps():
        nonlocal now
        outlets, opener = Outlets(lambda outlet: outlet.closed, clock=lambda: now), Opener()
        async with outlets.lent("used", opener) as used:
            async with outlets.lent("idle", opener) as idle:
                pass
            now = 61.0
            async with outlets.lent("other", opener) as other:
                assert (used.closed, idle.closed, other.closed) == (False, True, False)
            async with outlets.lent("idle", opener) as again:
                assert again is not idle
        await outlets.close()

    asyncio.run(steps())


def test_a_cancelled_use_leaves_the_opening_to_others():
    """Whoever waits with the one that is cancelled gets what is being opened."""

    async def steps():
        outlets, opener = Outlets(lambda outlet: outlet.closed), Opener()

        async def use():
            async with outlets.lent("t", opener) as outlet:
                return outlet

        one, other = asyncio.create_task(use()), asyncio.create_task(use())
        await asyncio.sleep(0)
        one.cancel()
        assert await other is opener.opened[0]
        assert len(opener.opened) == 1
        await outlets.close()

    asyncio.run(steps())
