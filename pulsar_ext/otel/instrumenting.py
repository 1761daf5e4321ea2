"""Instrumentation of a client: its interceptors, and the observation of its consumers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.metrics import get_meter
from opentelemetry.trace import get_tracer

from pulsar_ext.errors import InvalidUse
from pulsar_ext.intercept.interfaces import ConsumerInterceptor, ProducerInterceptor, ReaderInterceptor

from .instruments import Instruments, observe
from .interceptors import ConsumerTelemetry, ProducerTelemetry, ReaderTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.intercept.interfaces import Interceptor


def instrument_context(
    context: ClientContext,
    tracer_provider: TracerProvider | None,
    meter_provider: MeterProvider | None,
    *,
    automatic: bool = False,
) -> None:
    """Trace and count the operations of everything that a client opens from now on.

    An `automatic` instrumentation, which the application did not request, is replaced by its own request.
    """
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
        (ProducerInterceptor, _Factory(ProducerTelemetry, instruments, automatic)),
        (ConsumerInterceptor, _Factory(ConsumerTelemetry, instruments, automatic)),
        (ReaderInterceptor, _Factory(ReaderTelemetry, instruments, automatic)),
    ]


@dataclass(frozen=True)
class _Factory:
    """Factory of one kind of interceptors, one for each producer, consumer or reader."""

    kind: Callable[[Instruments], Interceptor]
    instruments: Instruments
    automatic: bool

    def __call__(self) -> Interceptor:
        return self.kind(self.instruments)
