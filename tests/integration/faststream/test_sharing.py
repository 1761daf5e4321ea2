"""FastStream services that share a subscription, and the number of messages each handles at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from fasted import SHARED, faststream_broker, run_to_end, until

import pulsar_ext as pulsar
from pulsar_ext.faststream import PulsarMessage  # FastStream reads the annotation


def test_services_share_a_subscription(broker, topic):
    """Services that share a subscription share its messages: each is handled once, and each service gets some."""
    found = {"one": [], "other": []}

    def service_of(name):
        service = faststream_broker(broker)

        @service.subscriber(topic, subscription="s", subscription_type=SHARED, max_workers=5, receiver_queue_size=10)
        async def handle(number: int):
            found[name].append(number)
            await asyncio.sleep(0.005)

        return service

    async def steps():
        async with service_of("one") as one, service_of("other") as other:
            await one.start()
            await other.start()
            await one.publish_batch(*range(300), topic=topic)
            await until(lambda: sum(map(len, found.values())) == 300)

    run_to_end(steps)
    assert sorted(found["one"] + found["other"]) == list(range(300))
    assert all(found.values())


def test_key_shared_keeps_keys_in_one_service(broker, topic):
    """On a Key_Shared subscription one service has all messages of a key, in their order."""
    found = {"one": [], "other": []}

    def service_of(name):
        service = faststream_broker(broker)

        @service.subscriber(topic, subscription="s", subscription_type=pulsar.ConsumerType.KeyShared)
        async def handle(number: int, message: PulsarMessage):
            found[name].append((message.key, number))

        return service

    async def steps():
        async with service_of("one") as one, service_of("other") as other:
            await one.start()
            await other.start()
            for number in range(200):
                await one.publish(number, topic, key=f"k{number % 20}")
            await until(lambda: sum(map(len, found.values())) == 200)

    run_to_end(steps)
    assert not {key for key, _ in found["one"]} & {key for key, _ in found["other"]}
    by_key = {f"k{key}": [number for number in range(200) if number % 20 == key] for key in range(20)}
    assert {key: [n for has in found.values() for k, n in has if k == key] for key in by_key} == by_key
    assert all(found.values())


def test_deliver_after_delays_a_message(service, topic):
    """A message with `deliver_after` is delivered after one that was published later."""
    seen = []

    @service.subscriber(topic, subscription="s", subscription_type=SHARED)
    async def handle(body: str):
        seen.append(body)

    async def steps():
        async with service:
            await service.start()
            await service.publish("late", topic, deliver_after=timedelta(seconds=2))
            await service.publish("soon", topic)
            await until(lambda: len(seen) == 2)

    run_to_end(steps)
    assert seen == ["soon", "late"]


def test_max_workers_limits_concurrent_handlers(service, topic):
    """`max_workers` handlers run at once, and never more."""
    running, most, done = 0, 0, 0

    @service.subscriber(topic, subscription="s", max_workers=7)
    async def handle(number: int):
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done += 1

    async def steps():
        async with service:
            await service.start()
            await service.publish_batch(*range(100), topic=topic)
            await until(lambda: done == 100)

    run_to_end(steps)
    assert most == 7
