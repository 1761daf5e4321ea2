"""Spans and metrics of one client, by the semantic conventions for messaging.

The gauges of the consumers of instrumented clients are observed when metrics are collected.
"""

from __future__ import annotations

import collections
import contextlib
from typing import TYPE_CHECKING
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
"""Buckets of durations that the conventions recommend."""
KINDS = {"send": SpanKind.PRODUCER, "process": SpanKind.CONSUMER, "receive": SpanKind.CONSUMER, "ack": SpanKind.CLIENT}
_TYPES = {"ack": "settle"}
"""Operation types that differ from the operation's name."""


class Instruments:
    """Spans, counters and histograms for interceptors."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages that were sent.")
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were delivered to the application."
        )
        self.operation = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Time from a send until it was persisted or failed.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.process = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Time from the receive of a message to its acknowledgement.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

        # The following names are those of Java's client, if it has the metric.
        self.sent_bytes = meter.create_counter(
            "pulsar.client.producer.message.send.size", "By", "Bytes of messages that were persisted."
        )
        self.duplicates = meter.create_counter(
            "pulsar.client.producer.message.duplicate", "{message}", "Messages that the topic already had."
        )
        self.received_bytes = meter.create_counter(
            "pulsar.client.consumer.message.received.size", "By", "Bytes of messages that were delivered."
        )
        self.redelivered = meter.create_counter(
            "pulsar.client.consumer.message.redelivered",
            "{message}",
            "Delivered messages that had been delivered before.",
        )
        self._event_counters: dict[Happening, Counter] = {
            "dead letter": meter.create_counter(
                "pulsar.client.consumer.message.dlq", "{message}", "Messages that were sent to a dead letter topic."
            ),
            "closed hole": meter.create_counter(
                "pulsar.client.consumer.hole.closed",
                "{entry}",
                "Chunks that no consumer can receive, and that were acknowledged for this reason.",
            ),
        }

    def count_event(self, event: Happening, topic: str, subscription: str, count: int) -> None:
        """Count an event of a consumer; called by `ClientContext.report_event`."""
        self._event_counters[event].add(count, {SYSTEM: "pulsar", DESTINATION: topic, SUBSCRIPTION: subscription})

    def attributes(self, operation: str, topic: str, more: dict[str, str]) -> dict[str, str]:
        """Return the attributes of an operation's span and metrics."""
        return {
            SYSTEM: "pulsar",
            "messaging.operation.name": operation,
            "messaging.operation.type": _TYPES.get(operation, operation),
            DESTINATION: topic,
            **more,
        }

    def begin(self, attributes: dict[str, str], parent: Context | None) -> Span:
        """Begin the span of an operation."""
        operation = attributes["messaging.operation.name"]
        name = f"{operation} {attributes[DESTINATION]}"
        return self._tracer.start_span(name, parent, kind=KINDS[operation], attributes=attributes)


def fail(span: Span, error: BaseException) -> str:
    """Record a failure in a span; return the error's type in the notation of the conventions."""
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
        "Messages that were fetched from the receiver queue before the application asked for them.",
        Consumer.fetched_ahead,
    ),
)


class _Global:
    """Placeholder for the global meter provider, which may be set later."""


_GLOBAL = _Global()
_lock = Lock()
_observed: WeakKeyDictionary[object, WeakSet[ClientContext]] = WeakKeyDictionary()
"""Contexts by meter provider, because the SDK ignores the callback of a second instrument with the same name."""


def observe(context: ClientContext, meter_provider: MeterProvider | None) -> None:
    """Observe a client's consumers from now on, for this provider only, as long as the client exists."""
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
            meter.create_observable_up_down_counter(name, [_observer(contexts, count)], unit, description)


def _observer(
    contexts: WeakSet[ClientContext], count: Callable[[Consumer], int]
) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def observe_sums(_: CallbackOptions) -> Iterator[Observation]:
        sums: collections.Counter[tuple[str, str]] = collections.Counter()
        for consumer in [one for context in list(contexts) for one in context.opener._open_receivers_()]:
            if isinstance(consumer, Consumer):
                with contextlib.suppress(pulsar.PulsarException):  # the consumer is being closed
                    sums[consumer.subscribed_to(), consumer.subscription_name()] += count(consumer)
        for (topic, subscription), number in sums.items():
            yield Observation(number, {SYSTEM: "pulsar", DESTINATION: topic, SUBSCRIPTION: subscription})

    return observe_sums
