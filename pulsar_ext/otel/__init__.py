"""OpenTelemetry for producers, consumers and readers: `pulsar_ext.otel.instrument(client)`.

Spans have the names and attributes of Java's `OpenTelemetryProducerInterceptor` and `OpenTelemetryConsumerInterceptor`,
and their context goes with each message in the same properties (`traceparent`, `tracestate`), so that a trace goes
through programs in both languages. Needs the extra `otel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.errors import InvalidUse, MissingExtra

with MissingExtra.named("otel", "pulsar_ext.otel"):
    from .instrumenting import instrument_context
    from .interceptors import processing

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["instrument", "processing"]


def instrument(
    client: Any, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Have a client trace and count what its producers, consumers and readers do that are opened from now on.

    Args:
        client: a `pulsar_ext.Client` or a `pulsar_ext.asyncio.Client`.
        tracer_provider: where spans go; by default the global one.
        meter_provider: where metrics go; by default the global one.

    Raises:
        InvalidUse: it is no such client, or is instrumented already; not if only `opentelemetry-instrument` has done
            so, in whose place this comes.
    """
    context = getattr(getattr(client, "blocking", client), "context", None)
    if not isinstance(context, ClientContext):
        raise InvalidUse(f"instrument() takes a client of pulsar_ext or pulsar_ext.asyncio, not {client!r}.")
    instrument_context(context, tracer_provider, meter_provider)
