"""Interceptors that make spans: for each send, and for each message from its receive to its acknowledgement.

A sent message carries the context of its span. Mirrors Java's `OpenTelemetryProducerInterceptor` and
`OpenTelemetryConsumerInterceptor`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from opentelemetry import propagate, trace
from opentelemetry.metrics import get_meter

from pulsar_ext._native.locks import Lock
from pulsar_ext.errors import DuplicateMessage, InvalidUse
from pulsar_ext.intercept.interfaces import ConsumerInterceptor, ProducerInterceptor, ReaderInterceptor

from .instruments import SUBSCRIPTION, Instruments, fail, observe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.consumer import Consumer
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.intercept.interfaces import Interceptor, OutgoingMessage
    from pulsar_ext.message import Message
    from pulsar_ext.produce.batching import HasTopic


class ProducerTelemetry(ProducerInterceptor):
    """Traces and counts the sends of one producer."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def before_send(self, producer: HasTopic, message: OutgoingMessage) -> OutgoingMessage:
        """Begin a span, and write its context into the message's properties.

        Its parent is the current span, otherwise the context in the properties, such as those of a forwarded message.
        """
        parent = None
        if not trace.get_current_span().get_span_context().is_valid:
            parent = propagate.extract(message.properties)
        attributes = self._instruments.attributes("send", producer.topic(), {})
        span = self._instruments.begin(attributes, parent)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        message.notes[self] = span, attributes, time.perf_counter()
        return message.with_properties(carrier)

    def on_send_acknowledgement(
        self, producer: object, message: OutgoingMessage, message_id: MessageId | None, error: BaseException | None
    ) -> None:
        """End the span with the outcome."""
        del producer
        begun = message.notes.pop(self, None)
        if begun is None:  # before_send() has failed
            return
        span, attributes, began = begun
        if error is not None:
            attributes = {**attributes, "error.type": fail(span, error)}
        elif message_id is not None:
            span.set_attribute("messaging.message.id", message_id.to_text())
        span.end()
        self._instruments.operation.record(time.perf_counter() - began, attributes)
        self._instruments.sent.add(1, attributes)
        if isinstance(error, DuplicateMessage):
            self._instruments.duplicates.add(1, attributes)
        elif error is None and isinstance(message.value, bytes):  # the size of other values depends on the schema
            self._instruments.sent_bytes.add(len(message.value), attributes)


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
    """Begin the span of a delivered message."""
    attributes = instruments.attributes(operation, message.topic_name(), more)
    message_id = message.message_id()
    span = instruments.begin(attributes, propagate.extract(message.properties()))
    if span.is_recording():
        span.set_attribute("messaging.message.id", message_id.to_text())
    message.__dict__.update(span=span, handled_in=partial(trace.use_span, span))  # use_span() does not end it
    instruments.consumed.add(1, attributes)
    instruments.received_bytes.add(message.inner.length(), attributes)
    if message.redelivery_count():
        instruments.redelivered.add(1, attributes)
    topic, index = message.topic_name(), message_id.batch_index()
    return _OpenMessage(span, attributes, topic, _entry_of(message_id), index, time.perf_counter())


@dataclass(frozen=True, slots=True, eq=False)
class _OpenMessage:
    """A delivered message that is unacknowledged."""

    span: Span
    attributes: dict[str, str]
    topic: str
    entry: tuple[int, int]
    index: int
    began: float


class ReaderTelemetry(ReaderInterceptor):
    """Traces and counts the reads of one reader, whose messages are never acknowledged."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def before_read(self, reader: object, message: Message) -> Message:
        """Record the message in a span that ends immediately."""
        del reader
        _received(self._instruments, "receive", message, {}).span.end()
        return message


class ConsumerTelemetry(ConsumerInterceptor):
    """Traces and counts the messages of one consumer until they are acknowledged or redelivered."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._lock = Lock()
        self._open: dict[tuple[int, int], dict[int, _OpenMessage]] = {}
        """Unacknowledged messages, by ledger and entry, and by batch index."""

    def before_consume(self, consumer: Consumer, message: Message) -> Message:
        """Begin the span of a message, in the trace of its properties."""
        more = {SUBSCRIPTION: consumer.subscription_name()}
        begun = _received(self._instruments, "process", message, more)
        with self._lock:
            by_index = self._open.setdefault(begun.entry, {})
            before = by_index.pop(begun.index, None)
            by_index[begun.index] = begun
        if before is not None:  # redelivered, or delivered again after a seek
            self._end([before], "redelivered")
        return message

    def on_acknowledge(self, consumer: object, message_id: MessageId, error: BaseException | None) -> None:
        """End the message's span, with a span for the acknowledgement."""
        del consumer
        self._acknowledged(self._of(message_id), "acknowledge", error)

    def on_acknowledge_cumulative(self, consumer: object, message_id: MessageId, error: BaseException | None) -> None:
        """End the spans of the message and of all messages before it."""
        del consumer
        last = self._of(message_id)
        topics: set[str | None] = {one.topic for one in last} or {message_id.topic_name()}
        last_key = _entry_of(message_id), message_id.batch_index()
        with self._lock:
            every = [one for by_index in self._open.values() for one in by_index.values()]
        before = [one for one in every if one.topic in topics and (one.entry, one.index) < last_key and one not in last]
        self._acknowledged([*before, *last], "cumulative_acknowledge", error)

    def on_negative_acks_send(self, consumer: object, message_ids: set[MessageId]) -> None:
        """End the spans of the messages, which are redelivered."""
        del consumer
        self._end(self._in(message_ids), "negative_acknowledge")

    def on_ack_timeout_send(self, consumer: object, message_ids: set[MessageId]) -> None:
        """End the spans of the messages, which are redelivered."""
        del consumer
        self._end(self._in(message_ids), "ack_timeout")

    def close(self) -> None:
        """End the spans of unacknowledged messages."""
        with self._lock:
            every = [one for by_index in self._open.values() for one in by_index.values()]
        self._end(every, "closed")

    def _of(self, message_id: MessageId) -> list[_OpenMessage]:
        """Return the messages of an id; without a batch index, those of the whole batch."""
        with self._lock:
            every = list(self._open.get(_entry_of(message_id), {}).values())
        index = message_id.batch_index()
        return [one for one in every if index in (-1, one.index)]

    def _in(self, message_ids: set[MessageId]) -> list[_OpenMessage]:
        """Return the messages in some entries."""
        with self._lock:
            found = [self._open.get(entry, {}) for entry in map(_entry_of, message_ids)]
            return [one for by_index in found for one in by_index.values()]

    def _acknowledged(self, messages: list[_OpenMessage], ending: str, error: BaseException | None) -> None:
        """End spans after an acknowledgement, which has its own span; on an error, end only that span.

        A span that is not recorded gets no acknowledgement span; with sampling, this applies to most.
        """
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
                by_index = self._open.get(one.entry, {})
                if by_index.get(one.index) is one:
                    del by_index[one.index]
                if not by_index:
                    self._open.pop(one.entry, None)
            one.span.set_attribute(_ACKNOWLEDGED, ending)
            one.span.end()
            self._instruments.process.record(time.perf_counter() - one.began, one.attributes)


def _entry_of(message_id: MessageId) -> tuple[int, int]:
    return message_id.ledger_id(), message_id.entry_id()


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
