"""FastStream services on a real broker: what is published arrives, is answered, and is acknowledged by its policy."""

from __future__ import annotations

import asyncio
import re
import uuid

import pydantic
import pytest
from fasted import EARLIEST, SHARED, faststream_broker, run_to_end, until
from faststream import AckPolicy, FastStream, TestApp
from faststream.exceptions import StopConsume

import pulsar_ext as pulsar
from pulsar_ext.faststream import PulsarMessage, PulsarResponse, PulsarRouter, TestPulsarBroker


class Order(pydantic.BaseModel):
    """What is ordered."""

    number: int
    what: str = ""


@pytest.fixture
def service(broker):
    """A FastStream broker."""
    return faststream_broker(broker)


def backlog(admin, topic, subscription="s"):
    """How many entries are not acknowledged."""
    return admin.stats(topic, precise_backlog=True).subscriptions[subscription].backlog_entries


@pytest.fixture
def admin(client):
    """The admin API."""
    return client.context.admin_api()


def test_a_model_comes_as_it_was_published(service, topic):
    """A handler gets each pydantic model that was published, validated, in its order."""
    found = []

    @service.subscriber(topic, subscription="s")
    async def handle(order: Order):
        found.append(order)

    sent = [Order(number=number, what="ä" * number) for number in range(100)]

    async def steps():
        async with service:
            await service.start()
            ids = [await service.publish(order, topic) for order in sent]
            await until(lambda: len(found) == len(sent))
        return ids

    ids = run_to_end(steps)
    assert found == sent
    assert sorted(set(ids)) == ids


def test_what_travels_with_a_message(service, client, topic):
    """Headers, correlation id, reply topic and content type are properties; keys and the event time are not."""
    found = []

    @service.subscriber(topic, subscription="s", no_reply=True)
    async def handle(body: str, message: PulsarMessage):
        found.append(message)

    plain = client.subscribe(topic, "plain")

    async def steps():
        async with service:
            await service.start()
            sent = await service.publish(
                "text",
                topic,
                headers={"shop": "north"},
                correlation_id="c-1",
                reply_to=f"{topic}-r",
                key="k",
                ordering_key="o",
                event_timestamp=1_700_000_000_000,
            )
            await until(lambda: found)
            return sent

    sent = run_to_end(steps)
    message, raw = found[0], plain.receive(10_000)
    assert message.headers == raw.properties()
    assert message.headers == {
        "content-type": "text/plain",
        "correlation_id": "c-1",
        "reply_to": f"{topic}-r",
        "shop": "north",
    }
    assert (message.correlation_id, message.reply_to, message.content_type) == ("c-1", f"{topic}-r", "text/plain")
    assert (message.key, message.topic, message.message_id) == ("k", topic, sent.to_text())
    assert (raw.data(), raw.partition_key(), raw.ordering_key(), raw.event_timestamp()) == (
        b"text",
        "k",
        "o",
        1_700_000_000_000,
    )


def test_what_other_programs_send_is_decoded(service, client, topic):
    """A message without a content type is JSON if it can be, and bytes otherwise."""
    found = []

    @service.subscriber(topic, subscription="s")
    async def handle(message: PulsarMessage):
        found.append(await message.decode())

    async def steps():
        async with service:
            await service.start()
            producer = client.create_producer(topic)
            producer.send(b'{"a": 1}')
            producer.send(b"\xff\x00")
            await until(lambda: len(found) == 2)

    run_to_end(steps)
    assert found == [{"a": 1}, b"\xff\x00"]


def test_a_chain_of_publishers(service, pulsar_topic_factory, broker):
    """What a handler returns goes to each of its publishers, with the message's correlation id."""
    first, second, third = (pulsar_topic_factory(broker=broker) for _ in range(3))
    found, logged = [], []

    @service.subscriber(first, subscription="s")
    @service.publisher(second, key="fixed", headers={"by": "publisher"})
    @service.publisher(third)
    async def bill(order: Order):
        return PulsarResponse(Order(number=order.number + 1), headers={"of": "response"}, key=None)

    @service.subscriber(second, subscription="s")
    async def invoice(order: Order, message: PulsarMessage):
        found.append((order.number, message.key, message.correlation_id, message.headers["by"], message.headers["of"]))

    @service.subscriber(third, subscription="s")
    async def log(order: Order, message: PulsarMessage):
        logged.append((order.number, message.key))

    async def steps():
        async with service:
            await service.start()
            for number in range(20):
                await service.publish(Order(number=number), first, correlation_id=f"c-{number}")
            await until(lambda: len(found) == len(logged) == 20)

    run_to_end(steps)
    assert found == [(number + 1, "fixed", f"c-{number}", "publisher", "response") for number in range(20)]
    assert logged == [(number + 1, None) for number in range(20)]


def test_requests_and_replies(service, topic):
    """Each of many requests at once gets the reply to it; one that nobody answers raises a TimeoutError."""

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
                await service.request(1, f"{topic}-nobody", timeout=0.5)

    run_to_end(steps)


def test_requesters_and_repliers_of_this_library(service, client, topic, pulsar_async_client_factory, broker):
    """A `Requester` is answered by a handler, and `request()` is answered by a `Replier`."""

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


def test_replies_stay_in_the_namespace(broker, client, topic):
    """A reply goes where the message says, in its namespace; elsewhere only if `may_reply_to` says so."""
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


