"""Spans and metrics of messages, as the interceptors make them, without a broker."""

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
from pulsar_ext.intercept import OutgoingMessage
from pulsar_ext.otel import interceptors
from pulsar_ext.otel.instrumentor import PulsarExtInstrumentor

TOPIC = "persistent://public/default/t"
ACKNOWLEDGED = "messaging.pulsar.acknowledgment.type"
PRODUCER = types.SimpleNamespace(topic=lambda: TOPIC)
CONSUMER = types.SimpleNamespace(subscription_name=lambda: "s")


class ReceivedFake:
    """Fake of a received message."""

    span = None
    inner = types.SimpleNamespace(length=lambda: 4)

    def __init__(self, properties, entry=1, index=-1, redelivered=0):
        self._properties, self._id = properties, MessageId(-1, 1, entry, index)
        self.redelivery_count = lambda: redelivered

    def properties(self):
        """Return the properties."""
        return self._properties

    def topic_name(self):
        """Return the topic."""
        return TOPIC

    def message_id(self):
        """Return the id."""
        self._id.topic_name(TOPIC)
        return self._id


def context_of(*consumers):
    """Return the context of a client that has these consumers."""
    opener = types.SimpleNamespace(_open_receivers_=lambda: list(consumers))
    options = dict.fromkeys(("admin", "make_admin", "owns_admin", "open_reader", "schema_info"))
    return ClientContext(opener, operation_timeout_seconds=1, **options)


class Telemetry:
    """Telemetry of one client, with its reported spans and metrics."""

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
        """Return the interceptor of one producer, consumer or reader."""
        (make,) = (make for of, make in self.client.context.interceptors if of is kind)
        return make()

    @property
    def spans(self):
        """Spans in the order of their ends."""
        return self._spans.get_finished_spans()

    @property
    def counts(self):
        """Sums of the metrics by name; for a duration the number of measurements."""
        found = {}
        for resource in self._metrics.get_metrics_data().resource_metrics:
            for metric in (one for scope in resource.scope_metrics for one in scope.metrics):
                points = metric.data.data_points
                found[metric.name] = sum(getattr(one, "value", None) or getattr(one, "count", 0) for one in points)
        return found


@pytest.fixture
def telemetry():
    """Telemetry of a client."""
    return Telemetry()


def sent(telemetry, error=None, **options):
    """Send a message, and return it as sent."""
    producer = telemetry.of(ProducerInterceptor)
    message = producer.before_send(PRODUCER, OutgoingMessage.of(b"", options)).replace(value=b"by another one")
    producer.on_send_acknowledgement(PRODUCER, message, None if error else MessageId(-1, 1, 2, 3), error)
    return message


def endings(spans):
    """Return the kinds of the ends of messages' spans."""
    return [one.attributes[ACKNOWLEDGED] for one in spans if ACKNOWLEDGED in one.attributes]


def test_send_span_and_context_in_message(telemetry):
    """A send's span has the conventions' attributes, and its context is added to the message's properties."""
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
    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert dict(message.properties) == {"a": "b", "traceparent": expected}
    assert telemetry.counts == {
        "messaging.client.operation.duration": 1,
        "messaging.client.sent.messages": 1,
        "pulsar.client.producer.message.send.size": len(b"by another one"),
    }


def test_failed_send_span_has_error(telemetry):
    """The span has the error, and its type is an attribute of the metrics."""
    sent(telemetry, pulsar.Timeout("too late"))
    (span,) = telemetry.spans
    assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "Timeout")


def test_parent_of_send_span(telemetry):
    """The parent of a send is the current span, otherwise the span in the properties of a forwarded message."""
    tracer = telemetry.tracing.get_tracer("test")
    first = sent(telemetry)
    sent(telemetry, properties=dict(first.properties))
    with tracer.start_as_current_span("outer"):
        sent(telemetry, properties=dict(first.properties))
    one, passed_on, inside, outer = telemetry.spans
    assert passed_on.parent.span_id == one.get_span_context().span_id
    assert inside.parent.span_id == outer.get_span_context().span_id


