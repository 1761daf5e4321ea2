"""Instrumentor for the command `opentelemetry-instrument`, which traces and counts every client of the process.

The command finds it by its entry point. Needs the package `opentelemetry-instrumentation`, which has the command.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]  # untyped there
from opentelemetry.metrics import MeterProvider  # noqa: TC002  # loaded anyway
from opentelemetry.trace import TracerProvider  # noqa: TC002  # loaded anyway

from pulsar_ext._runtime.context import ClientContext

from .interceptors import instrument_context


class PulsarExtInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # untyped there
    """Instruments every client that is opened from now on, see `pulsar_ext.otel.instrument(client)`.

    `PulsarExtInstrumentor().instrument(tracer_provider=…, meter_provider=…)` works without the command.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: this package instruments itself."""
        return ()

    def _instrument(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None, **_: object
    ) -> None:
        self._begin = partial(
            instrument_context, tracer_provider=tracer_provider, meter_provider=meter_provider, automatic=True
        )
        ClientContext.begun.append(self._begin)

    def _uninstrument(self, **_: object) -> None:
        ClientContext.begun.remove(self._begin)
