"""Interceptors that make spans and metrics, by the semantic conventions for messaging and Java's names.

Each send has a span, whose context the message carries, and each message one from its receive to its acknowledgement.
The gauges of the consumers of instrumented clients are observed when metrics are collected. Mirrors Java's
`OpenTelemetryProducerInterceptor` and `OpenTelemetryConsumerInterceptor`.
"""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary, WeakSet

import pulsar
from opentelemetry import propagate, trace
from opentelemetry.context import Context  # noqa: TC002  # loaded anyway
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter, get_meter_provider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from pulsar_ext._native.locks import Lock
from pulsar_ext._runtime.context import ClientContext, Happening
from pulsar_ext.consumer import Consumer
from pulsar_ext.errors import DuplicateMessage, InvalidUse
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.intercept import (
    ConsumerInterceptor,
    Interceptor,
    OutgoingMessage,
    ProducerInterceptor,
    ReaderInterceptor,
)
from pulsar_ext.message import Message
from pulsar_ext.produce.batching import HasTopic

SYSTEM, DESTINATION = "messaging.system", "messaging.destination.name"
SUBSCRIPTION = "messaging.destination.subscription.name"

_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
"""Buckets of durations that the conventions recommend."""
KINDS = {"send": SpanKind.PRODUCER, "process": SpanKind.CONSUMER, "receive": SpanKind.CONSUMER, "ack": SpanKind.CLIENT}
_TYPES = {"ack": "settle"}
"""Operation types that differ from the operation's name."""


_DURATIONS = {
    "operation": ("messaging.client.operation.duration", "Time from a send until it was persisted or failed."),
    "process": ("messaging.process.duration", "Time from the receive of a message to its acknowledgement."),
}
_COUNTERS = {
    "sent": ("messaging.client.sent.messages", "{message}", "Messages that were sent."),
    "consumed": ("messaging.client.consumed.messages", "{message}", "Messages that were delivered to the application."),
    # The following names are those of Java's client, if it has the metric.
    "sent bytes": ("pulsar.client.producer.message.send.size", "By", "Bytes of messages that were persisted."),
    "duplicates": ("pulsar.client.producer.message.duplicate", "{message}", "Messages that the topic already had."),
    "received bytes": ("pulsar.client.consumer.message.received.size", "By", "Bytes of messages that were delivered."),
    "redelivered": (
        "pulsar.client.consumer.message.redelivered",
        "{message}",
        "Delivered messages that had been delivered before.",
    ),
    "dead letter": (
        "pulsar.client.consumer.message.dlq",
        "{message}",
        "Messages that were sent to a dead letter topic.",
    ),
    "closed hole": (
        "pulsar.client.consumer.hole.closed",
        "{entry}",
        "Chunks that no consumer can receive, and that were acknowledged for this reason.",
    ),
}


class Instruments:
    """Spans, counters and histograms for interceptors."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._counters = {name: meter.create_counter(*counter) for name, counter in _COUNTERS.items()}
        self._durations = {
            name: meter.create_histogram(metric, "s", text, explicit_bucket_boundaries_advisory=_SECONDS)
            for name, (metric, text) in _DURATIONS.items()
        }

    def count(self, counter: str, attributes: dict[str, str], count: int = 1) -> None:
        """Count by a counter."""
        self._counters[counter].add(count, attributes)

    def record(self, duration: str, began: float, attributes: dict[str, str]) -> None:
        """Record the time since `began`, of the performance counter."""
        self._durations[duration].record(time.perf_counter() - began, attributes)

    def count_event(self, event: Happening, topic: str, subscription: str, count: int) -> None:
        """Count an event of a consumer; called by `ClientContext.report_event`."""
        self.count(event, {SYSTEM: "pulsar", DESTINATION: topic, SUBSCRIPTION: subscription}, count)

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


_lock = Lock()
_observed: WeakKeyDictionary[object, WeakSet[ClientContext]] = WeakKeyDictionary()
"""Contexts by meter provider, because the SDK ignores the callback of a second instrument with the same name."""


def observe(context: ClientContext, meter_provider: MeterProvider | None) -> None:
    """Observe a client's consumers from now on, for this provider only, as long as the client exists."""
    is_global = meter_provider is None or meter_provider is get_meter_provider()
    provider = get_meter_provider if is_global else meter_provider  # the global one may be set later
    with _lock:
        for others in _observed.values():
            others.discard(context)
        known = _observed.get(provider)
        contexts = _observed.setdefault(provider, WeakSet())
        contexts.add(context)
    if known is None:
        meter = get_meter("pulsar_ext", meter_provider=meter_provider)
        for name, unit, description, count in _GAUGES:
            meter.create_observable_up_down_counter(name, [partial(_sums, contexts, count)], unit, description)


