"""A Python producer and consumer give one trace, on a real broker."""

from __future__ import annotations

import asyncio

import pulsar
import pytest
from awaited import Awaited
from chunked import eventually
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import pulsar_ext
import pulsar_ext.otel

BOTH_CLIENTS = True


@pytest.fixture
def exporter():
    """What was reported."""
    return InMemorySpanExporter()


@pytest.fixture(autouse=True)
def tracer(client, exporter):
    """Have the client instrumented; give what begins spans of the application's own."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    pulsar_ext.otel.instrument(getattr(client, "awaited", client), tracer_provider=provider)
    return provider.get_tracer("application")


def tree(spans):
    """Give the trace as nested names; there is one root."""
    assert len({one.get_span_context().trace_id for one in spans}) == 1

    def below(parent):
        inside = [one for one in spans if (one.parent and one.parent.span_id) == parent]
        return {one.name: below(one.get_span_context().span_id) for one in inside}

    return below(None)


@pytest.mark.core
@pytest.mark.parametrize("batched", [False, True], ids=["plain", "batched"])
def test_a_message_that_is_passed_on_is_one_trace(client, topic, exporter, batched):
    """Send, process, send on, read: each is a part of the one before, through two topics, and ends when it is over."""
    other = topic + "-other"
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    reader = client.create_reader(other, pulsar_ext.MessageId.earliest)
    first, second = (client.create_producer(name, batching_enabled=batched) for name in (topic, other))
    first.send(b"data", properties={"own": "kept"})
    message = consumer.receive(20_000)
    assert message.properties()["own"] == "kept"
    second.send(message.data(), properties=message.properties())
    read = reader.read_next(20_000)
    assert read.properties()["own"] == "kept"
    consumer.acknowledge(message)
    full = message.topic_name()
    sent_on = {f"send {read.topic_name()}": {f"receive {read.topic_name()}": {}}}
    assert tree(exporter.get_finished_spans()) == {f"send {full}": {f"process {full}": {f"ack {full}": {}}, **sent_on}}


def test_with_interceptors_of_the_application_both_see_the_message(client, topic, exporter):
    """Those of the client come first; the application's may change the message and lose no context."""

    class Shout(pulsar_ext.ProducerInterceptor):
        def before_send(self, producer, message):
            """Change the value."""
            return message.replace(value=message.value.upper())

    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, interceptors=[Shout()])
    producer.send_many([b"a", b"b"])
    messages = [consumer.receive(20_000) for _ in range(2)]
    assert [one.data() for one in messages] == [b"A", b"B"]
    consumer.acknowledge_cumulative(messages[1])
    names = [one.name.split()[0] for one in exporter.get_finished_spans()]
    assert sorted(names) == ["ack", "ack", "process", "process", "send", "send"]
    assert len({one.get_span_context().trace_id for one in exporter.get_finished_spans()}) == 2


@pytest.mark.core
@pytest.mark.parametrize(
    "options",
    [
        {"batching_enabled": False, "chunking_enabled": True, "block_if_queue_full": True},
        {"batching_enabled": True, "block_if_queue_full": True, "max_pending_messages": 1},
    ],
    ids=["chunks", "full queue"],
)
def test_sends_are_a_part_of_the_callers_span(client, topic, exporter, tracer, options):
    """Each send has the span as its parent that is the current one of its caller, on whatever thread it is sent."""
    producer = client.create_producer(topic, **options)
    with tracer.start_as_current_span("root") as root:
        producer.send(b"1")
        producer.send_many([b"2", b"3"])
    parents = [one.parent.span_id for one in exporter.get_finished_spans() if one.name.startswith("send")]
    assert parents == [root.get_span_context().span_id] * 3


@pytest.mark.core
@pytest.mark.parametrize("way", ["process", "listener"])
def test_handlers_are_a_part_of_their_messages_span(client, topic, exporter, tracer, way):
    """What a handler or a listener does is a part of the message's trace, and its error is written into the span."""

    def handle(message):
        with tracer.start_as_current_span("handled"):
            pass
        raise ValueError(message.data())

    consumer_options = {"message_listener": lambda _, message: handle(message)} if way == "listener" else {}
    consumer = client.subscribe(topic, "s", **consumer_options)
    with tracer.start_as_current_span("root"):
        client.create_producer(topic).send(b"data")
    if way == "process":

        def handle_last(message):
            consumer.stop_processing()
            handle(message)

        async def handle_on_thread(message):
            await asyncio.to_thread(handle_last, message)

        consumer.process(handle_on_thread if isinstance(consumer, Awaited) else handle_last)
    assert eventually(lambda: any(one.name == "handled" for one in exporter.get_finished_spans()))
    consumer.close()
    spans = exporter.get_finished_spans()
    full = f"persistent://{topic.partition('://')[2]}"
    assert tree(spans) == {"root": {f"send {full}": {f"process {full}": {"handled": {}}}}}
    (processed,) = (one for one in spans if one.name.startswith("process"))
    assert [event.attributes["exception.type"] for event in processed.events] == ["ValueError"]
