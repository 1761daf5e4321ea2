"""A Python producer and consumer make one trace, on a real broker."""

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
    """Exporter of the reported spans."""
    return InMemorySpanExporter()


@pytest.fixture(autouse=True)
def tracer(client, exporter):
    """Instrument the client, and return a tracer for the application's own spans."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    pulsar_ext.otel.instrument(getattr(client, "awaited", client), tracer_provider=provider)
    return provider.get_tracer("application")


def tree(spans):
    """Return the trace as nested names; it has one root."""
    assert len({one.get_span_context().trace_id for one in spans}) == 1

    def children_of(parent):
        inside = [one for one in spans if (one.parent and one.parent.span_id) == parent]
        return {one.name: children_of(one.get_span_context().span_id) for one in inside}

    return children_of(None)


@pytest.mark.core
@pytest.mark.parametrize("batched", [False, True], ids=["plain", "batched"])
def test_forwarded_message_is_one_trace(client, topic, exporter, batched):
    """Send, process, forward and read are nested, through two topics."""
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


def test_telemetry_beside_application_interceptors(client, topic, exporter):
    """The client's interceptors are called first; the application's may change the message and keep the context."""

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
def test_sends_are_children_of_callers_span(client, topic, exporter, tracer, options):
    """The parent of each send is the caller's current span, on any sending thread."""
    producer = client.create_producer(topic, **options)
    with tracer.start_as_current_span("root") as root:
        producer.send(b"1")
        producer.send_many([b"2", b"3"])
    parents = [one.parent.span_id for one in exporter.get_finished_spans() if one.name.startswith("send")]
    assert parents == [root.get_span_context().span_id] * 3


@pytest.mark.core
@pytest.mark.parametrize("way", ["process", "listener"])
def test_handler_spans_are_children_of_message_span(client, topic, exporter, tracer, way):
    """Spans of a handler or a listener are children of the message's span, which records its error."""

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
