"""The interceptors that make spans: of each message that is sent, and of each from its receive to its acknowledgement.

The context of a sent message's span goes with the message. Mirrors Java's `OpenTelemetryProducerInterceptor` and
`OpenTelemetryConsumerInterceptor`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import propagate, trace

from pulsar_ext._native.locks import Lock
from pulsar_ext.errors import DuplicateMessage, InvalidUse
from pulsar_ext.intercept.interfaces import ConsumerInterceptor, ProducerInterceptor, ReaderInterceptor

from .instruments import SUBSCRIPTION, fail

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span

    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.intercept.interfaces import OutgoingMessage
    from pulsar_ext.message import Message

    from .instruments import Instruments


class ProducerTelemetry(ProducerInterceptor):
    """Traces and counts what one producer sends.

    Args:
        instruments: of its client.
    """

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage:
        """Begin a span, and write its context into the message's properties.

        It is a part of the current span; without one, of the trace that the properties name, as of a message that is
        passed on.
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
        self, producer: Any, message: OutgoingMessage, message_id: MessageId | None, error: BaseException | None
    ) -> None:
        """End it with the outcome."""
        del producer
        begun = message.notes.pop(self, None)
        if begun is None:  # its span could not be begun
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
        elif error is None and isinstance(message.value, bytes):  # of other values the size is the schema's secret
            self._instruments.sent_bytes.add(len(message.value), attributes)


_ACKNOWLEDGED = "messaging.pulsar.acknowledgment.type"
"""Java's name for how the span of a message ended."""


def processing(message: Message) -> AbstractContextManager[Span]:
    """Make the span of a received message the current one in a block, so that what is sent there is a part of it.

    Raises:
        InvalidUse: the message came from a client that is not instrumented.
    """
    span = getattr(message, "span", None)
    if span is None:
        raise InvalidUse("This message has no span: it was received by a client that is not instrumented.")
    return trace.use_span(span, end_on_exit=False)


def _received(instruments: Instruments, operation: str, message: Message, more: dict[str, Any]) -> _Open:
    """Begin the span of a message that is handed out."""
    attributes = instruments.attributes(operation, message.topic_name(), more)
    message_id = message.message_id()
    span = instruments.begin(attributes, propagate.extract(message.properties()))
    if span.is_recording():
        span.set_attribute("messaging.message.id", message_id.to_text())
    message.__dict__.update(span=span, handled_in=partial(trace.use_span, span))  # which does not end it
    instruments.consumed.add(1, attributes)
    instruments.received_bytes.add(message.inner.length(), attributes)
    if message.redelivery_count():
        instruments.redelivered.add(1, attributes)
    topic, index = message.topic_name(), message_id.batch_index()
    return _Open(span, attributes, topic, _entry_of(message_id), index, time.perf_counter())


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """A message that is not acknowledged."""

    span: Span
    attributes: dict[str, Any]
    topic: str
    entry: tuple[int, int]
    index: int
    began: float


class ReaderTelemetry(ReaderInterceptor):
    """Traces and counts what one reader reads: nothing tells when a message is done with.

    Args:
        instruments: of its client.
    """

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def before_read(self, reader: Any, message: Message) -> Message:
        """Give the message a span that ends at once."""
        del reader
        _received(self._instruments, "receive", message, {}).span.end()
        return message


class ConsumerTelemetry(ConsumerInterceptor):
    """Traces and counts what one consumer receives, until it is acknowledged, or comes again.

    Args:
        instruments: of its client.
    """

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._lock = Lock()
        self._open: dict[tuple[int, int], dict[int, _Open]] = {}
        """What is not acknowledged, by its ledger and entry, and by its place in its batch."""

    def before_consume(self, consumer: Any, message: Message) -> Message:
        """Begin the span of a message, in the trace that its properties name."""
        more = {SUBSCRIPTION: consumer.subscription_name()}
        begun = _received(self._instruments, "process", message, more)
        with self._lock:
            places = self._open.setdefault(begun.entry, {})
            before = places.pop(begun.index, None)
            places[begun.index] = begun
        if before is not None:  # it came again, as behind a seek
            self._end([before], "redelivered")
        return message

    def on_acknowledge(self, consumer: Any, message_id: Any, error: BaseException | None) -> None:
        """End it, and note when it was acknowledged."""
        del consumer
        self._settle(self._of(message_id), "acknowledge", error)

    def on_acknowledge_cumulative(self, consumer: Any, message_id: Any, error: BaseException | None) -> None:
        """End it, and those of all messages before it."""
        del consumer
        last = self._of(message_id)
        topics = {one.topic for one in last} or {message_id.topic_name()}
        place = _entry_of(message_id), message_id.batch_index()
        with self._lock:
            every = [one for places in self._open.values() for one in places.values()]
        before = [one for one in every if one.topic in topics and (one.entry, one.index) < place and one not in last]
        self._settle([*before, *last], "cumulative_acknowledge", error)

    def on_negative_acks_send(self, consumer: Any, message_ids: set[MessageId]) -> None:
        """End those of what comes again."""
        del consumer
        self._end(self._in(message_ids), "negative_acknowledge")

    def on_ack_timeout_send(self, consumer: Any, message_ids: set[MessageId]) -> None:
        """End those of what comes again."""
        del consumer
        self._end(self._in(message_ids), "ack_timeout")

    def close(self) -> None:
        """End those of what was not acknowledged."""
        with self._lock:
            every = [one for places in self._open.values() for one in places.values()]
        self._end(every, "closed")

    def _of(self, message_id: Any) -> list[_Open]:
        """Give the messages that an id is of; one without a place in a batch is of all of it."""
        with self._lock:
            every = list(self._open.get(_entry_of(message_id), {}).values())
        index = message_id.batch_index()
        return [one for one in every if index in (-1, one.index)]

    def _in(self, message_ids: set[MessageId]) -> list[_Open]:
        """Give the messages in some entries."""
        with self._lock:
            found = [self._open.get(entry, {}) for entry in map(_entry_of, message_ids)]
            return [one for places in found for one in places.values()]

    def _settle(self, settled: list[_Open], how: str, error: BaseException | None) -> None:
        """End spans with an acknowledgement, which has a span of its own; not with one that was refused.

        A span that is not recorded has none: most are not where only a share of the traces is.
        """
        for one in settled:
            if not one.span.is_recording():
                continue
            attributes = {**one.attributes, **self._instruments.attributes("ack", one.topic, {})}
            settling = self._instruments.begin(attributes, trace.set_span_in_context(one.span))
            if error is not None:
                fail(settling, error)
            settling.end()
        if error is None:
            self._end(settled, how)

    def _end(self, ended: Iterable[_Open], how: str) -> None:
        for one in ended:
            with self._lock:
                places = self._open.get(one.entry, {})
                if places.get(one.index) is one:
                    del places[one.index]
                if not places:
                    self._open.pop(one.entry, None)
            one.span.set_attribute(_ACKNOWLEDGED, how)
            one.span.end()
            self._instruments.process.record(time.perf_counter() - one.began, one.attributes)


def _entry_of(message_id: Any) -> tuple[int, int]:
    return message_id.ledger_id(), message_id.entry_id()
