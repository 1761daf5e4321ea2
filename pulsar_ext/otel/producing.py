"""The span of each message that is sent; its context goes with the message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from opentelemetry import propagate, trace

from pulsar_ext.errors import DuplicateMessage
from pulsar_ext.intercept.interfaces import ProducerInterceptor

from .instruments import fail

if TYPE_CHECKING:
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.intercept.interfaces import OutgoingMessage

    from .instruments import Instruments

__all__ = ["ProducerTelemetry"]


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
