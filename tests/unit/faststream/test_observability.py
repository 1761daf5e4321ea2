"""FastStream's middlewares for Prometheus and OpenTelemetry, with this broker's messages."""

from __future__ import annotations

import asyncio

import pytest
from faststream.exceptions import SkipMessage
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from pulsar_ext.faststream import PulsarBroker, TestPulsarBroker
from pulsar_ext.faststream.opentelemetry import PulsarTelemetryMiddleware
from pulsar_ext.faststream.prometheus import PulsarPrometheusMiddleware

IN, OUT = "persistent://public/default/in", "persistent://public/default/out"


def run_chain(*middlewares, around=None, batch=False):
    """Publish 3 messages of 3 bytes through two handlers, the second of which skips them."""
    service = PulsarBroker("pulsar://localhost:1", middlewares=middlewares)

    @service.subscriber("in", subscription="s", batch=batch)
    @service.publisher("out")
    async def first(body) -> bytes:
        return b"four"

    @service.subscriber("out", subscription="s")
    async def second(body: bytes):
        raise SkipMessage

    async def steps():
        async with TestPulsarBroker(service) as tested:
            if around is None:
                await tested.publish_batch(b"abc", b"abc", b"abc", topic="in")
            else:
                with around.start_as_current_span("root"):
                    await tested.publish(b"abc", "in")

    asyncio.run(steps())


@pytest.mark.parametrize("batch", [False, True])
def test_prometheus_counts_messages(batch):
    """Messages are counted by the full names of their topics, each of a batch, with their sizes."""
    registry = CollectorRegistry()
    run_chain(PulsarPrometheusMiddleware(registry=registry, custom_labels={"shop": "north"}), batch=batch)

    def value(name, topic, **labels):
        where = "destination" if name.startswith("published") else "handler"
        labels |= {"app_name": "faststream", "broker": "pulsar", "shop": "north", where: topic}
        return registry.get_sample_value(f"faststream_{name}", labels)

    handled = 1 if batch else 3
    assert value("published_messages_total", IN, status="success") == 3
    assert value("received_messages_total", IN) == 3
    assert value("received_messages_size_bytes_sum", IN) == 9
    assert value("received_messages_size_bytes_sum", OUT) == handled * 4
    assert value("received_processed_messages_total", IN, status="acked") == 3
    assert value("received_processed_messages_total", OUT, status="skipped") == handled


def test_opentelemetry_spans_form_one_trace():
    """Published messages and both handlers are part of the current trace."""
    exporter, provider, reader = InMemorySpanExporter(), TracerProvider(), InMemoryMetricReader()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider(metric_readers=[reader])
    middleware = PulsarTelemetryMiddleware(tracer_provider=provider, meter_provider=meters)
    run_chain(middleware, around=provider.get_tracer("test"))
    spans = exporter.get_finished_spans()
    assert len({one.context.trace_id for one in spans}) == 1
    assert {one.name for one in spans} >= {"root", f"{IN} publish", f"{IN} process", f"{OUT} publish", f"{OUT} process"}
    (processed,) = (one for one in spans if one.name == f"{IN} process")
    assert processed.attributes["messaging.system"] == "pulsar"
    assert processed.attributes["messaging.message.payload_size_bytes"] == 3
    (resource,) = reader.get_metrics_data().resource_metrics
    assert {one.name for scope in resource.scope_metrics for one in scope.metrics} >= {"messaging.process.messages"}


def test_opentelemetry_counts_a_batch():
    """The span of a batch has the number of its messages."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    run_chain(PulsarTelemetryMiddleware(tracer_provider=provider), batch=True)
    (processed,) = (one for one in exporter.get_finished_spans() if one.name == f"{IN} process")
    assert processed.attributes["messaging.batch.message_count"] == 3
    assert processed.attributes["messaging.message.payload_size_bytes"] == 9
