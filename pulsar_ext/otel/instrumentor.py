"""What `opentelemetry-instrument` switches on: every client of the process is traced and counted.

That command finds it by its entry point. It needs the package `opentelemetry-instrumentation`, which has the command.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]  # untyped there

from pulsar_ext._runtime.context import ClientContext

from .instrumenting import instrument_context

if TYPE_CHECKING:
    from collections.abc import Collection


class PulsarExtInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # as above
    """Instruments every client that is opened from now on, as `pulsar_ext.otel.instrument(client)` does one.

    `PulsarExtInstrumentor().instrument(tracer_provider=…, meter_provider=…)` does the same without the command.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Name nothing: what is instrumented is this package itself."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        self._begin = partial(
            instrument_context,
            tracer_provider=kwargs.get("tracer_provider"),
            meter_provider=kwargs.get("meter_provider"),
            automatic=True,
        )
        ClientContext.begun.append(self._begin)

    def _uninstrument(self, **kwargs: Any) -> None:  # noqa: ARG002  # takes none
        ClientContext.begun.remove(self._begin)
