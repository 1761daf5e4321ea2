"""FastStream's metrics for Prometheus: `PulsarBroker(middlewares=[PulsarPrometheusMiddleware(registry=registry)])`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from faststream._internal.constants import EMPTY

from pulsar_ext.errors import MissingExtra

from .config import full_topic
from .message import Raw, each_of
from .publisher import PulsarPublishCommand

with MissingExtra.named("faststream", "pulsar_ext.faststream.prometheus"):
    from faststream.prometheus import MetricsSettingsProvider
    from faststream.prometheus.middleware import PrometheusMiddleware

if TYPE_CHECKING:
    from faststream.message import StreamMessage
    from faststream.prometheus import ConsumeAttrs
    from prometheus_client import CollectorRegistry

__all__ = ["PulsarPrometheusMiddleware"]


class PulsarPrometheusMiddleware(PrometheusMiddleware[Raw, PulsarPublishCommand]):
    """Middleware that counts handled and published messages, and measures their durations, by full topic names.

    Args:
        registry: a `prometheus_client.CollectorRegistry` for the metrics.
        app_name: a label of each metric; the prefix by default.
        metrics_prefix: the prefix of the metrics' names.
        received_messages_size_buckets: of the sizes of messages, in bytes.
        custom_labels: more labels, each a text, or a function of the received message or of None for a published
            message.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: Mapping[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: _Settings(),
            registry=registry,
            app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=dict(custom_labels or {}),
        )


class _Settings(MetricsSettingsProvider[Raw, PulsarPublishCommand]):
    messaging_system = "pulsar"

    def get_consume_attrs_from_message(self, msg: StreamMessage[Raw]) -> ConsumeAttrs:
        each = each_of(msg.raw_message)
        return {
            "destination_name": each[0].topic_name(),
            "message_size": sum(raw.inner.length() for raw in each),
            "messages_count": len(each),
        }

    def get_publish_destination_name_from_cmd(self, cmd: PulsarPublishCommand) -> str:
        return full_topic(cmd.destination)