@pytest.mark.parametrize(
    ("policy", "calls", "left"),
    [
        (None, 2, 0),
        (AckPolicy.NACK_ON_ERROR, 2, 0),
        (AckPolicy.REJECT_ON_ERROR, 1, 0),
        (AckPolicy.ACK, 1, 0),
        (AckPolicy.ACK_FIRST, 1, 0),
        (AckPolicy.MANUAL, 1, 1),
    ],
)
def test_what_becomes_of_a_message_whose_handler_raised(broker, admin, topic, policy, calls, left):
    """It comes again with NACK_ON_ERROR, by default; it is acknowledged with the others; MANUAL leaves it alone."""
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
    assert backlog(admin, topic) == left


def test_messages_that_are_settled_by_hand(broker, admin, topic):
    """`ack()`, `nack()` and `reject()` do what they say once; what is called behind them does nothing."""
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


def test_dead_letters_and_retry_letters(broker, client, topic):
    """With a dead letter policy `reject()` sends a dead letter, and `nack(delay_ms)` has the message come later."""
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


def test_a_handler_that_is_cancelled_has_its_message_come_again(service, admin, topic):
    """A handler that ends by a CancelledError of its own strands nothing."""
    seen = []

    @service.subscriber(topic, subscription="s", subscription_type=SHARED, negative_ack_redelivery_delay_ms=100)
    async def handle(body: str):
        seen.append(body)
        if len(seen) == 1:
            raise asyncio.CancelledError

    async def steps():
        async with service:
            await service.start()
            await service.publish("x", topic)
            await until(lambda: len(seen) == 2)

    run_to_end(steps)
    assert backlog(admin, topic) == 0


def test_a_shared_subscription(broker, topic):
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


def test_so_many_handlers_at_once(service, topic):
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


def test_a_chunked_message(service, topic):
    """A message of 6 MB, sixty chunks here, goes through a handler and its publisher, and is answered."""
    body = bytes(range(256)) * 24_000

    @service.subscriber(topic, subscription="s")
    async def turn_around(body: bytes) -> bytes:
        return body[::-1]

    async def steps():
        async with service:
            await service.start()
            return (await service.request(body, topic)).body

    assert run_to_end(steps) == body[::-1]


def test_routers_several_topics_and_a_pattern(service, topic):
    """A router's prefix is in front of its topics; a list and a pattern subscribe to all that they name."""
    router, found = PulsarRouter(prefix=f"{topic}-"), []

    @router.subscriber("a", subscription="s")
    @router.publisher("b")
    async def first(body: str):
        return f"{body}!"

    @router.subscriber(["b", "c"], subscription="s")
    async def second(body: str, message: PulsarMessage):
        found.append((message.topic.removeprefix(f"{topic}-"), body))

    @router.subscriber(
        re.compile("[bc]"),
        subscription="pattern",
        initial_position=EARLIEST,
        pattern_auto_discovery_period=1,
    )
    async def third(body: str):
        found.append(("pattern", body))

    service.include_router(router)

    async def steps():
        async with service:
            await service.start()
            await service.publish("x", f"{topic}-a")
            await service.publish("y", f"{topic}-c")
            await until(lambda: len(found) == 4)

    run_to_end(steps)
    assert sorted(found) == [("b", "x!"), ("c", "y"), ("pattern", "x!"), ("pattern", "y")]


def test_messages_one_by_one(service, topic):
    """A subscriber without a handler gives messages to whoever asks, and they are acknowledged by hand."""
    subscriber = service.subscriber(topic, subscription="s")

    async def steps():
        async with service:
            await service.start()
            await service.publish_batch("a", "b", "c", topic=topic, headers={"h": "1"}, key="k")
            first = await subscriber.get_one()
            await first.ack()
            assert (await first.decode(), first.headers["h"], first.key) == ("a", "1", "k")
            rest = []
            async for message in subscriber:
                rest.append(await message.decode())
                await message.ack()
                if len(rest) == 2:
                    break
            assert rest == ["b", "c"]
            assert await subscriber.get_one(timeout=0.1) is None

    run_to_end(steps)


def test_an_application_runs_and_answers_pings(broker, service, topic):
    """FastStream's application starts and stops the broker, which says whether Pulsar answers."""
    seen = []

    @service.subscriber(topic, subscription="s")
    async def handle(body: str):
        seen.append(body)

    async def steps():
        assert not await service.ping()
        async with TestApp(FastStream(service)):
            assert await service.ping(timeout=10)
            await service.publish("x", topic)
            await until(lambda: seen)
        assert not await service.ping()

    run_to_end(steps)


def test_a_handler_ends_its_subscriber(service, topic, client, admin):
    """StopConsume stops one subscriber amid its messages: the others are left to the next one, none is lost."""
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
    left, consumer = set(), client.subscribe(topic, "s")
    while len(left | set(seen)) < 200:
        left.add(int(consumer.receive(10_000).data()))
    assert len(seen) < 200


def test_the_test_client_on_the_real_broker(broker, topic, admin):
    """With `with_real` mocks see what went over the broker, and the subscription that they needed is deleted."""
    service = faststream_broker(broker)

    @service.subscriber(topic, subscription="s")
    @service.publisher(f"{topic}-out")
    async def bill(order: Order) -> Order:
        return Order(number=order.number + 1)

    async def steps():
        async with TestPulsarBroker(service, with_real=True) as tested:
            await tested.publish(Order(number=1), topic)
            await bill.wait_call(20)
            bill.mock.assert_called_once_with({"number": 1, "what": ""})
            assert len(admin.stats(f"{topic}-out").subscriptions) == 1

    run_to_end(steps)
    assert admin.stats(f"{topic}-out").subscriptions == {}
