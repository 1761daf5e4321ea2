"""FastStream's spans and metrics: `PulsarBroker(middlewares=[PulsarTelemetryMiddleware()])`.

`pulsar_ext.otel` traces the client itself, as Java's does; this module is for users of FastStream's spans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext.errors import MissingExtra

from .config import full_topic
from .message import Raw, each_of
from .publisher import PulsarPublishCommand

with MissingExtra.named("faststream", "pulsar_ext.faststream.opentelemetry"):
    from faststream.opentelemetry import TelemetrySettingsProvider
    from faststream.opentelemetry.consts import MESSAGING_DESTINATION_PUBLISH_NAME
    from faststream.opentelemetry.middleware import TelemetryMiddleware
    from opentelemetry.semconv.trace import SpanAttributes

if TYPE_CHECKING:
    from faststream.message import StreamMessage
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["PulsarTelemetryMiddleware"]


class PulsarTelemetryMiddleware(TelemetryMiddleware[PulsarPublishCommand]):
    """Middleware that traces and counts handled and published messages, by the full names of topics.

    The global providers of spans and metrics are the defaults. `meter` creates the metrics instead of a provider
    of them, and `include_messages_counters` counts messages, besides measuring durations.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        meter: Meter | None = None,
        include_messages_counters: bool = True,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: _Settings(),
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            meter=meter,
            include_messages_counters=include_messages_counters,
        )


class _Settings(TelemetrySettingsProvider[Raw, PulsarPublishCommand]):
    messaging_system = "pulsar"

    def get_consume_attrs_from_message(self, msg: StreamMessage[Raw]) -> dict[str, object]:
        each = each_of(msg.raw_message)
        attributes = {
            SpanAttributes.MESSAGING_SYSTEM: "pulsar",
            SpanAttributes.MESSAGING_MESSAGE_ID: msg.message_id,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: msg.correlation_id,
            SpanAttributes.MESSAGING_MESSAGE_PAYLOAD_SIZE_BYTES: sum(raw.inner.length() for raw in each),
            MESSAGING_DESTINATION_PUBLISH_NAME: each[0].topic_name(),
        }
        if isinstance(msg.raw_message, tuple):
            attributes[SpanAttributes.MESSAGING_BATCH_MESSAGE_COUNT] = len(each)
        return attributes

    def get_consume_destination_name(self, msg: StreamMessage[Raw]) -> str:
        return str(each_of(msg.raw_message)[0].topic_name())

    def get_publish_attrs_from_cmd(self, cmd: PulsarPublishCommand) -> dict[str, object]:
        return {
            SpanAttributes.MESSAGING_SYSTEM: "pulsar",
            SpanAttributes.MESSAGING_DESTINATION_NAME: full_topic(cmd.destination),
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: cmd.correlation_id,
        }

    def get_publish_destination_name(self, cmd: PulsarPublishCommand) -> str:
        return full_topic(cmd.destination)
