"""The spans and metrics of messages, as the interceptors make them; no broker is needed for that."""

from __future__ import annotations

import gc
import types

import pulsar
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import pulsar_ext.otel
from pulsar_ext import ConsumerInterceptor, MessageId, ProducerInterceptor, ReaderInterceptor
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.errors import DuplicateMessage, InvalidUse
from pulsar_ext.intercept.interfaces import OutgoingMessage
from pulsar_ext.otel import instruments
from pulsar_ext.otel.instrumentor import PulsarExtInstrumentor

TOPIC = "persistent://public/default/t"
ACKNOWLEDGED = "messaging.pulsar.acknowledgment.type"
PRODUCER = types.SimpleNamespace(topic=lambda: TOPIC)
CONSUMER = types.SimpleNamespace(subscription_name=lambda: "s")


class Came:
    """A message that came."""

    span = None
    inner = types.SimpleNamespace(length=lambda: 4)

    def __init__(self, properties, entry=1, index=-1, redelivered=0):
        self._properties, self._id = properties, MessageId(-1, 1, entry, index)
        self.redelivery_count = lambda: redelivered

    def properties(self):
        """Give them."""
        return self._properties

    def topic_name(self):
        """Give it."""
        return TOPIC

    def message_id(self):
        """Give it."""
        self._id.topic_name(TOPIC)
        return self._id


def context_of(*consumers):
    """What a client that has these consumers shares with its parts."""
    opener = types.SimpleNamespace(_received_by_=lambda: list(consumers))
    options = dict.fromkeys(("admin", "make_admin", "owns_admin", "open_reader", "schema_info"))
    return ClientContext(opener, operation_timeout_seconds=1, **options)


class Telemetry:
    """One client's, with what it reported."""

    def __init__(self):
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracing = TracerProvider()
        self.tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        self.client = types.SimpleNamespace(context=context_of())
        self.options = {
            "tracer_provider": self.tracing,
            "meter_provider": MeterProvider(metric_readers=[self._metrics]),
        }
        pulsar_ext.otel.instrument(self.client, **self.options)

    def of(self, kind):
        """Give the interceptor of one producer, consumer or reader."""
        (make,) = (make for of, make in self.client.context.interceptors if of is kind)
        return make()

    @property
    def spans(self):
        """The spans that ended, in that order."""
        return self._spans.get_finished_spans()

    @property
    def counts(self):
        """What was counted, by name, with how often a duration was measured."""
        found = {}
        for resource in self._metrics.get_metrics_data().resource_metrics:
            for metric in (one for scope in resource.scope_metrics for one in scope.metrics):
                points = metric.data.data_points
                found[metric.name] = sum(getattr(one, "value", None) or getattr(one, "count", 0) for one in points)
        return found


@pytest.fixture
def telemetry():
    """A client's telemetry."""
    return Telemetry()


def sent(telemetry, error=None, **options):
    """Send a message; give it as it was sent."""
    producer = telemetry.of(ProducerInterceptor)
    message = producer.before_send(PRODUCER, OutgoingMessage.of(b"", options)).replace(value=b"by another one")
    producer.on_send_acknowledgement(PRODUCER, message, None if error else MessageId(-1, 1, 2, 3), error)
    return message


def how(spans):
    """Give how the spans of messages ended."""
    return [one.attributes[ACKNOWLEDGED] for one in spans if ACKNOWLEDGED in one.attributes]


def test_a_send_is_a_span_whose_context_goes_with_the_message(telemetry):
    """By the conventions, and in the properties that Java's client reads; the message keeps its own."""
    message = sent(telemetry, properties={"a": "b"})
    (span,) = telemetry.spans
    assert (span.name, span.kind) == (f"send {TOPIC}", SpanKind.PRODUCER)
    assert span.attributes == {
        "messaging.system": "pulsar",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": TOPIC,
        "messaging.message.id": MessageId(-1, 1, 2, 3).to_text(),
    }
    context = span.get_span_context()
    place = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert dict(message.properties) == {"a": "b", "traceparent": place}
    assert telemetry.counts == {
        "messaging.client.operation.duration": 1,
        "messaging.client.sent.messages": 1,
        "pulsar.client.producer.message.send.size": len(b"by another one"),
    }


def test_a_send_that_fails_says_why(telemetry):
    """The span has the error, and its type is an attribute of the metrics."""
    sent(telemetry, pulsar.Timeout("too late"))
    (span,) = telemetry.spans
    assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "Timeout")