@pytest.mark.parametrize("index", [-1, 0, 7])
def test_process_span_ends_with_acknowledgement(telemetry, index):
    """A message's span has the send's as parent, and the acknowledgement's as child."""
    consumer = telemetry.of(ConsumerInterceptor)
    message = consumer.before_consume(CONSUMER, ReceivedFake(dict(sent(telemetry).properties), 1, index))
    assert len(telemetry.spans) == 1
    consumer.on_acknowledge(CONSUMER, message.message_id(), None)
    send, ack, process = telemetry.spans
    assert [one.name for one in telemetry.spans] == [f"{name} {TOPIC}" for name in ("send", "ack", "process")]
    assert (ack.kind, process.kind) == (SpanKind.CLIENT, SpanKind.CONSUMER)
    assert ack.attributes["messaging.operation.type"] == "settle"
    assert process.attributes["messaging.destination.subscription.name"] == "s"
    assert process.attributes["messaging.message.id"] == message.message_id().to_text()
    assert endings([process]) == ["acknowledge"]
    assert (process.parent.span_id, ack.parent.span_id) == (
        send.get_span_context().span_id,
        process.get_span_context().span_id,
    )
    assert telemetry.counts["messaging.client.consumed.messages"] == 1
    assert telemetry.counts["messaging.process.duration"] == 1


def test_cumulative_ack_ends_earlier_spans(telemetry):
    """A cumulative acknowledgement ends spans up to its message, and not later ones or those of another topic."""
    consumer = telemetry.of(ConsumerInterceptor)
    messages = [ReceivedFake({}, entry, index) for entry, index in ((1, -1), (2, 0), (2, 1), (2, 2), (3, -1))]
    other = ReceivedFake({}, 0)
    other.topic_name = lambda: "other"
    for message in (*messages, other):
        consumer.before_consume(CONSUMER, message)
    consumer.on_acknowledge_cumulative(CONSUMER, messages[2].message_id(), None)
    assert endings(telemetry.spans) == ["cumulative_acknowledge"] * 3
    consumer.close()
    assert endings(telemetry.spans) == ["cumulative_acknowledge"] * 3 + ["closed"] * 3


def test_id_of_entry_ends_spans_of_whole_batch(telemetry):
    """The id of an entry acknowledges its whole batch, as for the broker."""
    consumer = telemetry.of(ConsumerInterceptor)
    for index in range(3):
        consumer.before_consume(CONSUMER, ReceivedFake({}, 5, index))
    consumer.on_acknowledge(CONSUMER, MessageId(-1, 1, 5, -1), None)
    assert endings(telemetry.spans) == ["acknowledge"] * 3


def test_failed_acknowledgement_does_not_end_span(telemetry):
    """A failed acknowledgement has a span with the error, and the message's span continues."""
    consumer = telemetry.of(ConsumerInterceptor)
    message = consumer.before_consume(CONSUMER, ReceivedFake({}))
    consumer.on_acknowledge(CONSUMER, message.message_id(), pulsar.AlreadyClosed("closed"))
    (ack,) = telemetry.spans
    assert ack.attributes["error.type"] == "AlreadyClosed"
    consumer.close()
    assert endings(telemetry.spans) == ["closed"]


def test_redelivery_ends_span_and_begins_another(telemetry):
    """A redelivery by a negative acknowledgement, a timeout or a seek ends the span and begins another."""
    consumer, message = telemetry.of(ConsumerInterceptor), ReceivedFake({}, 1, 4)
    entries = {MessageId(-1, 1, 1, -1)}
    consumer.before_consume(CONSUMER, message)
    consumer.on_negative_acks_send(CONSUMER, entries)
    consumer.before_consume(CONSUMER, message)
    consumer.on_ack_timeout_send(CONSUMER, entries)
    consumer.before_consume(CONSUMER, message)
    consumer.before_consume(CONSUMER, message)
    consumer.on_acknowledge(CONSUMER, message.message_id(), None)
    assert endings(telemetry.spans) == ["negative_acknowledge", "ack_timeout", "redelivered", "acknowledge"]


