"""Instrumentation of a client: its interceptors, and the observation of its consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import get_meter
from opentelemetry.trace import get_tracer

from pulsar_ext.errors import InvalidUse
from pulsar_ext.intercept.interfaces import ConsumerInterceptor, ProducerInterceptor, ReaderInterceptor

from .instruments import Instruments, observe
from .interceptors import ConsumerTelemetry, ProducerTelemetry, ReaderTelemetry

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from pulsar_ext._runtime.context import ClientContext


def instrument_context(
    context: ClientContext,
    tracer_provider: TracerProvider | None,
    meter_provider: MeterProvider | None,
    *,
    automatic: bool = False,
) -> None:
    """Trace and count the operations of everything that a client opens from now on."""
    if any(isinstance(make, _Factory) and not make.automatic for _, make in context.interceptors):
        raise InvalidUse("This client is instrumented already; a second time would duplicate its spans.")
    instruments = Instruments(
        get_tracer("pulsar_ext", tracer_provider=tracer_provider),
        get_meter("pulsar_ext", meter_provider=meter_provider),
    )
    context.report_event = instruments.count_event
    observe(context, meter_provider)
    context.interceptors[:] = [
        *(one for one in context.interceptors if not isinstance(one[1], _Factory)),
        (ProducerInterceptor, _Factory(ProducerTelemetry, instruments, automatic=automatic)),
        (ConsumerInterceptor, _Factory(ConsumerTelemetry, instruments, automatic=automatic)),
        (ReaderInterceptor, _Factory(ReaderTelemetry, instruments, automatic=automatic)),
    ]


class _Factory:
    """Factory of one kind of interceptors, one for each producer, consumer or reader."""

    def __init__(self, kind: type[Any], instruments: Instruments, *, automatic: bool) -> None:
        self._kind, self._instruments, self.automatic = kind, instruments, automatic

    def __call__(self) -> Any:
        return self._kind(self._instruments)
