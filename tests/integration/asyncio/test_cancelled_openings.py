"""Openings of the asyncio client may be cancelled while the broker does not answer."""

import asyncio

import pulsar
import pytest
from reach import Reach, official_client

import pulsar_ext.asyncio
from pulsar_ext import KeyHashRange, MessageId
from pulsar_ext.testing import FaultProxy

_MORE_THAN_THREADS = 70
_STANDBY = {"access_mode": pulsar.ProducerAccessMode.WaitForExclusive}


async def _cancelled(*openings):
    """Start openings, and cancel each once all of them wait."""
    waiting = [asyncio.ensure_future(opening) for opening in openings]
    await asyncio.wait(waiting, timeout=0.5)
    for one in waiting:
        one.cancel()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in ended] == [asyncio.CancelledError] * len(waiting)


@pytest.mark.core
def test_cancelled_standbys_free_their_threads(run, broker, topic, pulsar_topic_factory):
    """Cancelled waits for exclusive access, more than there are threads, block no calls and get no access later."""

    async def steps(client):
        leader_client = official_client(broker)
        leader_client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
        other = pulsar_topic_factory(broker=broker)
        worker = await client.create_producer(other)
        await _cancelled(*(client.create_producer(topic, **_STANDBY) for _ in range(_MORE_THAN_THREADS)))
        await worker.send(b"x")
        await asyncio.wait_for(worker.flush(), 20)
        await asyncio.wait_for(client.subscribe(other, "s"), 20)
        leader_client.close()
        standby = await asyncio.wait_for(client.create_producer(topic, **_STANDBY), 20)
        await standby.send(b"leads")

    run(steps)


_OPENINGS = {
    "create_producer": lambda client, topic: client.create_producer(topic),
    "subscribe": lambda client, topic: client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared),
    "create_reader": lambda client, topic: client.create_reader(topic, MessageId.earliest),
    "range reader": lambda client, topic: client.create_reader(
        topic, MessageId.earliest, key_hash_ranges=[KeyHashRange(0, 9)]
    ),
    "create_table_view": lambda client, topic: client.create_table_view(topic),
    "requester": lambda client, topic: client.requester(topic),
    "get_topic_partitions": lambda client, topic: client.get_topic_partitions(topic),
}


@pytest.mark.parametrize("kind", _OPENINGS)
def test_openings_at_a_silent_broker_may_be_cancelled(pulsar_broker, pulsar_topic, kind):
    """Each kind of object opens after more openings than there are threads were cancelled at a silent broker."""

    async def steps(proxy):
        options = Reach.of(pulsar_broker).options()
        async with pulsar_ext.asyncio.Client(proxy.service_url, **options) as client:
            await client.create_producer(pulsar_topic)
            proxy.pause()
            await _cancelled(*(_OPENINGS[kind](client, pulsar_topic) for _ in range(_MORE_THAN_THREADS)))
            proxy.resume()
            await asyncio.wait_for(_OPENINGS[kind](client, pulsar_topic), 20)

    with FaultProxy.to(pulsar_broker.service_url, pulsar_broker.detours) as proxy:
        asyncio.run(steps(proxy))
