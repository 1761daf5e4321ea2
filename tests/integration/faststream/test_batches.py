"""FastStream subscribers and publishers of batches on a real broker: no loss, and acknowledgement of whole batches."""

from __future__ import annotations

import asyncio

import pytest
from fasted import SHARED, faststream_broker, run_to_end, until
from faststream import AckPolicy

import pulsar_ext as pulsar
from pulsar_ext.faststream import PulsarMessage  # FastStream reads the annotation


def backlog(admin, topic):
    """Return the number of unacknowledged entries."""
    return admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries


@pytest.mark.core
def test_batches_pass_through_handlers(service, admin, topic):
    """A handler gets lists of arrived messages in their order, and each returned element is a message."""
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
def test_failed_batch_is_redelivered_or_rejected_whole(service, client, admin, topic, policy):
    """Every message of a batch whose handler raised is redelivered, or every message becomes a dead letter."""
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


def test_stop_repeats_no_message_of_a_batch(broker, topic, client):
    """A subscriber that stops within a broker's batch handles the rest of that batch, and no more."""
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


def test_get_one_and_iteration_of_batches(service, topic):
    """A subscriber of batches without a handler returns them one by one to the application."""
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
