"""The broker: connects, publishes, asks, logs and stops."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Annotated, Any, Final

import pulsar
from fast_depends import Provider, dependency_provider
from faststream import Context
from faststream._internal.broker import BrokerUsecase
from faststream._internal.configs import UnderlyingDriverAnnotation, UnderlyingDriverAnnotations
from faststream._internal.constants import EMPTY
from faststream._internal.context import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, LoggerState, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.message import gen_cor_id
from faststream.response import PublishType

from pulsar_ext.asyncio import Client
from pulsar_ext.request.envelope import in_same_namespace

from .config import PulsarBrokerConfig, check_ack_policy, check_client_options, check_producer_options
from .message import PulsarMessage, Raw
from .publisher import PulsarPublisher
from .registrator import PulsarRegistrator, broker_specification
from .response import PulsarPublishCommand
from .sender import PulsarSender
from .subscriber import PulsarSubscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from types import TracebackType

    from fast_depends.dependencies import Dependant
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.basic_types import LoggerProto, SendableMessage
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
    from faststream.middlewares import AckPolicy
    from faststream.specification.schema import Tag, TagDict

    from pulsar_ext.ids.message_id import MessageId


def driver_annotations(broker: Any) -> UnderlyingDriverAnnotations:
    """Return the annotation to use instead of each bare class.

    Args:
        broker: the class of the broker.
    """
    rows = (
        (Client, "Client", "broker._connection"),
        (PulsarMessage, "PulsarMessage", "message"),
        (broker, "PulsarBroker", "broker"),
    )
    module = f"{__package__}.annotations"
    return {
        kind: UnderlyingDriverAnnotation(type_hint=Annotated[kind, Context(path)], module=module, name=name)
        for kind, name, path in rows
    }


_ID_WIDTH: Final = 10
_LONGEST_ID: Final = 200
"""FastStream cuts ids at a length; this is more than that of two ids, as a chunked message has."""


class _Columns(DefaultLoggerStorage):
    """The columns are as wide as what is known when the broker connects."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"subscription": 0, "topic": 0}

    def register_subscriber(self, params: dict[str, Any]) -> None:
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


def logger_state(logger: LoggerProto | None, log_level: int) -> LoggerState:
    """Give what logs: the application's logger, one of FastStream's by default, or None for none."""
    return make_logger_state(logger=logger, log_level=log_level, default_storage_cls=_Columns)


_PING_SECONDS = 5.0
_NO_TOPIC = "persistent://public/default/faststream-ping-partition-0"
"""No broker makes a partition of a topic because somebody asks about it."""


