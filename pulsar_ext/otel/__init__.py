"""OpenTelemetry for producers, consumers and readers: `pulsar_ext.otel.instrument(client)`.

Spans have the names and attributes of Java's `OpenTelemetryProducerInterceptor` and `OpenTelemetryConsumerInterceptor`.
Their context is in the same message properties (`traceparent`, `tracestate`), so one trace spans programs in both
languages. Needs the extra `otel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext._native.handles import AsyncClientHandle
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.client.client import Client
from pulsar_ext.errors import InvalidUse, MissingExtra

with MissingExtra.named("otel", "pulsar_ext.otel"):
    from .interceptors import instrument_context, processing

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


__all__ = ["instrument", "processing"]


def instrument(
    client: Client | AsyncClientHandle,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Trace and count the operations of a client's producers, consumers and readers that are opened from now on.

    Args:
        client: a `pulsar_ext.Client` or a `pulsar_ext.asyncio.Client`.
        tracer_provider: the provider for spans; by default the global one.
        meter_provider: the provider for metrics; by default the global one.

    Raises:
        InvalidUse: it is not such a client, or is already instrumented. An instrumentation by
            `opentelemetry-instrument` is replaced.
    """
    context = getattr(getattr(client, "blocking", client), "context", None)
    if not isinstance(context, ClientContext):
        raise InvalidUse(f"instrument() takes a client of pulsar_ext or pulsar_ext.asyncio, got {client!r}.")
    instrument_context(context, tracer_provider, meter_provider)