def _sums(
    contexts: WeakSet[ClientContext], count: Callable[[Consumer], int], _: CallbackOptions
) -> Iterator[Observation]:
    sums: collections.Counter[tuple[str, str]] = collections.Counter()
    for consumer in [one for context in list(contexts) for one in context.opener._open_receivers_()]:
        if isinstance(consumer, Consumer):
            with contextlib.suppress(pulsar.PulsarException):  # the consumer is being closed
                sums[consumer.subscribed_to(), consumer.subscription_name()] += count(consumer)
    for (topic, subscription), number in sums.items():
        yield Observation(number, {SYSTEM: "pulsar", DESTINATION: topic, SUBSCRIPTION: subscription})


@dataclass(eq=False)
class ProducerTelemetry(ProducerInterceptor):
    """Traces and counts the sends of one producer."""

    instruments: Instruments

    def before_send(self, producer: HasTopic, message: OutgoingMessage) -> OutgoingMessage:
        """Begin a span below the current one or that of the properties, and write its context into the properties."""
        parent = None
        if not trace.get_current_span().get_span_context().is_valid:
            parent = propagate.extract(message.properties)
        attributes = self.instruments.attributes("send", producer.topic(), {})
        span = self.instruments.begin(attributes, parent)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        message.notes[self] = span, attributes, time.perf_counter()
        return message.with_properties(carrier)

    def on_send_acknowledgement(
        self, _: object, message: OutgoingMessage, message_id: MessageId | None, error: BaseException | None
    ) -> None:
        """End the span with the outcome."""
        begun = message.notes.pop(self, None)
        if begun is None:  # before_send() has failed
            return
        span, attributes, began = begun
        if error is not None:
            attributes = {**attributes, "error.type": fail(span, error)}
        elif message_id is not None:
            span.set_attribute("messaging.message.id", message_id.to_text())
        span.end()
        self.instruments.record("operation", began, attributes)
        self.instruments.count("sent", attributes)
        if isinstance(error, DuplicateMessage):
            self.instruments.count("duplicates", attributes)
        elif error is None and isinstance(message.value, bytes):  # the size of other values depends on the schema
            self.instruments.count("sent bytes", attributes, len(message.value))


_ACKNOWLEDGED = "messaging.pulsar.acknowledgment.type"
"""Java's attribute of a message's span for the kind of its end."""


def processing(message: Message) -> AbstractContextManager[Span]:
    """Make the span of a received message the current one in a block, as the parent of spans in it.

    Raises:
        InvalidUse: the message was received by a client that is not instrumented.
    """
    span = getattr(message, "span", None)
    if span is None:
        raise InvalidUse("This message has no span: it was received by a client that is not instrumented.")
    return trace.use_span(span, end_on_exit=False)


def _received(instruments: Instruments, operation: str, message: Message, more: dict[str, str]) -> _OpenMessage:
    attributes = instruments.attributes(operation, message.topic_name(), more)
    message_id = message.message_id()
    span = instruments.begin(attributes, propagate.extract(message.properties()))
    if span.is_recording():
        span.set_attribute("messaging.message.id", message_id.to_text())
    message.__dict__.update(span=span, handled_in=partial(trace.use_span, span))  # use_span() does not end it
    instruments.count("consumed", attributes)
    instruments.count("received bytes", attributes, message.inner.length())
    if message.redelivery_count():
        instruments.count("redelivered", attributes)
    return _OpenMessage(span, attributes, message.topic_name(), _place_of(message_id), time.perf_counter())


@dataclass(frozen=True, slots=True, eq=False)
class _OpenMessage:
    """A delivered message that is unacknowledged; its place is the ledger, the entry and the batch index."""

    span: Span
    attributes: dict[str, str]
    topic: str
    place: tuple[int, int, int]
    began: float