class PulsarBroker(  # pyright: ignore[reportIncompatibleMethodOverride]  # as in each of FastStream's brokers
    PulsarRegistrator, BrokerUsecase[Raw, Client, PulsarBrokerConfig]
):
    """A FastStream broker whose client is a `pulsar_ext.asyncio.Client`.

    Args:
        service_url: such as `pulsar://localhost:6650`; without it `PULSAR_URL` of the environment.
        admin: the admin API, as in `pulsar_ext.Client`.
        producer_options: arguments of `pulsar_ext.asyncio.Client.create_producer()` for every producer. By default
            each message leaves at once, large ones are sent in chunks, and a full queue is waited for.
        may_reply_to: a function of a message's topic and of the one where it wants its reply; whether a reply is sent.
            By default only within the message's namespace.
        reply_topic: where the replies to `request()` come. By default each topic that is asked has a reply topic of its
            own, with a random name, which a process that is killed leaves behind. A topic of this process, such as
            `"replies-of-billing-0"`, is taken over by the next start; two processes cannot use one at once.
        graceful_timeout: how many seconds `stop()` waits for handlers before it cancels them; with None it cancels
            them at once.
        decoder: as in FastStream.
        parser: as in FastStream.
        codec: as in FastStream.
        dependencies: of all handlers.
        middlewares: around all handlers and all that is published.
        routers: taken over as by `include_router()`.
        ack_policy: of those subscribers that have none of their own.
        id_generator: makes correlation ids.
        specification_url: the address in AsyncAPI; by default the service URL, without what stands before an `@`.
        protocol: for AsyncAPI; by default that of the service URL.
        protocol_version: for AsyncAPI.
        description: for AsyncAPI.
        tags: for AsyncAPI.
        logger: FastStream's logger; None for none.
        log_level: the level of the two lines that each message has there.
        client_logger: the `logger` of `pulsar_ext.Client`, where the C++ client's lines go.
        apply_types: whether FastStream validates the arguments of handlers.
        serializer: as in FastStream.
        provider: as in FastStream.
        context: as in FastStream.
        **client_options: any other argument of `pulsar_ext.asyncio.Client`, such as `authentication`.

    Raises:
        SetupError: an argument is not valid, or is not known.
    """

    def __init__(
        self,
        service_url: Any = None,
        *,
        admin: Any = None,
        producer_options: Mapping[str, Any] | None = None,
        may_reply_to: Callable[[str, str], bool] = in_same_namespace,
        reply_topic: str | None = None,
        graceful_timeout: float | None = 15.0,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
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
        client_logger: Any = None,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
        **client_options: Any,
    ) -> None:
        check_ack_policy(ack_policy)
        check_client_options(client_options)
        self._sender = PulsarSender(
            parser=parser, decoder=decoder, producer_options=producer_options, reply_topic=reply_topic
        )
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
                logger=logger_state(logger, log_level),
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
                default_driver_annotations=driver_annotations(PulsarBroker),
            ),
            specification=broker_specification(
                specification_url, service_url, protocol, protocol_version, description, tags
            ),
        )

    async def _connect(self) -> Client:
        client = Client(**self._connection_kwargs)
        config = self.config.broker_config
        config.opened = client
        self._sender.connect(client, config.fd_config._serializer, config.broker_codec)  # noqa: SLF001  # as FastStream's brokers do
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
        """Stop every subscriber, see there, wait until what was published is persisted, and close the client."""
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
        """Ask the broker about one topic of a subscriber or a publisher; return if it answers.

        Args:
            timeout: how many seconds it has; 5 by default.

        Returns:
            False also if it is not connected. Without a topic that is known by its name it asks about one that there
            is not.
        """
        client = self._connection
        if client is None:
            return False
        topic = next(self._known_topics(), _NO_TOPIC)
        try:
            async with asyncio.timeout(timeout or _PING_SECONDS):
                await client.get_topic_partitions(topic)
        except (pulsar.TopicNotFound, pulsar.AuthorizationError):  # an answer, if the topic is nobody's
            return topic == _NO_TOPIC
        except Exception:  # noqa: BLE001  # whatever it is, there is no answer
            return False
        return True

    async def publish(
        self,
        message: SendableMessage = None,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        key: str | None = None,
        ordering_key: str | None = None,
        event_timestamp: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Publish a message, and give its id when it is persisted.

        Args:
            message: bytes, a str, or what FastStream encodes as JSON, such as a pydantic model.
            topic: where to; a router's prefix is not put in front.
            headers: text by text; they are Pulsar's properties.
            correlation_id: by default a new one.
            reply_to: the topic that replies go to.
            key: Pulsar's `partition_key`.
            ordering_key: Pulsar's `ordering_key`.
            event_timestamp: when it happened, in milliseconds since 1970.
            deliver_after: for how long the broker keeps it back from Shared and Key_Shared subscriptions.

        Raises:
            InvalidUse: there is no topic, or a header is not text. Nothing was sent.
            PulsarException: the broker refused it, or did not answer in time.
        """
        cmd = PulsarPublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            key=key,
            ordering_key=ordering_key,
            event_timestamp=event_timestamp,
            deliver_after=deliver_after,
            _publish_type=PublishType.PUBLISH,
        )
        sent: MessageId = await self._basic_publish(cmd, producer=self.config.producer)
        return sent

    async def publish_batch(  # type: ignore[override]  # as in each of FastStream's brokers
        self,
        *messages: SendableMessage,
        topic: str,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        key: str | None = None,
    ) -> list[MessageId]:
        """Publish several messages in their order, and give their ids when all of them are persisted.

        The arguments are those of `publish()`, for each message. Each is sent whatever becomes of the others.
        """
        cmd = PulsarPublishCommand(
            None,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            key=key,
            _publish_type=PublishType.PUBLISH,
        )
        cmd.batch_bodies = messages
        sent: list[MessageId] = await self._basic_publish_batch(cmd, producer=self.config.producer)
        return sent

    async def request(
        self,
        message: SendableMessage = None,
        topic: str = "",
        timeout: float = 30.0,  # noqa: ASYNC109  # FastStream's signature
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        key: str | None = None,
        reply_topic: str | None = None,
    ) -> PulsarMessage:
        """Publish a request, and give its reply: what a handler of that topic returns, or a `Replier` of this library.

        The broker keeps a `Requester` for each topic that it asks.

        Args:
            message: as in `publish()`, and so are the others.
            topic: as above.
            timeout: how many seconds the reply has.
            headers: as above.
            correlation_id: as above.
            key: as above.
            reply_topic: where the reply comes; by default the broker's `reply_topic`.

        Raises:
            TimeoutError: there was no reply in time. A handler may still handle the request.
            ConsumerBusy: another process has requests under way with this `reply_topic`. Nothing was sent.
            RequestFailed: a `Replier` says that it failed. A FastStream handler that raises sends no reply.
        """
        cmd = PulsarPublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            key=key,
            timeout=timeout,
            reply_topic=reply_topic,
            _publish_type=PublishType.REQUEST,
        )
        reply: PulsarMessage = await self._basic_request(cmd, producer=self.config.producer)
        return reply

    def check_publishers(self) -> None:
        """Check the options of each publisher with those of the broker, as a producer would when it is opened.

        Raises:
            SetupError: they do not go together.
        """
        for publisher in self.publishers:
            if isinstance(publisher, PulsarPublisher):
                check_producer_options(self._sender.options_of(publisher.producer_options))

    def _known_topics(self) -> Iterator[str]:
        for subscriber in self.subscribers:
            if isinstance(subscriber, PulsarSubscriber) and not subscriber.topics.is_pattern:
                yield subscriber.topic.partition(",")[0]
        yield from (one.topic for one in self.publishers if isinstance(one, PulsarPublisher))
