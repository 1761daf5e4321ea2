"""Commands to publish, which pass FastStream's middlewares, and responses of handlers."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Self, TypedDict

from faststream.response import BatchPublishCommand, PublishCommand, PublishType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from typing import Unpack

    from .config import Options


class SendOptions(TypedDict, total=False):
    """Arguments of a published message, described at `PulsarBroker.publish()`."""

    headers: dict[str, str] | None
    correlation_id: str | None
    key: str | None
    ordering_key: str | None
    event_timestamp: int | None
    deliver_after: timedelta | None


class PublishOptions(SendOptions, total=False):
    """Arguments of a message to a topic that may name a topic for replies."""

    reply_to: str


class PulsarPublishCommand(BatchPublishCommand):
    """Command to publish a body, as middlewares receive it.

    Args:
        message: the body.
        topic: the destination.

    All other arguments are those of `PulsarBroker.publish()`.
    """

    timeout = 30.0
    """Seconds for which a request waits for its reply."""
    reply_topic: str | None = None
    """Topic that receives the reply to a request; None for the broker's."""
    producer_options: Options | None = None
    """Options of the publisher's own producer; None for the broker's."""
    _is_empty = False

    def __init__(
        self,
        message: object,
        /,
        *,
        _publish_type: PublishType = PublishType.PUBLISH,
        topic: str = "",
        correlation_id: str | None = None,
        headers: dict[str, Any] | None = None,
        reply_to: str = "",
        key: str | None = None,
        ordering_key: str | None = None,
        event_timestamp: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        super().__init__(
            message,
            _publish_type=_publish_type,
            destination=topic,
            correlation_id=correlation_id,
            headers=headers,
            reply_to=reply_to,
        )
        self.key, self.ordering_key = key, ordering_key
        self.event_timestamp, self.deliver_after = event_timestamp, deliver_after

    def set_request(self, timeout: float, reply_topic: str | None) -> None:
        """Make it a request, whose reply a requester receives."""
        self.publish_type, self.timeout, self.reply_topic, self.reply_to = PublishType.REQUEST, timeout, reply_topic, ""

    def get_publish_key(self) -> str | None:
        """Return the key."""
        return self.key

    @property
    def batch_bodies(self) -> tuple[object, ...]:
        """Bodies of a batch, each a message; FastStream would omit a first one that is None."""
        return () if self._is_empty else (self.body, *self.extra_bodies)

    @batch_bodies.setter
    def batch_bodies(self, value: Sequence[object]) -> None:
        self._is_empty = not value
        self.body, *more = value or (None,)
        self.extra_bodies = tuple(more)

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> Self:
        """Convert any command to this class; with `batch`, each element of a sequence becomes a body."""
        command = cmd
        if not isinstance(command, cls):
            command = cls(
                cmd.body,
                _publish_type=cmd.publish_type,
                topic=cmd.destination,
                correlation_id=cmd.correlation_id,
                headers=cmd.headers,
                reply_to=cmd.reply_to,
            )
        if batch:
            first, more = cls._parse_bodies(command.body, batch=True)
            command.batch_bodies = () if first is None and not more else (first, *more)
        return command

    def send_options(self) -> dict[str, object]:
        """Return its arguments of `Producer.send()`, except the properties."""
        options = {
            "partition_key": self.key,
            "ordering_key": self.ordering_key,
            "event_timestamp": self.event_timestamp,
            "deliver_after": self.deliver_after,
        }
        return {name: value for name, value in options.items() if value is not None}


class PulsarResponse(PulsarPublishCommand):
    """Response of a handler with more than a body.

    Args:
        body: the published body.
        **options: `headers`, `key`, `ordering_key`, `event_timestamp` and `deliver_after`, as of
            `PulsarBroker.publish()`; and `correlation_id`, by default that of the handled message.
    """

    def __init__(self, body: object, **options: Unpack[SendOptions]) -> None:
        super().__init__(body, **options)

    def as_publish_command(self) -> PulsarPublishCommand:
        """Return the command for publishers."""
        return copy(self)
