"""Calls of other threads run in an event loop."""

from __future__ import annotations

import asyncio
import gc
import weakref

from pulsar_ext.asyncio._executor import running_loop_bridge


def test_pending_call_does_not_keep_a_closed_loop():
    """A pending call with a future, which refers to its loop, does not keep a closed loop alive."""

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