def test_a_send_is_a_part_of_the_current_span_or_of_the_trace_that_it_passes_on(telemetry):
    """The current span wins over the properties of a message that is passed on."""
    tracer = telemetry.tracing.get_tracer("test")
    first = sent(telemetry)
    sent(telemetry, properties=dict(first.properties))
    with tracer.start_as_current_span("outer"):
        sent(telemetry, properties=dict(first.properties))
    one, passed_on, inside, outer = telemetry.spans
    assert passed_on.parent.span_id == one.get_span_context().span_id
    assert inside.parent.span_id == outer.get_span_context().span_id


@pytest.mark.parametrize("index", [-1, 0, 7])
def test_a_message_is_processed_until_it_is_acknowledged(telemetry, index):
    """Its span is a part of the send's, and has the acknowledgement as a part."""
    consumer = telemetry.of(ConsumerInterceptor)
    message = consumer.before_consume(CONSUMER, Came(dict(sent(telemetry).properties), 1, index))
    assert len(telemetry.spans) == 1
    consumer.on_acknowledge(CONSUMER, message.message_id(), None)
    send, settle, process = telemetry.spans
    assert [one.name for one in telemetry.spans] == [f"{name} {TOPIC}" for name in ("send", "ack", "process")]
    assert (settle.kind, process.kind) == (SpanKind.CLIENT, SpanKind.CONSUMER)
    assert settle.attributes["messaging.operation.type"] == "settle"
    assert process.attributes["messaging.destination.subscription.name"] == "s"
    assert process.attributes["messaging.message.id"] == message.message_id().to_text()
    assert how([process]) == ["acknowledge"]
    assert (process.parent.span_id, settle.parent.span_id) == (
        send.get_span_context().span_id,
        process.get_span_context().span_id,
    )
    assert telemetry.counts["messaging.client.consumed.messages"] == 1
    assert telemetry.counts["messaging.process.duration"] == 1


def test_a_cumulative_acknowledgement_ends_those_before_it_and_no_other(telemetry):
    """What is behind it, and in another topic, goes on."""
    consumer = telemetry.of(ConsumerInterceptor)
    messages = [Came({}, entry, index) for entry, index in ((1, -1), (2, 0), (2, 1), (2, 2), (3, -1))]
    other = Came({}, 0)
    other.topic_name = lambda: "other"
    for message in (*messages, other):
        consumer.before_consume(CONSUMER, message)
    consumer.on_acknowledge_cumulative(CONSUMER, messages[2].message_id(), None)
    assert how(telemetry.spans) == ["cumulative_acknowledge"] * 3
    consumer.close()
    assert how(telemetry.spans) == ["cumulative_acknowledge"] * 3 + ["closed"] * 3


def test_the_id_of_an_entry_is_that_of_its_whole_batch(telemetry):
    """As the broker understands it."""
    consumer = telemetry.of(ConsumerInterceptor)
    for index in range(3):
        consumer.before_consume(CONSUMER, Came({}, 5, index))
    consumer.on_acknowledge(CONSUMER, MessageId(-1, 1, 5, -1), None)
    assert how(telemetry.spans) == ["acknowledge"] * 3


def test_an_acknowledgement_that_is_refused_ends_nothing(telemetry):
    """It has a span that says why; the message is still being processed."""
    consumer = telemetry.of(ConsumerInterceptor)
    message = consumer.before_consume(CONSUMER, Came({}))
    consumer.on_acknowledge(CONSUMER, message.message_id(), pulsar.AlreadyClosed("closed"))
    (settle,) = telemetry.spans
    assert settle.attributes["error.type"] == "AlreadyClosed"
    consumer.close()
    assert how(telemetry.spans) == ["closed"]


def test_what_comes_again_ends_and_begins_anew(telemetry):
    """By a negative acknowledgement, a timeout, or a seek."""
    consumer, message = telemetry.of(ConsumerInterceptor), Came({}, 1, 4)
    entries = {MessageId(-1, 1, 1, -1)}
    consumer.before_consume(CONSUMER, message)
    consumer.on_negative_acks_send(CONSUMER, entries)
    consumer.before_consume(CONSUMER, message)
    consumer.on_ack_timeout_send(CONSUMER, entries)
    consumer.before_consume(CONSUMER, message)
    consumer.before_consume(CONSUMER, message)
    consumer.on_acknowledge(CONSUMER, message.message_id(), None)
    assert how(telemetry.spans) == ["negative_acknowledge", "ack_timeout", "redelivered", "acknowledge"]


