"""The spans and the metrics of one client, by the semantic conventions for messaging."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanKind, Status, StatusCode

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Meter
    from opentelemetry.trace import Span, Tracer

    from pulsar_ext._runtime.context import Happening

__all__ = ["DESTINATION", "SUBSCRIPTION", "SYSTEM", "Instruments", "fail"]

SYSTEM, DESTINATION = "messaging.system", "messaging.destination.name"
SUBSCRIPTION = "messaging.destination.subscription.name"

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

        # From here on by the names of Java's client, where it has the same.
        self.sent_bytes = meter.create_counter(
            "pulsar.client.producer.message.send.size", "By", "Bytes of messages that were persisted."
        )
        self.duplicates = meter.create_counter(
            "pulsar.client.producer.message.duplicate", "{message}", "Messages that the topic held already."
        )
        self.received_bytes = meter.create_counter(
            "pulsar.client.consumer.message.received.size", "By", "Bytes of messages that were handed out."
        )
        self.redelivered = meter.create_counter(
            "pulsar.client.consumer.message.redelivered",
            "{message}",
            "Messages that were handed out and had been delivered before.",
        )
        self._happenings: dict[Happening, Counter] = {
            "dead letter": meter.create_counter(
                "pulsar.client.consumer.message.dlq", "{message}", "Messages that were sent to a dead letter topic."
            ),
            "closed hole": meter.create_counter(
                "pulsar.client.consumer.hole.closed",
                "{entry}",
                "Chunks that no consumer can receive, and that were acknowledged for that.",
            ),
        }

    def happened(self, what: Happening, topic: str, subscription: str, count: int) -> None:
        """Count what a consumer does by itself; `ClientContext.tell` calls it."""
        self._happenings[what].add(count, {SYSTEM: "pulsar", DESTINATION: topic, SUBSCRIPTION: subscription})

    def attributes(self, operation: str, topic: str, more: dict[str, Any]) -> dict[str, Any]:
        """Give what a span and a metric say of an operation.

        Args:
            operation: its name: send, process, receive or ack.
            topic: its destination, or where its message came from.
            more: what else they say.
        """
        return {
            SYSTEM: "pulsar",
            "messaging.operation.name": operation,
            "messaging.operation.type": _TYPES.get(operation, operation),
            DESTINATION: topic,
            **more,
        }

    def begin(self, attributes: dict[str, Any], parent: Context | None) -> Span:
        """Begin the span of an operation.

        Args:
            attributes: what `attributes()` gave, and what only the span says.
            parent: of what it is a part; None for whatever is current.
        """
        operation = attributes["messaging.operation.name"]
        name = f"{operation} {attributes[DESTINATION]}"
        return self._tracer.start_span(name, parent, kind=KINDS[operation], attributes=attributes)


def fail(span: Span, error: BaseException) -> str:
    """Have a span say that its operation failed; give the error's type as the conventions name it."""
    kind = type(error).__qualname__
    span.record_exception(error)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    return kind
