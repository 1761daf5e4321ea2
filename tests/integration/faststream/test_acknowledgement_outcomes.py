"""Outcomes of messages of FastStream handlers: acknowledged, redelivered, dead letter, or left unacknowledged."""

from __future__ import annotations

import asyncio
import re

import pytest
from fasted import EARLIEST, SHARED, faststream_broker, run_to_end, until
from faststream import AckPolicy
from faststream.exceptions import AckMessage, NackMessage, SkipMessage, StopConsume

import pulsar_ext as pulsar
from pulsar_ext.faststream import PulsarMessage  # FastStream reads the annotation
from pulsar_ext.schema import AutoConsumeSchema


def backlog(admin, topic, subscription="s"):
    """Return the number of unacknowledged entries."""
    return admin.stats(topic, precise_backlog=True).subscriptions[subscription].backlog_entries


def _publish_until_seen(service, topic, seen, *, times):
    """Run the service until its handler has seen a message `times` times."""

    async def steps():
        async with service:
            await service.start()
            await service.publish("x", topic)
            await until(lambda: len(seen) == times)

    run_to_end(steps)


@pytest.mark.core
@pytest.mark.parametrize(
    ("policy", "calls", "unacknowledged"),
    [
        (None, 2, 0),
        (AckPolicy.NACK_ON_ERROR, 2, 0),
        (AckPolicy.REJECT_ON_ERROR, 1, 0),
        (AckPolicy.ACK, 1, 0),
        (AckPolicy.ACK_FIRST, 1, 0),
        (AckPolicy.MANUAL, 1, 1),
    ],
)
def test_ack_policy_applies_when_a_handler_raises(broker, admin, topic, policy, calls, unacknowledged):
    """NACK_ON_ERROR, the default, redelivers a message; other policies acknowledge it; MANUAL does neither."""
    service = faststream_broker(broker, **({} if policy is None else {"ack_policy": policy}))
    seen = []

    @service.subscriber(topic, subscription="s", subscription_type=SHARED, negative_ack_redelivery_delay_ms=100)
    async def handle(body: str, message: PulsarMessage):
        seen.append(body)
        if body == "bad" and seen.count("bad") == 1:
            raise ValueError(body)
        if policy is AckPolicy.MANUAL:
            await message.ack()

    async def steps():
        async with service:
            await service.start()
            await service.publish("bad", topic)
            await until(lambda: seen.count("bad") == calls)
            await service.publish("good", topic)
            await until(lambda: "good" in seen)

    run_to_end(steps)
    assert seen.count("bad") == calls
    assert backlog(admin, topic) == unacknowledged


def test_manual_ack_nack_and_reject(broker, admin, topic):
    """The first of `ack()`, `nack()` and `reject()` applies; later calls have no effect."""
    service = faststream_broker(broker)
    seen = []

    @service.subscriber(
        topic,
        subscription="s",
        subscription_type=SHARED,
        ack_policy=AckPolicy.MANUAL,
        negative_ack_redelivery_delay_ms=100,
    )
    async def handle(body: str, message: PulsarMessage):
        seen.append(body)
        if body == "again" and seen.count("again") == 1:
            await message.nack()
            await message.ack()
        elif body == "rejected":
            await message.reject()
        else:
            await message.ack()
            await message.nack()

    async def steps():
        async with service:
            await service.start()
            for body in ("done", "again", "rejected"):
                await service.publish(body, topic)
            await until(lambda: len(seen) == 4)

    run_to_end(steps)
    assert sorted(seen) == ["again", "again", "done", "rejected"]
    assert backlog(admin, topic) == 0


@pytest.mark.parametrize(
    ("policy", "error", "times"),
    [
        (AckPolicy.MANUAL, NackMessage(), 2),
        (AckPolicy.MANUAL, AckMessage(), 1),
        (AckPolicy.NACK_ON_ERROR, SkipMessage(), 1),
    ],
)
def test_faststream_exceptions_strand_no_message(service, admin, topic, policy, error, times):
    """A message whose handler raises a FastStream exception is acknowledged or redelivered."""
    seen = []

    @service.subscriber(
        topic, subscription="s", subscription_type=SHARED, ack_policy=policy, negative_ack_redelivery_delay_ms=100
    )
    async def handle(body: str, message: PulsarMessage):
        seen.append(body)
        if len(seen) == 1:
            raise error
        await message.ack()

    _publish_until_seen(service, topic, seen, times=times)
    assert backlog(admin, topic) == 0


def test_reject_and_delayed_nack_send_letters(broker, client, topic):
    """With a dead letter policy, `reject()` sends a dead letter, and `nack(delay_ms)` a retry letter."""
    service = faststream_broker(broker)
    dead = client.subscribe(f"{topic}-s-DLQ", "dead")
    seen = []

    @service.subscriber(
        topic,
        subscription="s",
        subscription_type=SHARED,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(5),
        ack_policy=AckPolicy.REJECT_ON_ERROR,
    )
    async def handle(body: str, message: PulsarMessage):
        seen.append(body)
        if body == "later" and seen.count("later") == 1:
            await message.nack(delay_ms=200, properties={"why": "busy"})
        if body == "bad":
            raise ValueError(body)
        if body == "by hand":
            await message.reject({"why": "no such order"})

    async def steps():
        async with service:
            await service.start()
            for body in ("later", "bad", "by hand"):
                await service.publish(body, topic)
            await until(lambda: seen.count("later") == 2)

    run_to_end(steps)
    letters = {letter.data(): letter.properties().get("why") for letter in (dead.receive(10_000), dead.receive(10_000))}
    assert letters == {b"bad": None, b"by hand": "no such order"}
    assert sorted(seen) == ["bad", "by hand", "later", "later"]


