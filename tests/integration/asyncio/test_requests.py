"""Requests of an event loop: many at once, cancelled ones, and asynchronous generators."""

from __future__ import annotations

import asyncio
import gc

import pytest

import pulsar_ext as pulsar


def serve(replier, **options):
    return asyncio.create_task(replier.run(**options))


def test_concurrent_and_cancelled_requests(run, topic):
    """Each request gets its own reply, although there are more than the queue holds; cancelled ones leave nothing."""

    async def steps(client):
        async def handle(message):
            await asyncio.sleep(0.01)
            return b"re: " + message.data()

        async with await client.replier(topic, handle) as replier, await client.requester(topic) as requester:
            running = serve(replier)
            asked = [asyncio.create_task(requester.request(b"%d" % number)) for number in range(1_500)]
            await asyncio.sleep(0)
            for one in asked[::10]:
                one.cancel()
            await asyncio.wait(asked)
            assert [one.cancelled() for one in asked] == [number % 10 == 0 for number in range(1_500)]
            assert all(asked[n].result().data() == b"re: %d" % n for n in range(1_500) if n % 10)
            asked.clear()
            del one
            gc.collect()  # errors refer to their cause
            assert len(requester.blocking._correlations._waiting) == 0
            replier.stop()
            await running

    run(steps)


def test_replies_of_an_asynchronous_generator(run, topic):
    """Replies of an asynchronous generator arrive one by one, and its exception after them."""

    async def steps(client):
        async def handle(message):
            for number in range(3):
                await asyncio.sleep(0.01)
                yield b"%d" % number
            if message.data() == b"fail":
                raise pulsar.RequestFailed("after the third")

        async with await client.replier(topic, handle) as replier, await client.requester(topic) as requester:
            running = serve(replier, concurrency=2)
            assert [reply.data() async for reply in requester.request_many(b"x")] == [b"0", b"1", b"2"]
            replies = requester.request_many(b"fail")
            assert [(await anext(replies)).data() for _ in range(3)] == [b"0", b"1", b"2"]
            with pytest.raises(pulsar.RequestFailed, match="after the third"):
                await anext(replies)
            replier.stop()
            await running

    run(steps)
