"""Requests and replies between FastStream services, and with this library's own requesters and repliers."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from fasted import faststream_broker, run_to_end, until

import pulsar_ext as pulsar


@pytest.mark.core
def test_requests_and_replies(service, topic):
    """Each of many concurrent requests gets its own reply; one without a replier raises a TimeoutError."""

    @service.subscriber(topic, subscription="s", max_workers=20)
    async def double(number: int) -> int:
        return number * 2

    publisher = service.publisher(topic)

    async def steps():
        async with service:
            await service.start()
            replies = await asyncio.gather(*(service.request(number, topic) for number in range(50)))
            assert [await reply.decode() for reply in replies] == [number * 2 for number in range(50)]
            assert await (await publisher.request(4, correlation_id="c")).decode() == 8
            assert (await publisher.request(4, correlation_id="c")).correlation_id == "c"
            with pytest.raises(TimeoutError, match="no reply within"):
                await service.request(1, f"{topic}-unknown", timeout=0.5)

    run_to_end(steps)


def test_requesters_and_repliers_interoperate(service, client, topic, pulsar_async_client_factory, broker):
    """A handler replies to a `Requester`, and a `Replier` to `request()`."""

    @service.subscriber(topic, subscription="s")
    async def answer(body: bytes):
        return b"re: " + body

    async def steps():
        async with service, pulsar_async_client_factory(broker) as other:
            await service.start()
            async with await other.requester(topic) as requester:
                reply = await requester.request(b"who?")
                assert reply.data() == b"re: who?"

            async def shout(message):
                return message.data().upper()

            async with await other.replier(f"{topic}-shout", shout) as replier:
                running = asyncio.create_task(replier.run())
                assert (await service.request(b"who?", f"{topic}-shout")).body == b"WHO?"
                replier.stop()
                await running

    run_to_end(steps)


def test_reply_topics_stay_in_the_namespace(broker, client, topic):
    """A reply goes to the message's reply topic in its namespace; to another one only if `may_reply_to` allows it."""
    here, elsewhere = f"{topic}-replies", f"persistent://public/default/r-{uuid.uuid4().hex}"
    consumer = client.subscribe([here, elsewhere], "s")

    def steps_with(**options):
        service = faststream_broker(broker, **options)
        count = []

        @service.subscriber(topic, subscription="s")
        async def answer(body: str):
            count.append(body)
            return body

        async def steps():
            async with service:
                await service.start()
                await service.publish("1", topic, reply_to=elsewhere)
                await service.publish("2", topic, reply_to=here)
                await until(lambda: len(count) == 2)

        return steps

    run_to_end(steps_with())
    run_to_end(steps_with(may_reply_to=lambda _, reply_topic: reply_topic == elsewhere))
    assert [consumer.receive(10_000).data() for _ in range(2)] == [b"2", b"1"]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)


ASKING = """
import asyncio
from pulsar_ext.faststream import PulsarBroker
from fasted import SHARED

service = PulsarBroker(reach.service_url, logger=None, reply_topic=topic + "-replies-0", **reach.options())

@service.subscriber(topic, subscription="s", subscription_type=SHARED)
async def double(number: int) -> int:
    return number * 2

publisher = service.publisher(topic)

async def ask():
    await service.start()
    assert await (await service.request(1, topic)).decode() == 2
    assert await (await publisher.request(2)).decode() == 4
    if {killed}:
        os._exit(9)
    await service.stop()

asyncio.run(ask())
"""


def test_reply_topic_is_reused_by_the_next_start(program, client, topic):
    """A requesting service that dies leaves its subscription on its reply topic, and the next one reuses it."""
    admin, replies = client.context.admin_api(), f"{topic}-replies-0"
    for _ in range(2):
        assert program(ASKING.format(killed=True)).returncode == 9
        assert list(admin.stats(replies).subscriptions) == [f"requester-{topic.replace('/', ':')}"]
    assert program(ASKING.format(killed=False)).returncode == 0
    assert admin.stats(replies).subscriptions == {}
    assert [one for one in admin.topics("/".join(topic.split("/")[2:4])) if f"{topic}-replies" in one] == [replies]
