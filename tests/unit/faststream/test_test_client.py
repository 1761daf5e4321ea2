"""`TestPulsarBroker`: handlers run in memory, and FastStream's mocks record their messages."""

from __future__ import annotations

import asyncio

import pydantic
import pytest
from faststream import AckPolicy, BaseMiddleware, FastStream, TestApp
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage, SubscriberNotFound
from faststream.message import AckStatus

from pulsar_ext.faststream import (
    PulsarBroker,
    PulsarMessage,
    PulsarPublisher,
    PulsarResponse,
    PulsarRoute,
    PulsarRouter,
    TestPulsarBroker,
)

URL = "pulsar://localhost:1"


class Order(pydantic.BaseModel):
    """Order with a number."""

    number: int


@pytest.fixture
def service():
    """Return a broker whose URL does not exist."""
    return PulsarBroker(URL)


def run(function, *brokers, **options):
    """Run a coroutine function with tested brokers."""

    async def with_test():
        async with TestPulsarBroker(*brokers, **options) as tested:
            return await function(tested)

    return asyncio.run(with_test())


def test_chained_handlers_and_their_mocks(service):
    """A published message is validated, its result goes to the next handler, and all mocks record it."""

    @service.subscriber("orders", subscription="s")
    @service.publisher("invoices", key="k")
    async def bill(order: Order):
        return PulsarResponse(Order(number=order.number + 1), headers={"h": "1"})

    seen = []

    @service.subscriber("persistent://public/default/invoices", subscription="s")
    @service.publisher("log")
    async def invoice(order: Order, message: PulsarMessage):
        seen.append((order.number, message.key, message.headers["h"], message.topic, message.correlation_id))
        return "logged"

    async def steps(tested):
        first = await tested.publish(Order(number=1), "orders", correlation_id="c")
        second = await tested.publish(Order(number=5), "public/default/orders")
        assert first < second
        assert bill.mock.call_count == 2
        bill.mock.assert_called_with({"number": 5})
        invoice.mock.assert_called_with({"number": 6})
        await tested.publish_batch(Order(number=7), Order(number=8), topic="orders")

    run(steps, service)
    assert seen[0] == (2, "k", "1", "persistent://public/default/invoices", "c")
    assert [number for number, *_ in seen] == [2, 6, 8, 9]


@pytest.mark.parametrize("bodies", [(), (None,), (None, "a"), ("a", None)])
def test_each_body_of_a_batch_is_a_message(service, bodies):
    """A body of None is an empty message, as with `publish()`, at any position; a middleware may change the batch."""

    @service.subscriber("t", subscription="s")
    async def handle(message: PulsarMessage):
        seen.append(message.body)

    class Twice(BaseMiddleware):
        async def publish_scope(self, call_next, cmd):
            cmd.batch_bodies = cmd.batch_bodies * 2
            return await call_next(cmd)

    async def steps(tested):
        return await tested.publish_batch(*bodies, topic="t")

    for middlewares, factor in (((), 1), ((Twice,), 2)):
        seen = []
        for middleware in middlewares:
            service.add_middleware(middleware)
        assert len(run(steps, service)) == len(bodies) * factor
        assert seen == [b"" if body is None else body.encode() for body in bodies] * factor


def test_batch_subscribers_and_publishers(service):
    """A subscriber of batches gets messages published together as a list; each returned element is a message."""
    batches, single = [], []

    @service.subscriber("in", subscription="s", batch=True)
    @service.publisher("out", batch=True, key="k", headers={"h": "1"})
    async def double(numbers: list[int], message: PulsarMessage):
        batches.append((numbers, [headers["content-type"] for headers in message.batch_headers]))
        return [number * 2 for number in numbers]

    @service.subscriber("out", subscription="s")
    async def note(number: int, message: PulsarMessage):
        single.append((number, message.key, message.headers["h"]))

    plain = service.publisher("in", batch=True)

    async def steps(tested):
        await tested.publish_batch(1, 2, topic="in")
        await tested.publish(3, "in")
        assert len(await plain.publish(4, 5)) == 2
        assert await (await tested.request(6, "in")).decode() == [12]
        late = tested.subscriber("in", subscription="other", batch=True, persistent=False)
        async with late:
            assert await late.get_one(timeout=0.01) is None

    run(steps, service)
    json = "application/json"
    assert batches == [([1, 2], [json] * 2), ([3], [json]), ([4, 5], [json] * 2), ([6], [json])]
    assert single == [(number * 2, "k", "1") for number in range(1, 7)]