def test_unknown_id_has_no_span(telemetry):
    """An id that was not received here, such as a stored one, has no span."""
    consumer = telemetry.of(ConsumerInterceptor)
    consumer.on_acknowledge(CONSUMER, MessageId(-1, 9, 9, 9), None)
    consumer.on_acknowledge_cumulative(CONSUMER, MessageId(-1, 9, 9, 9), None)
    assert telemetry.spans == ()


def test_reader_span_ends_immediately(telemetry):
    """A read message has a span that ends immediately, in the trace of the message."""
    telemetry.of(ReaderInterceptor).before_read(None, ReceivedFake(dict(sent(telemetry).properties)))
    send, receive = telemetry.spans
    assert (receive.name, receive.parent.span_id) == (f"receive {TOPIC}", send.get_span_context().span_id)


def test_processing_block_sets_current_span(telemetry):
    """The block makes the message's span the current one, and does not end it."""
    consumer = telemetry.of(ConsumerInterceptor)
    message = consumer.before_consume(CONSUMER, ReceivedFake({}))
    with pulsar_ext.otel.processing(message):
        sent(telemetry)
    assert not trace.get_current_span().get_span_context().is_valid
    consumer.on_acknowledge(CONSUMER, message.message_id(), None)
    send, _, process = telemetry.spans
    assert send.parent.span_id == process.get_span_context().span_id


def test_invalid_instrumentation_raises(telemetry):
    """Other objects, a second instrumentation, and a message without a span raise."""
    with pytest.raises(InvalidUse, match="already"):
        pulsar_ext.otel.instrument(telemetry.client)
    with pytest.raises(InvalidUse, match="takes a client"):
        pulsar_ext.otel.instrument(pulsar)
    with pytest.raises(InvalidUse, match="no span"):
        pulsar_ext.otel.processing(ReceivedFake({}))


def test_redeliveries_and_duplicates_are_counted(telemetry):
    """Redelivered messages and duplicates are counted, others are not."""
    consumer = telemetry.of(ConsumerInterceptor)
    for entry, redelivered in ((1, 0), (2, 1), (2, 2)):
        consumer.before_consume(CONSUMER, ReceivedFake({}, entry, redelivered=redelivered))
    sent(telemetry, DuplicateMessage("held"))
    counts = telemetry.counts
    assert counts["pulsar.client.consumer.message.redelivered"] == 2
    assert counts["pulsar.client.consumer.message.received.size"] == 12
    assert counts["pulsar.client.producer.message.duplicate"] == 1
    assert "pulsar.client.producer.message.send.size" not in counts


def test_gauges_sum_consumers_of_several_clients(monkeypatch):
    """Each provider sums the consumers of its own clients only, and references clients weakly."""
    consumer = pulsar_ext.Consumer()
    monkeypatch.setattr(type(consumer), "subscribed_to", lambda _: TOPIC)
    monkeypatch.setattr(type(consumer), "subscription_name", lambda _: "s")
    monkeypatch.setattr(interceptors, "_GAUGES", [("held", "", "", lambda _: 3)])
    one, other = InMemoryMetricReader(), InMemoryMetricReader()
    contexts = [context_of(consumer, None) for _ in range(3)]
    provider = MeterProvider([one])
    for context, meters in zip(contexts, (provider, provider, MeterProvider([other])), strict=True):
        interceptors.observe(context, meters)

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


def test_instrument_replaces_instrumentor():
    """An instrumentation by the application replaces the instrumentor's, so spans are not duplicated."""
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
