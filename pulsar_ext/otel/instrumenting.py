"""How a client comes to be traced and counted: its interceptors, and who looks at its consumers."""

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
    """Have a client trace and count what is opened from now on.

    Args:
        context: of the client.
        tracer_provider: where spans go; None for the global one.
        meter_provider: where metrics go; None for the global one.
        automatic: whether the application did not ask for it; what it asks for then comes in the place of this.

    Raises:
        InvalidUse: the application has asked for it already.
    """
    if any(isinstance(make, _Making) and not make.automatic for _, make in context.interceptors):
        raise InvalidUse("This client is instrumented already; another time would have each span twice.")
    instruments = Instruments(
        get_tracer("pulsar_ext", tracer_provider=tracer_provider),
        get_meter("pulsar_ext", meter_provider=meter_provider),
    )
    context.tell = instruments.happened
    observe(context, meter_provider)
    context.interceptors[:] = [
        *(one for one in context.interceptors if not isinstance(one[1], _Making)),
        (ProducerInterceptor, _Making(ProducerTelemetry, instruments, automatic=automatic)),
        (ConsumerInterceptor, _Making(ConsumerTelemetry, instruments, automatic=automatic)),
        (ReaderInterceptor, _Making(ReaderTelemetry, instruments, automatic=automatic)),
    ]


class _Making:
    """Makes the interceptors of one kind, one for each producer, consumer or reader."""

    def __init__(self, kind: type[Any], instruments: Instruments, *, automatic: bool) -> None:
        self._kind, self._instruments, self.automatic = kind, instruments, automatic

    def __call__(self) -> Any:
        return self._kind(self._instruments)
