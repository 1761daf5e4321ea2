"""Calls from other threads into an event loop."""

from __future__ import annotations

import asyncio
import gc
import weakref

from pulsar_ext.asyncio._loop_bridge import running_loop_bridge


def test_a_closed_loop_is_not_kept_by_what_comes_for_it():
    """The outcome of a send that nobody awaits any more holds a future, which holds its loop: neither stays."""

    async def begin():
        return running_loop_bridge(), asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()
    bridge, future = loop.run_until_complete(begin())
    known = weakref.ref(loop)
    loop.close()
    bridge.call_soon(future.set_result, None)
    del loop, future
    gc.collect()
    assert known() is None
