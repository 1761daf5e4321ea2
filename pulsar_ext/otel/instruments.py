"""The spans and the metrics of one client, by the semantic conventions for messaging.

What the consumers of instrumented clients have at the moment is observed when metrics are collected.
"""

from __future__ import annotations

import collections
import contextlib
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import pulsar
from opentelemetry.metrics import Observation, get_meter, get_meter_provider
from opentelemetry.trace import SpanKind, Status, StatusCode

from pulsar_ext._native.locks import Lock
from pulsar_ext.consumer import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Counter, Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer

    from pulsar_ext._runtime.context import ClientContext, Happening


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


_GAUGES: tuple[tuple[str, str, str, Callable[[Consumer], int]], ...] = (
    (
        "pulsar.client.consumer.ack.pending",
        "{acknowledgement}",
        "Acknowledgements that have not been sent: of entries, and of parts of batches.",
        Consumer.pending_acks,
    ),
    (
        "pulsar.client.consumer.fetched_ahead",
        "{message}",
        "Messages that were fetched out of the receiver queue before the application asks for them.",
        Consumer.fetched_ahead,
    ),
)


class _Global:
    """Stands for the global meter provider, whichever that is by then."""


_GLOBAL = _Global()
_lock = Lock()
_observed: WeakKeyDictionary[Any, WeakSet[ClientContext]] = WeakKeyDictionary()
"""By meter provider: of a second instrument of the same name the SDK would never ask the callback."""


def observe(context: ClientContext, meter_provider: MeterProvider | None) -> None:
    """Have a client's consumers be looked at from now on, for this provider alone, as long as there is the client.

    Args:
        context: of the client.
        meter_provider: where the metrics go; None for the global one.
    """
    is_global = meter_provider is None or meter_provider is get_meter_provider()
    provider = _GLOBAL if is_global else meter_provider
    with _lock:
        for others in _observed.values():
            others.discard(context)
        known = _observed.get(provider)
        contexts = _observed.setdefault(provider, WeakSet())
        contexts.add(context)
    if known is None:
        meter = get_meter("pulsar_ext", meter_provider=meter_provider)
        for name, unit, description, count in _GAUGES:
            meter.create_observable_up_down_counter(name, [_looking(contexts, count)], unit, description)


def _looking(
    contexts: WeakSet[ClientContext], count: Callable[[Consumer], int]
) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def look(_: CallbackOptions) -> Iterator[Observation]:
        sums: collections.Counter[tuple[str, str]] = collections.Counter()
        for consumer in [one for context in list(contexts) for one in context.opener._received_by_()]:
            if isinstance(consumer, Consumer):
                with contextlib.suppress(pulsar.PulsarException):  # it is being closed
                    sums[consumer.subscribed_to(), consumer.subscription_name()] += count(consumer)
        for (topic, subscription), number in sums.items():
            yield Observation(number, {SYSTEM: "pulsar", DESTINATION: topic, SUBSCRIPTION: subscription})

    return look
