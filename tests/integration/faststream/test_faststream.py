"""FastStream services on a real broker: messages arrive unchanged, at every subscriber and publisher declared."""

from __future__ import annotations

import re

import pydantic
import pytest
from fasted import EARLIEST, faststream_broker, run_to_end, until
from faststream import FastStream, TestApp
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import pulsar_ext as pulsar
from pulsar_ext.faststream import PulsarMessage, PulsarResponse, PulsarRouter, TestPulsarBroker
from pulsar_ext.faststream.annotations import Client  # FastStream reads the annotation
from pulsar_ext.otel import instrument

UNREACHABLE_URL = "pulsar://localhost:1"


class Order(pydantic.BaseModel):
    """Order with a number and a text."""

    number: int
    what: str = ""


@pytest.mark.core
def test_model_arrives_as_it_was_published(service, topic):
    """A handler gets each published pydantic model, validated, in order."""
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


def test_headers_and_keys_of_a_message_arrive(service, client, topic):
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


def test_messages_of_other_programs_are_decoded(service, client, topic):
    """A message without a content type is decoded as JSON if possible, and is bytes otherwise."""
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


@pytest.mark.parametrize("schema", [bytes, str], ids=["bytes", "str"])
def test_message_without_a_value_is_none(service, client, topic, schema):
    """A handler gets None for a message without a value, and an empty body unchanged."""
    found = []

    @service.subscriber(topic, subscription="s")
    async def handle(body: str | None, message: PulsarMessage):
        found.append((body, message.key, message.body))

    async def steps():
        async with service:
            await service.start()
            producer = client.create_producer(topic, schema=schema)
            producer.send(None, partition_key="gone")
            producer.send(schema(), partition_key="empty")
            await until(lambda: len(found) == 2)

    run_to_end(steps)
    assert found == [(None, "gone", b""), ("", "empty", b"")]


@pytest.mark.core
def test_return_value_goes_to_each_publisher(service, pulsar_topic_factory, broker):
    """A handler's return value goes to each of its publishers, with the message's correlation id."""
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


def test_chunked_message_passes_a_handler(service, topic):
    """A message of 6 MB, sixty chunks here, passes a handler and its publisher, and gets a reply."""
    body = bytes(range(256)) * 24_000

    @service.subscriber(topic, subscription="s")
    async def turn_around(body: bytes) -> bytes:
        return body[::-1]

    async def steps():
        async with service:
            await service.start()
            return (await service.request(body, topic)).body

    assert run_to_end(steps) == body[::-1]


@pytest.mark.core
def test_routers_topic_lists_and_patterns(service, topic):
    """A router's prefix applies to its topics; a list and a pattern subscribe to all matching topics."""
    router, found = PulsarRouter(prefix=f"{topic}-"), []

    @router.subscriber("a", subscription="s")
    @router.publisher("b")
    async def first(body: str):
        return f"{body}!"

    @router.subscriber(["b", "c"], subscription="s")
    async def second(body: str, message: PulsarMessage):
        found.append((message.topic.removeprefix(f"{topic}-"), body))

    @router.subscriber(
        re.compile("b|c"),
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


def test_publishers_use_their_own_producer_options(service, topic, client):
    """A publisher sends by its own options, even if deleted options had the same id in memory."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)

    async def steps():
        async with service:
            for number in range(10):
                options = {"producer_name": f"{topic}-{number}"}
                publisher = service.publisher(topic, producer_options=options, persistent=False)
                await publisher.publish("x", topic)
                del publisher, options

    run_to_end(steps)
    assert [reader.read_next(10_000).producer_name() for _ in range(10)] == [f"{topic}-{n}" for n in range(10)]


def test_get_one_and_iteration_of_messages(service, topic):
    """A subscriber without a handler returns messages to the application, which acknowledges them."""
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


def test_application_runs_and_answers_pings(broker, service, topic):
    """FastStream's application starts and stops the broker, which answers pings, and has the client."""
    seen = []

    @service.subscriber(topic, subscription="s")
    async def handle(body: str, client: Client):
        seen.append(client)

    async def steps():
        assert not await service.ping()
        async with TestApp(FastStream(service)):
            assert await service.ping(timeout=10)
            await service.publish("x", topic)
            await until(lambda: seen)
            assert seen == [await service.connect()]
        assert not await service.ping()

    run_to_end(steps)


@pytest.mark.parametrize("declared", ["nothing", "pattern", "publisher"])
def test_ping_needs_a_broker(broker, admin, declared):
    """A ping is false without a reachable broker, and true otherwise, for any declarations; it creates no topic."""

    async def steps(service_url):
        service = faststream_broker(broker, service_url=service_url, operation_timeout_seconds=2)
        if declared == "pattern":
            service.subscriber(re.compile("persistent://public/default/orders-.*"), subscription="s")
        publisher = service.publisher("orders") if declared == "publisher" else None
        async with service:
            answer = await service.ping(timeout=1.0 if service_url else 20.0)
        del publisher
        return answer

    assert run_to_end(lambda: steps(None))
    assert not run_to_end(lambda: steps(UNREACHABLE_URL))
    assert not [one for one in admin.topics("public/default") if "ping" in one]


@pytest.mark.core
def test_test_client_works_on_a_real_broker(broker, topic, admin):
    """With `with_real`, mocks record messages of the broker, and their temporary subscription is deleted."""
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


@pytest.mark.core
@pytest.mark.parametrize("publish", ["publish", "publish_batch", "request"])
def test_trace_continues_through_all_handlers(service, topic, publish):
    """A published message is part of the current span, and each handler and publisher of its message's span."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer, seen = provider.get_tracer("service"), []

    @service.subscriber(topic, subscription="s")
    @service.publisher(f"{topic}-out")
    async def first(body: str):
        with tracer.start_as_current_span("first"):
            return body

    @service.subscriber(f"{topic}-out", subscription="s")
    async def second(body: str):
        with tracer.start_as_current_span("second"):
            seen.append(body)

    async def steps():
        async with service:
            instrument(await service.connect(), tracer_provider=provider)
            await service.start()
            with tracer.start_as_current_span("root"):
                await getattr(service, publish)("x", topic=topic)
            await until(lambda: seen)

    run_to_end(steps)
    spans = {one.name: one for one in exporter.get_finished_spans() if "replies" not in one.name}
    assert len({one.context.trace_id for one in spans.values()}) == 1

    def path(name):
        parent = spans[name].parent
        above = [one.name for one in spans.values() if parent and one.context.span_id == parent.span_id]
        return [name.removesuffix(topic), *(path(above[0]) if above else [])]

    out = f"{topic}-out"
    assert path("second") == ["second", f"process {out}", f"send {out}", "process ", "send ", "root"]
    assert path("first") == ["first", "process ", "send ", "root"]