@dataclass(eq=False)
class ReaderTelemetry(ReaderInterceptor):
    """Traces and counts the reads of one reader, whose messages are never acknowledged."""

    instruments: Instruments

    def before_read(self, _: object, message: Message) -> Message:
        """Record the message in a span that ends immediately."""
        _received(self.instruments, "receive", message, {}).span.end()
        return message


class ConsumerTelemetry(ConsumerInterceptor):
    """Traces and counts the messages of one consumer until they are acknowledged or redelivered."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._lock = Lock()
        self._open: dict[tuple[int, int, int], _OpenMessage] = {}

    def before_consume(self, consumer: Consumer, message: Message) -> Message:
        """Begin the span of a message, in the trace of its properties."""
        more = {SUBSCRIPTION: consumer.subscription_name()}
        begun = _received(self._instruments, "process", message, more)
        with self._lock:
            before = self._open.pop(begun.place, None)
            self._open[begun.place] = begun
        if before is not None:  # redelivered, or delivered again after a seek
            self._end([before], "redelivered")
        return message

    def on_acknowledge(self, _: object, message_id: MessageId, error: BaseException | None) -> None:
        """End the message's span, with a span for the acknowledgement."""
        self._acknowledged(self._of(message_id), "acknowledge", error)

    def on_acknowledge_cumulative(self, _: object, message_id: MessageId, error: BaseException | None) -> None:
        """End the spans of the message and of all messages before it."""
        last = self._of(message_id)
        topics: set[str | None] = {one.topic for one in last} or {message_id.topic_name()}
        place = _place_of(message_id)
        with self._lock:
            every = list(self._open.values())
        before = [one for one in every if one.topic in topics and one.place < place and one not in last]
        self._acknowledged([*before, *last], "cumulative_acknowledge", error)

    def on_negative_acks_send(self, _: object, message_ids: set[MessageId]) -> None:
        """End the spans of the messages, which are redelivered."""
        self._end(self._in(message_ids), "negative_acknowledge")

    def on_ack_timeout_send(self, _: object, message_ids: set[MessageId]) -> None:
        """End the spans of the messages, which are redelivered."""
        self._end(self._in(message_ids), "ack_timeout")

    def close(self) -> None:
        """End the spans of unacknowledged messages."""
        with self._lock:
            every = list(self._open.values())
        self._end(every, "closed")

    def _of(self, message_id: MessageId) -> list[_OpenMessage]:
        """Return the messages of an id; without a batch index, those of the whole batch."""
        place = _place_of(message_id)
        with self._lock:
            found = self._open.get(place)
        if found is None:
            return self._in({message_id}) if place[2] < 0 else []
        return [found]

    def _in(self, message_ids: set[MessageId]) -> list[_OpenMessage]:
        entries = {_place_of(one)[:2] for one in message_ids}
        with self._lock:
            return [one for one in self._open.values() if one.place[:2] in entries]

    def _acknowledged(self, messages: list[_OpenMessage], ending: str, error: BaseException | None) -> None:
        """End spans after an acknowledgement, which has a span in each recorded one; on an error, end only that."""
        for one in messages:
            if not one.span.is_recording():
                continue
            attributes = {**one.attributes, **self._instruments.attributes("ack", one.topic, {})}
            ack_span = self._instruments.begin(attributes, trace.set_span_in_context(one.span))
            if error is not None:
                fail(ack_span, error)
            ack_span.end()
        if error is None:
            self._end(messages, ending)

    def _end(self, ended: Iterable[_OpenMessage], ending: str) -> None:
        for one in ended:
            with self._lock:
                if self._open.get(one.place) is one:
                    del self._open[one.place]
            one.span.set_attribute(_ACKNOWLEDGED, ending)
            one.span.end()
            self._instruments.record("process", one.began, one.attributes)


def _place_of(message_id: MessageId) -> tuple[int, int, int]:
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


def instrument_context(
    context: ClientContext,
    tracer_provider: TracerProvider | None,
    meter_provider: MeterProvider | None,
    *,
    automatic: bool = False,
) -> None:
    """Instrument what a client opens from now on; the application's own request replaces an `automatic` one."""
    if any(isinstance(make, _Factory) and not make.automatic for _, make in context.interceptors):
        raise InvalidUse("This client is instrumented already; a second time would duplicate its spans.")
    instruments = Instruments(
        trace.get_tracer("pulsar_ext", tracer_provider=tracer_provider),
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
