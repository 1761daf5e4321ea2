"""Instrumentor for the command `opentelemetry-instrument`, which traces and counts every client of the process.

The command finds it by its entry point. Needs the package `opentelemetry-instrumentation`, which has the command.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]  # untyped there

from pulsar_ext._runtime.context import ClientContext

from .interceptors import instrument_context


class PulsarExtInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # untyped there
    """Instruments every client that is opened from now on, see `pulsar_ext.otel.instrument(client)`.

    `PulsarExtInstrumentor().instrument(tracer_provider=…, meter_provider=…)` works without the command.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: this package instruments itself."""
        return ()

    def _instrument(self, **given: Any) -> None:
        providers: dict[str, Any] = {name: given.get(name) for name in ("tracer_provider", "meter_provider")}
        self._begin = partial(instrument_context, **providers, automatic=True)
        ClientContext.begun.append(self._begin)

    def _uninstrument(self, **_: object) -> None:
        ClientContext.begun.remove(self._begin)