def test_an_id_that_nobody_received_is_no_span(telemetry):
    """Such as a stored one: nothing is known of it."""
    consumer = telemetry.of(ConsumerInterceptor)
    consumer.on_acknowledge(CONSUMER, MessageId(-1, 9, 9, 9), None)
    consumer.on_acknowledge_cumulative(CONSUMER, MessageId(-1, 9, 9, 9), None)
    assert telemetry.spans == ()


def test_a_reader_says_that_it_received_a_message(telemetry):
    """A span that ends at once, in the trace of the message."""
    telemetry.of(ReaderInterceptor).before_read(None, Came(dict(sent(telemetry).properties)))
    send, receive = telemetry.spans
    assert (receive.name, receive.parent.span_id) == (f"receive {TOPIC}", send.get_span_context().span_id)


def test_what_is_done_in_a_processing_block_is_a_part_of_it(telemetry):
    """The block makes the message's span the current one, and does not end it."""
    consumer = telemetry.of(ConsumerInterceptor)
    message = consumer.before_consume(CONSUMER, Came({}))
    with pulsar_ext.otel.processing(message):
        sent(telemetry)
    assert not trace.get_current_span().get_span_context().is_valid
    consumer.on_acknowledge(CONSUMER, message.message_id(), None)
    send, _, process = telemetry.spans
    assert send.parent.span_id == process.get_span_context().span_id


def test_wrong_uses_are_refused(telemetry):
    """What is no client, a second time, and a message that has no span."""
    with pytest.raises(InvalidUse, match="already"):
        pulsar_ext.otel.instrument(telemetry.client)
    with pytest.raises(InvalidUse, match="takes a client"):
        pulsar_ext.otel.instrument(pulsar)
    with pytest.raises(InvalidUse, match="no span"):
        pulsar_ext.otel.processing(Came({}))


def test_what_came_again_and_what_was_held_already_are_counted(telemetry):
    """A message that was delivered before, and one that the topic holds; the others are not."""
    consumer = telemetry.of(ConsumerInterceptor)
    for entry, redelivered in ((1, 0), (2, 1), (2, 2)):
        consumer.before_consume(CONSUMER, Came({}, entry, redelivered=redelivered))
    sent(telemetry, DuplicateMessage("held"))
    counts = telemetry.counts
    assert counts["pulsar.client.consumer.message.redelivered"] == 2
    assert counts["pulsar.client.consumer.message.received.size"] == 12
    assert counts["pulsar.client.producer.message.duplicate"] == 1
    assert "pulsar.client.producer.message.send.size" not in counts


def test_the_consumers_of_several_clients_are_looked_at(monkeypatch):
    """One provider shows those of all its clients, in sum; another one none of them, and nothing keeps a client."""
    consumer = pulsar_ext.Consumer()
    monkeypatch.setattr(type(consumer), "subscribed_to", lambda _: TOPIC)
    monkeypatch.setattr(type(consumer), "subscription_name", lambda _: "s")
    monkeypatch.setattr(instruments, "_GAUGES", [("held", "", "", lambda _: 3)])
    one, other = InMemoryMetricReader(), InMemoryMetricReader()
    contexts = [context_of(consumer, None) for _ in range(3)]
    provider = MeterProvider([one])
    for context, meters in zip(contexts, (provider, provider, MeterProvider([other])), strict=True):
        instruments.observe(context, meters)

    def shown(reader):
        data = reader.get_metrics_data()
        return (
            []
            if data is None
            else [
                point.value
                for resource in data.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
                for point in metric.data.data_points
            ]
        )

    assert (shown(one), shown(other)) == ([6], [3])
    del contexts[:2], context
    gc.collect()
    assert (shown(one), shown(other)) == ([], [3])


def test_a_client_of_an_instrumented_process_may_be_instrumented_once_more():
    """What the application asks for comes in the place of the instrumentor's, so no span is there twice."""
    PulsarExtInstrumentor().instrument()
    try:
        context = context_of()
        by_itself = [kind for kind, _ in context.interceptors]
        pulsar_ext.otel.instrument(types.SimpleNamespace(context=context))
        assert [kind for kind, _ in context.interceptors] == by_itself
        assert len(set(by_itself)) == len(by_itself) == 3
        with pytest.raises(InvalidUse, match="already"):
            pulsar_ext.otel.instrument(types.SimpleNamespace(context=context))
    finally:
        PulsarExtInstrumentor().uninstrument()
    assert context_of().interceptors == []
