"""The spans and the metrics of one client, by the semantic conventions for messaging."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanKind, Status, StatusCode

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Span, Tracer

__all__ = ["Instruments", "fail"]

_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
"""The buckets of a duration that the conventions advise."""
KINDS = {"send": SpanKind.PRODUCER, "process": SpanKind.CONSUMER, "receive": SpanKind.CONSUMER, "ack": SpanKind.CLIENT}
_TYPES = {"ack": "settle"}
"""What the conventions call an operation whose name is its own."""


class Instruments:
    """What interceptors report to.

    Args:
        tracer: begins spans.
        meter: makes counters and histograms.
    """

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages that were sent.")
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were handed to the application."
        )
        self.operation = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long a send took until it was persisted, or failed.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.process = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long a message took from its receive to its acknowledgement.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def attributes(self, operation: str, topic: str, more: dict[str, Any]) -> dict[str, Any]:
        """Give what a span and a metric say of an operation.

        Args:
            operation: its name: send, process, receive or ack.
            topic: its destination, or where its message came from.
            more: what else they say.
        """
        return {
            "messaging.system": "pulsar",
            "messaging.operation.name": operation,
            "messaging.operation.type": _TYPES.get(operation, operation),
            "messaging.destination.name": topic,
            **more,
        }

    def begin(self, attributes: dict[str, Any], parent: Context | None) -> Span:
        """Begin the span of an operation.

        Args:
            attributes: what `attributes()` gave, and what only the span says.
            parent: of what it is a part; None for whatever is current.
        """
        operation = attributes["messaging.operation.name"]
        name = f"{operation} {attributes['messaging.destination.name']}"
        return self._tracer.start_span(name, parent, kind=KINDS[operation], attributes=attributes)


def fail(span: Span, error: BaseException) -> str:
    """Have a span say that its operation failed; give the error's type as the conventions name it."""
    kind = type(error).__qualname__
    span.record_exception(error)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    return kind
