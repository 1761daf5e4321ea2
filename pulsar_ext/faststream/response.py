"""What is published: the command that goes through FastStream's middlewares, and what a handler may return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from faststream.response import BatchPublishCommand, PublishCommand, PublishType, Response

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta


class PulsarResponse(Response):
    """What a handler returns to say more than a body.

    Args:
        body: what is published.
        headers: text by text; they are Pulsar's properties.
        correlation_id: by default that of the message that is handled.
        key: Pulsar's `partition_key`.
        ordering_key: Pulsar's `ordering_key`, by which Key_Shared subscriptions go instead of the key.
        event_timestamp: when it happened, in milliseconds since 1970.
        deliver_after: for how long the broker keeps it back from Shared and Key_Shared subscriptions.
    """

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        key: str | None = None,
        ordering_key: str | None = None,
        event_timestamp: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.key, self.ordering_key = key, ordering_key
        self.event_timestamp, self.deliver_after = event_timestamp, deliver_after

    def as_publish_command(self) -> PulsarPublishCommand:
        """Give the command that publishers are given."""
        return PulsarPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            key=self.key,
            ordering_key=self.ordering_key,
            event_timestamp=self.event_timestamp,
            deliver_after=self.deliver_after,
            _publish_type=PublishType.PUBLISH,
        )

    def get_publish_key(self) -> str | None:
        """Give the key."""
        return self.key


class PulsarPublishCommand(BatchPublishCommand):
    """What is to be published, as middlewares see it.

    Args:
        message: the body.
        *messages: those behind it, of a batch.
        topic: where it goes.
        timeout: how many seconds a request waits for its reply.
        reply_topic: where the reply to a request comes; None for the broker's.
        producer_options: of the publisher's own producer; None for the broker's.
        correlation_id: as in `PulsarResponse`, and so are the others.
        headers: as above.
        reply_to: the topic that a reply goes to.
        key: as above.
        ordering_key: as above.
        event_timestamp: as above.
        deliver_after: as above.
    """

    def __init__(
        self,
        message: Any,
        /,
        *messages: Any,
        _publish_type: PublishType,
        topic: str = "",
        correlation_id: str | None = None,
        headers: dict[str, Any] | None = None,
        reply_to: str = "",
        key: str | None = None,
        ordering_key: str | None = None,
        event_timestamp: int | None = None,
        deliver_after: timedelta | None = None,
        timeout: float = 30.0,
        reply_topic: str | None = None,
        producer_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            message,
            *messages,
            _publish_type=_publish_type,
            destination=topic,
            correlation_id=correlation_id,
            headers=headers,
            reply_to=reply_to,
        )
        self.key, self.ordering_key = key, ordering_key
        self.event_timestamp, self.deliver_after = event_timestamp, deliver_after
        self.timeout, self.reply_topic, self.producer_options = timeout, reply_topic, producer_options
        self._is_empty = False

    @property
    def batch_bodies(self) -> tuple[Any, ...]:
        """The bodies of a batch, each a message; FastStream would leave out a first one that is None."""
        return () if self._is_empty else (self.body, *self.extra_bodies)

    @batch_bodies.setter
    def batch_bodies(self, value: Sequence[Any]) -> None:
        self._is_empty = not value
        self.body, *more = value or (None,)
        self.extra_bodies = tuple(more)

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> Self:
        """Give any command as one of these; with `batch`, each element of a body that is a sequence as a body."""
        ours = cmd
        if not isinstance(ours, cls):
            ours = cls(
                cmd.body,
                _publish_type=cmd.publish_type,
                topic=cmd.destination,
                correlation_id=cmd.correlation_id,
                headers=cmd.headers,
                reply_to=cmd.reply_to,
            )
        if batch:
            first, more = cls._parse_bodies(ours.body, batch=True)
            ours.batch_bodies = () if first is None and not more else (first, *more)
        return ours

    def send_options(self) -> dict[str, Any]:
        """Give the arguments of `Producer.send()` that it has, but for the properties."""
        options = {
            "partition_key": self.key,
            "ordering_key": self.ordering_key,
            "event_timestamp": self.event_timestamp,
            "deliver_after": self.deliver_after,
        }
        return {name: value for name, value in options.items() if value is not None}