def test_rejected_messages_keep_their_schema(broker, client, topic):
    """The dead letter of a message that was written with a schema is read by that schema."""
    service = faststream_broker(broker)
    seen = []

    @service.subscriber(
        topic, subscription="s", subscription_type=SHARED, dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(5)
    )
    async def handle(body: str, message: PulsarMessage):
        await message.reject()
        seen.append(body)

    async def steps():
        async with service:
            await service.start()
            client.create_producer(topic, schema=str).send("a text")
            await until(lambda: seen)

    run_to_end(steps)
    letters = client.create_reader(f"{topic}-s-DLQ", pulsar.MessageId.earliest, schema=AutoConsumeSchema())
    assert letters.read_next(10_000).value() == "a text"


def test_rejects_of_a_pattern_become_dead_letters(broker, client, topic):
    """Rejected messages of a pattern are redelivered until its policy makes them dead letters."""
    service = faststream_broker(broker)
    dead = client.subscribe(f"{topic}-dead", "dead")
    seen = []

    @service.subscriber(
        re.compile(f"{topic}-live"),
        subscription="s",
        subscription_type=SHARED,
        initial_position=EARLIEST,
        pattern_auto_discovery_period=1,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-dead"),
        ack_policy=AckPolicy.REJECT_ON_ERROR,
    )
    async def handle(body: str):
        seen.append(body)
        raise ValueError(body)

    async def steps():
        async with service:
            await service.publish("bad", f"{topic}-live")
            await service.start()
            return await asyncio.to_thread(dead.receive, 60_000)

    assert run_to_end(steps).data() == b"bad"
    assert seen == ["bad"] * 3


@pytest.mark.parametrize("options", [{"ack_policy": AckPolicy.REJECT_ON_ERROR}, {"enable_retry": False}])
def test_message_is_redelivered_if_its_letter_fails(broker, client, admin, topic, options):
    """A rejected message is redelivered if the dead letter topic is terminated, or retry letters are disabled."""
    service, seen = faststream_broker(broker), []
    client.create_producer(f"{topic}-dead").close()
    admin.terminate(f"{topic}-dead")

    @service.subscriber(
        topic,
        subscription="s",
        subscription_type=SHARED,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(100, f"{topic}-dead"),
        **options,
    )
    async def handle(body: str):
        seen.append(body)
        if len(seen) < 3:
            raise NackMessage(delay_ms=100) if "enable_retry" in options else ValueError(body)

    _publish_until_seen(service, topic, seen, times=3)
    assert backlog(admin, topic) == 0


def test_message_is_redelivered_if_the_backoff_fails(service, admin, topic):
    """A message is redelivered although the subscription's backoff raises for its redelivery count."""
    seen = []

    @service.subscriber(
        topic, subscription="s", subscription_type=SHARED, negative_ack_redelivery_backoff=[100, 200].__getitem__
    )
    async def handle(body: str):
        seen.append(body)
        if len(seen) < 5:
            raise ValueError(body)

    _publish_until_seen(service, topic, seen, times=5)
    assert backlog(admin, topic) == 0


def test_cancelled_handlers_message_is_redelivered(service, admin, topic):
    """A handler that raises its own CancelledError leaves no message unacknowledged."""
    seen = []

    @service.subscriber(topic, subscription="s", subscription_type=SHARED, negative_ack_redelivery_delay_ms=100)
    async def handle(body: str):
        seen.append(body)
        if len(seen) == 1:
            raise asyncio.CancelledError

    _publish_until_seen(service, topic, seen, times=2)
    assert backlog(admin, topic) == 0


def test_stop_consume_stops_the_subscriber(service, topic, client, admin):
    """StopConsume stops one subscriber; the next one gets the remaining messages, and none is lost."""
    seen = []

    @service.subscriber(topic, subscription="s", max_workers=4)
    async def handle(number: int):
        seen.append(number)
        if number == 10:
            raise StopConsume

    async def steps():
        async with service:
            await service.start()
            await service.publish_batch(*range(200), topic=topic)
            await until(lambda: 10 in seen)
            await until(lambda: not handle._subscribers[0].running)
            await until(lambda: handle._subscribers[0]._consumer is None)

    run_to_end(steps)
    remaining, consumer = set(), client.subscribe(topic, "s")
    while len(remaining | set(seen)) < 200:
        remaining.add(int(consumer.receive(10_000).data()))
    assert len(seen) < 200


@pytest.mark.parametrize("ends", ["subscriber", "broker"])
def test_stop_in_a_handler_waits_for_other_handlers(broker, admin, topic, ends):
    """`stop()` in a handler does not wait for that handler, but for other handlers."""
    service, ended = faststream_broker(broker, graceful_timeout=10_000.0), []

    @service.subscriber(topic, subscription="s", subscription_type=SHARED, max_workers=2)
    async def handle(body: str, message: PulsarMessage):
        if body == "end":
            await message.ack()
            await (service if ends == "broker" else service.subscribers[0]).stop()
        else:
            await asyncio.sleep(0.5)
        ended.append(body)

    async def steps():
        async with service:
            await service.start()
            await service.publish_batch("long", "end", topic=topic)
            await until(lambda: len(ended) == 2)

    run_to_end(steps)
    assert ended == ["long", "end"]
    assert backlog(admin, topic) == 0
