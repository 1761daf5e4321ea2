"""Broker: connects, publishes, sends requests, logs and stops."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Annotated, Any, Final, Unpack

import pulsar
from fast_depends import Provider, dependency_provider
from fast_depends.dependencies import Dependant
from fast_depends.library.serializer import SerializerProto
from faststream import Context
from faststream._internal.basic_types import LoggerProto, SendableMessage
from faststream._internal.broker import BrokerUsecase
from faststream._internal.configs import UnderlyingDriverAnnotation, UnderlyingDriverAnnotations
from faststream._internal.constants import EMPTY
from faststream._internal.context import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import CodecProto
from faststream._internal.types import CustomCallable, IdGenerator
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.specification.schema import BrokerSpec, Tag, TagDict

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.asyncio import Client
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.request import in_same_namespace

from .config import (
    Middlewares,
    Options,
    PulsarBrokerConfig,
    check_ack_policy,
    check_client_options,
    check_producer_options,
)
from .message import PulsarMessage, Raw
from .publisher import PublishOptions, PulsarPublishCommand, PulsarPublisher, PulsarSender, SendOptions
from .registrator import PulsarRegistrator
from .subscriber import PulsarSubscriber

_ID_WIDTH: Final = 10
_LONGEST_ID: Final = 200
"""Maximum length of an id in log lines, where FastStream truncates; the two ids of a chunked message are shorter."""


class _Columns(DefaultLoggerStorage):
    """Log columns, as wide as the longest value known when the broker connects."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"subscription": 0, "topic": 0}

    def register_subscriber(self, params: dict[str, str]) -> None:
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        logger = self._get_logger_ref()
        if logger is None:
            columns = "".join(f"%({name})-{width}s | " for name, width in self._widths.items() if width)
            logger = get_broker_logger(
                name="pulsar",
                default_context=dict.fromkeys(self._widths, ""),
                message_id_ln=_LONGEST_ID,
                fmt=f"%(asctime)s %(levelname)-8s - {columns}%(message_id)-{_ID_WIDTH}s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger


_PING_SECONDS = 5.0
_NO_TOPIC = "persistent://public/default/faststream-ping-partition-0"
"""Topic that no broker creates on a lookup, because it is a partition."""


class PulsarBroker(  # pyright: ignore[reportIncompatibleMethodOverride]  # as in each of FastStream's brokers
    PulsarRegistrator, BrokerUsecase[Raw, Client, PulsarBrokerConfig]
):
    """A FastStream broker whose client is a `pulsar_ext.asyncio.Client`.

    Args:
        service_url: such as `pulsar://localhost:6650`; without it `PULSAR_URL` of the environment.
        admin: the admin API, as in `pulsar_ext.Client`.
        producer_options: arguments of `pulsar_ext.asyncio.Client.create_producer()` for every producer. By default
            each message is sent immediately, large ones are chunked, and `publish()` waits while the queue is full.
        may_reply_to: a function of a message's topic and its reply topic; a reply is sent if it returns true. By
            default, only within the message's namespace.
        reply_topic: the topic that receives replies to `request()`. By default each requested topic has its own reply
            topic with a random name, which a killed process does not delete. A topic of this process, such as
            `"replies-of-billing-0"`, is reused by its next start; two processes cannot use it at the same time.
        graceful_timeout: seconds for which `stop()` waits for handlers before it cancels them; with None it cancels
            them immediately.
        ack_policy: of subscribers without their own.
        specification_url: the address in AsyncAPI; by default the service URL without credentials before an `@`.
        protocol: for AsyncAPI; by default that of the service URL.
        logger: FastStream's logger; None to disable it.
        log_level: the level of the two log lines per message.
        client_logger: the `logger` of `pulsar_ext.Client`, for the C++ client's log.
        **client_options: any other argument of `pulsar_ext.asyncio.Client`, such as `authentication`.

    All other arguments are those of FastStream's brokers.

    Raises:
        SetupError: an argument is invalid or unknown.
    """

    def __init__(
        self,
        service_url: object = None,
        *,
        admin: PulsarAdmin | str | Sequence[str] | None = None,
        producer_options: Options | None = None,
        may_reply_to: Callable[[str, str], bool] = in_same_namespace,
        reply_topic: str | None = None,
        graceful_timeout: float | None = 15.0,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Middlewares = (),
        routers: Iterable[PulsarRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | None = None,
        protocol: str | None = None,
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        client_logger: object = None,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
        **client_options: Any,
    ) -> None:
        check_ack_policy(ack_policy)
        check_client_options(client_options)
        url = specification_url or _shown_url(service_url)
        self._sender = PulsarSender(parser, decoder, producer_options, reply_topic)
        super().__init__(
            service_url=service_url,
            admin=admin,
            logger=client_logger,
            **client_options,
            routers=routers,
            config=PulsarBrokerConfig(
                producer=self._sender,
                may_reply_to=may_reply_to,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                broker_dependencies=dependencies,
                logger=make_logger_state(logger=logger, log_level=log_level, default_storage_cls=_Columns),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
                default_driver_annotations=_annotations(),
            ),
            specification=BrokerSpec(
                url=[url],
                protocol=protocol or url.partition("://")[0],
                protocol_version=protocol_version,
                description=description,
                tags=tags,
                security=None,
            ),
        )
        self._sender.config = self.config.broker_config

    async def _connect(self) -> Client:
        client = self.config.broker_config.opened = Client(**self._connection_kwargs)
        self._sender.connect()
        return client

    async def start(self) -> None:
        """Check the options of publishers, connect, and start every subscriber; raises as `check_publishers()`."""
        self.check_publishers()
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop every subscriber, wait until published messages are persisted, and close the client."""
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            client, self._connection = self._connection, None
            self.config.broker_config.opened = None
            if client is not None:
                try:
                    await self._sender.disconnect()
                finally:
                    await client.close()

    async def ping(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  # FastStream's signature
        """Return true if this is connected and the broker answers a lookup in `timeout` seconds, by default 5.

        The topic is one of a subscriber or a publisher, or else one that does not exist.
        """
        client = self._connection
        if client is None:
            return False
        topic = next(self._known_topics(), _NO_TOPIC)
        try:
            async with asyncio.timeout(timeout or _PING_SECONDS):
                await client.get_topic_partitions(topic)
        except (pulsar.TopicNotFound, pulsar.AuthorizationError):  # an answer, if the topic is not the application's
            return topic == _NO_TOPIC
        except Exception:  # noqa: BLE001  # any error means no answer
            return False
        return True

    async def publish(
        self, message: SendableMessage = None, topic: str = "", **options: Unpack[PublishOptions]
    ) -> MessageId:
        """Publish a message, and return its id once it is persisted.

        Args:
            message: bytes, a str, or what FastStream encodes as JSON, such as a pydantic model.
            topic: the topic; a router's prefix is not added.
            **options: all of them optional.

        - `headers` (`dict[str, str]`): they are Pulsar's properties.
        - `correlation_id` (`str`): by default a new one.
        - `reply_to` (`str`): the topic for replies.
        - `key` (`str`): Pulsar's `partition_key`.
        - `ordering_key` (`str`): Pulsar's `ordering_key`, which Key_Shared subscriptions use instead of the key.
        - `event_timestamp` (`int`): the event time in milliseconds since 1970.
        - `deliver_after` (`timedelta`): the delay before the broker delivers the message to Shared and Key_Shared
          subscriptions.

        Raises:
            InvalidUse: the topic is missing, or a header is not text. Nothing was sent.
            PulsarException: the broker rejected the message, or did not answer in time.
        """
        cmd = self._new_command(message, topic, options)
        sent: MessageId = await self._basic_publish(cmd, producer=self.config.producer)
        return sent

    async def publish_batch(  # type: ignore[override]  # as in each of FastStream's brokers
        self, *messages: SendableMessage, topic: str, **options: Unpack[PublishOptions]
    ) -> list[MessageId]:
        """Publish several messages in their order, and return their ids once all of them are persisted.

        The arguments are those of `publish()`, for each message. Each message is sent, even if others fail.
        """
        cmd = self._new_command(None, topic, options)
        cmd.batch_bodies = messages
        sent: list[MessageId] = await self._basic_publish_batch(cmd, producer=self.config.producer)
        return sent

    async def request(
        self,
        message: SendableMessage = None,
        topic: str = "",
        timeout: float = 30.0,  # noqa: ASYNC109  # FastStream's signature
        *,
        reply_topic: str | None = None,
        **options: Unpack[SendOptions],
    ) -> PulsarMessage:
        """Publish a request, and return its reply: a handler's return value, or the reply of a `Replier`.

        The broker keeps a `Requester` for each requested topic.

        Args:
            message: see `publish()`.
            topic: the requested topic.
            timeout: seconds to wait for the reply.
            reply_topic: the topic that receives the reply; by default the broker's `reply_topic`.
            **options: those of `publish()`, except `reply_to`.

        Raises:
            TimeoutError: no reply arrived in time. A handler may still handle the request.
            ConsumerBusy: another process has pending requests with this `reply_topic`. Nothing was sent.
            RequestFailed: a `Replier` reports a failure. A FastStream handler that raises sends no reply.
        """
        cmd = self._new_command(message, topic, options)
        cmd.set_request(timeout, reply_topic)
        reply: PulsarMessage = await self._basic_request(cmd, producer=self.config.producer)
        return reply

    def check_publishers(self) -> None:
        """Check each publisher's options with the broker's, as an opening does; raise `SetupError`."""
        for publisher in self.publishers:
            if isinstance(publisher, PulsarPublisher):
                check_producer_options(self._sender.options_of(publisher.producer_options))

    def _new_command(self, message: object, topic: str, options: SendOptions) -> PulsarPublishCommand:
        command = PulsarPublishCommand(message, topic=topic, **options)
        command.correlation_id = command.correlation_id or self.config.id_generator()
        return command

    def _known_topics(self) -> Iterator[str]:
        for subscriber in self.subscribers:
            if isinstance(subscriber, PulsarSubscriber) and not subscriber.topics.is_pattern:
                yield subscriber.topic.partition(",")[0]
        yield from (one.topic for one in self.publishers if isinstance(one, PulsarPublisher))


def _shown_url(service_url: object) -> str:
    url = service_url if isinstance(service_url, str) else os.environ.get("PULSAR_URL", "pulsar://localhost:6650")
    return re.sub(r"(://|,)[^/@,]*@", r"\1", url.partition("?")[0])


def _annotations() -> UnderlyingDriverAnnotations:
    """Return the annotations that stand for bare classes in the arguments of handlers."""
    module = f"{__package__}.annotations"
    rows = (
        (Client, "Client", "broker._connection"),
        (PulsarMessage, "PulsarMessage", "message"),
        (PulsarBroker, "PulsarBroker", "broker"),
    )
    return {
        kind: UnderlyingDriverAnnotation(type_hint=Annotated[kind, Context(path)], module=module, name=name)
        for kind, name, path in rows
    }