@pytest.mark.parametrize(
    ("returned", "bodies"),
    [(["a", "b"], [b"a", b"b"]), (("a",), [b"a"]), ("ab", [b"ab"]), (b"ab", [b"ab"]), ([], [b""]), (None, [b""])],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_batch_publisher_sends_each_element(service, returned, bodies, wrapped):
    """Each element of a list or tuple is a message, text is one message, and nothing is one empty message."""
    seen = []

    @service.subscriber("in", subscription="s")
    @service.publisher("out", batch=True)
    async def handle():
        return PulsarResponse(returned, headers={"h": "1"}) if wrapped else returned

    @service.subscriber("out", subscription="s", batch=True)
    async def note(message: PulsarMessage):
        seen.extend(message.body)

    run(lambda tested: tested.publish("x", "in"), service)
    assert seen == bodies


def test_publisher_without_subscriber_has_a_mock(service):
    """A message to a topic without subscribers is recorded by the publisher's mock; no subscriber remains."""
    publisher = service.publisher("out")

    async def steps(tested):
        await publisher.publish("x")
        publisher.mock.assert_called_once_with("x")

    run(steps, service)
    assert service.subscribers == []


def test_handler_error_is_raised_by_publish(service):
    """`publish()` raises the handler's error, and the policy applies to the message."""
    messages = []

    @service.subscriber("t", subscription="s", ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def fail(body: str, message: PulsarMessage):
        messages.append(message)
        raise ValueError(body)

    async def steps(tested):
        with pytest.raises(ValueError, match="bad"):
            await tested.publish("bad", "t")

    run(steps, service)
    assert messages[0].committed is AckStatus.REJECTED


@pytest.mark.parametrize(("call", "status"), [("ack", "ACKED"), ("nack", "NACKED"), ("reject", "REJECTED")])
def test_only_first_acknowledgement_applies(service, call, status):
    """The first of a handler's calls determines the message's status."""
    messages = []

    @service.subscriber("t", subscription="s", ack_policy=AckPolicy.MANUAL)
    async def handle(body: str, message: PulsarMessage):
        messages.append(message)
        await getattr(message, call)()
        await message.ack()
        await message.reject()

    run(lambda tested: tested.publish("x", "t"), service)
    assert messages[0].committed is AckStatus(status)


@pytest.mark.parametrize(
    ("policy", "error", "status"),
    [
        (AckPolicy.MANUAL, AckMessage(), "ACKED"),
        (AckPolicy.MANUAL, NackMessage(), "NACKED"),
        (AckPolicy.MANUAL, RejectMessage(), "REJECTED"),
        (AckPolicy.MANUAL, SkipMessage(), None),
        (AckPolicy.NACK_ON_ERROR, SkipMessage(), "ACKED"),
        (AckPolicy.NACK_ON_ERROR, NackMessage(), "NACKED"),
        (AckPolicy.REJECT_ON_ERROR, AckMessage(), "ACKED"),
        (AckPolicy.ACK, SkipMessage(), "ACKED"),
    ],
)
def test_exceptions_acknowledge_messages(service, policy, error, status):
    """Each of FastStream's exceptions determines its message's status, also with `MANUAL`; nothing is published."""
    messages = []

    @service.subscriber("t", subscription="s", ack_policy=policy)
    @service.publisher("out")
    async def handle(body: str, message: PulsarMessage):
        messages.append(message)
        raise error

    async def steps(tested):
        await tested.publish("x", "t")
        service.publishers[0].mock.assert_not_called()

    run(steps, service)
    assert messages[0].committed is (status and AckStatus(status))


def test_each_subscription_gets_a_message_once(service):
    """Two subscriptions both get a message; two subscribers of one subscription get it once."""
    seen = []

    def subscribe(subscription, name):
        @service.subscriber("t", subscription=subscription)
        async def handle(body: str):
            seen.append((subscription, name))

        return handle

    kept = [subscribe("one", 1), subscribe("one", 2), subscribe("other", 3)]
    run(lambda tested: tested.publish("x", "t"), service)
    assert len(seen) == 2
    assert {subscription for subscription, _ in seen} == {"one", "other"}
    assert len(kept) == 3


def test_requests_and_replies(service):
    """A request gets the handler's return value; a reply goes to the message's reply topic in its namespace."""
    replies = []

    @service.subscriber("double", subscription="s")
    async def double(number: int) -> int:
        return number * 2

    @service.subscriber("replies", subscription="s")
    async def note(number: int):
        replies.append(number)

    @service.subscriber("public/other/replies", subscription="s")
    async def note_elsewhere(number: int):
        replies.append(-number)

    @service.subscriber("slow", subscription="s")
    async def slow(body: str):
        await asyncio.sleep(3_600)

    async def steps(tested):
        assert await (await tested.request(4, "double")).decode() == 8
        assert await (await tested.request(4, topic="double")).decode() == 8
        await tested.publish(5, "double", reply_to="replies")
        await tested.publish(6, "double", reply_to="public/other/replies")
        with pytest.raises(SubscriberNotFound, match="unknown"):
            await tested.request(1, "unknown")
        with pytest.raises(TimeoutError):
            await tested.request("x", "slow", 0.01)

    run(steps, service)
    assert replies == [10]


def test_brokers_receive_each_others_messages():
    """A message of one broker is delivered to the handlers of the others."""
    one, other = PulsarBroker(URL), PulsarBroker(URL)

    @other.subscriber("t", subscription="s")
    async def handle(body: str):
        pass

    async def steps(tested):
        await tested[0].publish("x", "t")
        handle.mock.assert_called_once_with("x")

    run(steps, one, other)


def test_routers_middlewares_and_custom_parsers():
    """A router's topics have its prefix; middlewares see published messages; a parser and a decoder are used."""
    commands, router, bodies = [], PulsarRouter(prefix="a."), []

    class Noting(BaseMiddleware):
        async def publish_scope(self, call_next, cmd):
            commands.append((cmd.destination, cmd.key))
            return await call_next(cmd)

    async def parser(raw, original):
        parsed = await original(raw)
        parsed.headers["parsed"] = "yes"
        return parsed

    async def decoder(message):
        return message.body.decode().upper() + message.headers["parsed"]

    @router.subscriber("b", subscription="s", parser=parser, decoder=decoder)
    @router.publisher("c")
    async def handle(body: str):
        bodies.append(body)
        return "out"

    service = PulsarBroker(URL, middlewares=[Noting], routers=[router])
    run(lambda tested: tested.publish("x", "a.b", key="k"), service)
    assert bodies == ["Xyes"]
    assert commands == [("a.b", "k"), ("a.c", None)]


def test_routes_are_subscribers_and_publishers(service):
    """A handler of `PulsarRouter(handlers=…)` gets messages, and its return value goes to each of its publishers."""
    seen = []

    async def double(number: int) -> int:
        return number * 2

    async def note(number: int, message: PulsarMessage):
        seen.append((number, message.key))

    out = PulsarPublisher("out", key="k")
    routes = [PulsarRoute(double, "in", subscription="s", publishers=[out]), PulsarRoute(note, "out", subscription="s")]
    service.include_router(PulsarRouter("a.", routes))
    run(lambda tested: tested.publish(4, "a.in"), service)
    assert seen == [(8, "k")]


def test_subscriber_started_later_receives(service):
    """A subscriber that is declared and started during a test gets the messages published after that."""
    seen = []

    async def steps(tested):
        late = tested.subscriber("t", subscription="s", persistent=False)

        @late
        async def handle(body: str):
            seen.append(body)

        async with late:
            await tested.publish("x", "t")
        alone = tested.subscriber("t", subscription="other", persistent=False)
        async with alone:
            assert await alone.get_one(timeout=0.01) is None

    run(steps, service)
    assert seen == ["x"]


def test_application_hooks_run(service):
    """FastStream's `TestApp` runs the application's hooks around the tested broker."""
    app, seen = FastStream(service), []

    @app.after_startup
    async def begin():
        seen.append("begun")

    @service.subscriber("t", subscription="s")
    async def handle(body: str):
        seen.append(body)

    async def steps():
        async with TestPulsarBroker(service) as tested, TestApp(app):
            await tested.publish("x", "t")
            assert await tested.ping()

    asyncio.run(steps())
    assert seen == ["begun", "x"]
