"""FastStream subscribers and publishers of batches on a real broker: nothing is lost, and a batch is settled whole."""

from __future__ import annotations

import asyncio

import pytest
from fasted import SHARED, faststream_broker, run_to_end, until
from faststream import AckPolicy

import pulsar_ext as pulsar
from pulsar_ext.faststream import PulsarMessage  # noqa: TC001  # FastStream reads the annotation


def backlog(admin, topic):
    """How many entries are not acknowledged."""
    return admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries


@pytest.mark.core
def test_batches_go_through_handlers(service, admin, topic):
    """A handler gets lists of what has arrived, in its order, and each element of what it returns is a message."""
    sizes, found = [], []

    @service.subscriber(topic, subscription="s", batch=True, max_records=40)
    @service.publisher(f"{topic}-out", batch=True)
    async def double(numbers: list[int], message: PulsarMessage):
        sizes.append(len(numbers))
        assert len(message.raw_message) == len(message.batch_headers) == len(numbers)
        return [number * 2 for number in numbers]

    @service.subscriber(f"{topic}-out", subscription="s")
    async def note(number: int):
        found.append(number)

    async def steps():
        async with service:
            await service.start()
            await service.publish_batch(*range(100), topic=topic)
            await until(lambda: len(found) == 100)

    run_to_end(steps)
    assert found == [number * 2 for number in range(100)]
    assert max(sizes) <= 40
    assert backlog(admin, topic) == 0


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR])
def test_a_batch_is_settled_whole(service, client, admin, topic, policy):
    """A batch whose handler raised is delivered again, every message of it, or every message is a dead letter."""
    seen, dead = [], client.subscribe(f"{topic}-s-DLQ", "dead")

    @service.subscriber(
        topic,
        subscription="s",
        subscription_type=SHARED,
        batch=True,
        ack_policy=policy,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(5),
    )
    async def handle(numbers: list[int]):
        seen.extend(numbers)
        if seen.count(numbers[0]) == 1:
            raise ValueError(numbers)

    async def steps():
        async with service:
            await service.start()
            await service.publish_batch(*range(20), topic=topic)
            await until(lambda: len(seen) == (40 if policy is AckPolicy.NACK_ON_ERROR else 20))

    run_to_end(steps)
    if policy is AckPolicy.REJECT_ON_ERROR:
        assert {int(dead.receive(10_000).data()) for _ in range(20)} == set(range(20))
    assert set(seen) == set(range(20))
    assert backlog(admin, topic) == 0


def test_a_stop_repeats_nothing_of_a_batch(broker, topic, client):
    """A subscriber of batches that stops in a batch of the broker's handles the rest of that one, and no more."""
    client.subscribe(topic, "s", SHARED).close()
    with client.create_producer(topic, batching_enabled=True, batching_max_messages=30) as producer:
        producer.send_many([b"%d" % number for number in range(90)])
    seen, stopped = [], []

    async def steps():
        for enough in (40, 90):
            service = faststream_broker(broker)

            @service.subscriber(topic, subscription="s", subscription_type=SHARED, batch=True, max_records=7)
            async def handle(numbers: list[int]):
                seen.extend(numbers)
                await asyncio.sleep(0.02)

            async with service:
                await service.start()
                await until(lambda enough=enough: len(seen) >= enough)
            stopped.append(len(seen))

    run_to_end(steps)
    assert sorted(seen) == list(range(90))
    assert stopped[0] < 90


def test_batches_one_by_one(service, topic):
    """A subscriber of batches without a handler gives them to whoever asks."""
    subscriber = service.subscriber(topic, subscription="s", batch=True, max_records=2)

    async def steps():
        async with service:
            await service.start()
            await service.publish_batch("a", "b", "c", topic=topic)
            found = []
            async for message in subscriber:
                found += await message.decode()
                await message.ack()
                if len(found) == 3:
                    break
            assert found == ["a", "b", "c"]
            assert await subscriber.get_one(timeout=0.1) is None

    run_to_end(steps)
