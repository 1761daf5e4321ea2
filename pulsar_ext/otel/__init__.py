"""OpenTelemetry for producers, consumers and readers: `pulsar_ext.otel.instrument(client)`.

Spans have the names and attributes of Java's `OpenTelemetryProducerInterceptor` and `OpenTelemetryConsumerInterceptor`,
and their context goes with each message in the same properties (`traceparent`, `tracestate`), so that a trace goes
through programs in both languages. Needs the extra `otel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import get_meter
from opentelemetry.trace import get_tracer

from pulsar_ext.errors import InvalidUse
from pulsar_ext.intercept.interfaces import ConsumerInterceptor, ProducerInterceptor, ReaderInterceptor

from .consuming import ConsumerTelemetry, ReaderTelemetry, processing
from .gauges import observe
from .instruments import Instruments
from .producing import ProducerTelemetry

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from pulsar_ext._runtime.context import ClientContext

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
        InvalidUse: it is no such client, or is instrumented already.
    """
    context: ClientContext | None = getattr(getattr(client, "blocking", client), "context", None)
    made = getattr(context, "interceptors", None)
    if context is None or made is None:
        raise InvalidUse(f"instrument() takes a client of pulsar_ext or pulsar_ext.asyncio, not {client!r}.")
    if any(isinstance(make, _Making) for _, make in made):
        raise InvalidUse("This client is instrumented already; another time would have each span twice.")
    instruments = Instruments(
        get_tracer("pulsar_ext", tracer_provider=tracer_provider),
        get_meter("pulsar_ext", meter_provider=meter_provider),
    )
    context.tell = instruments.happened
    observe(context, meter_provider)
    made += [
        (ProducerInterceptor, _Making(ProducerTelemetry, instruments)),
        (ConsumerInterceptor, _Making(ConsumerTelemetry, instruments)),
        (ReaderInterceptor, _Making(ReaderTelemetry, instruments)),
    ]


class _Making:
    """Makes the interceptors of one kind, one for each producer, consumer or reader."""

    def __init__(self, kind: type[Any], instruments: Instruments) -> None:
        self._kind, self._instruments = kind, instruments

    def __call__(self) -> Any:
        return self._kind(self._instruments)
