"""Declarations of subscribers and publishers: decorators of brokers and routers, routes, and AsyncAPI descriptions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, TypeVar, cast

from fast_depends.dependencies import Dependant
from faststream._internal.broker import BrokerRouter
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import ArgsContainer, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.publisher import PublisherSpecification
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.parser import CodecProto
from faststream._internal.types import CustomCallable
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec, SubscriberSpec
from pulsar import ConsumerType

from .config import (
    Middlewares,
    Options,
    PulsarBrokerConfig,
    PulsarPublisherConfig,
    PulsarSubscriberConfig,
    Topics,
    check_ack_policy,
    check_producer_options,
)
from .message import Raw
from .publisher import PulsarBatchPublisher
from .publisher import PulsarPublisher as Publisher
from .subscriber import PulsarSubscriber

SpecT = TypeVar("SpecT", SubscriberSpec, PublisherSpec)


class _PulsarSubscriberSpecification(SubscriberSpecification[PulsarBrokerConfig, PulsarSubscriberConfig]):
    @property
    def channel_labels(self) -> list[str]:
        return list(dict.fromkeys(self.config.topics.each(self._outer_config.prefix)))

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payload, labels = resolve_payloads(self.get_payloads()), self.channel_labels
        keys = {self._channel_key(label, split=len(labels) > 1): label for label in labels}
        return {key: _channel(SubscriberSpec, key, keys[key], self.description, payload) for key in keys}


class _PulsarPublisherSpecification(PublisherSpecification[PulsarBrokerConfig, PulsarPublisherConfig]):
    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.config.prefixed_topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload, topic = resolve_payloads(self.get_payloads(), "Publisher"), self.config.prefixed_topic
        return {self.name: _channel(PublisherSpec, self.name, topic, self.config.description_, payload)}


def _channel(kind: type[SpecT], key: str, address: str, description: str | None, payload: dict[str, object]) -> SpecT:
    operation = Operation(message=Message(title=f"{key}:Message", payload=payload), bindings=None)
    return kind(address=address, description=description, operation=operation, bindings=None)


class PulsarRegistrator(Registrator[Raw, PulsarBrokerConfig]):
    """Common part of a broker and a router."""

    def subscriber(  # type: ignore[override]  # noqa: D417  # as in each of FastStream's brokers
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        subscription: str,
        subscription_type: ConsumerType = ConsumerType.Exclusive,
        max_workers: int = 1,
        batch: bool = False,
        max_records: int = 100,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
        **consumer_options: object,
    ) -> PulsarSubscriber:
        """Declare a subscriber; use it as the decorator of its handler.

        Args:
            topic: a topic, several topics, or a pattern of full names; a router's prefix is added before them.
            subscription: the subscription's name. It keeps messages while no subscriber runs.
            subscription_type: Shared and Key_Shared for several processes, Failover for one at a time.
            max_workers: the maximum number of messages handled at once; with 1 they are handled in their order.
            batch: true for a handler of lists of the messages that have arrived, at least one. They are acknowledged,
                redelivered and rejected together.
            max_records: the maximum number of messages in such a list.
            ack_policy: the action for a message whose handler raised, see docs/how-to/faststream.md. By default
                `AckPolicy.NACK_ON_ERROR`: it is redelivered.
            no_reply: true to send no replies.
            **consumer_options: any other argument of `pulsar_ext.asyncio.Client.subscribe()`, such as
                `initial_position`, `negative_ack_redelivery_delay_ms` and `dead_letter_policy`. With a dead letter
                policy `enable_retry` is True by default, except for patterns.

        All other arguments are those of FastStream's subscribers.

        Raises:
            SetupError: an argument is invalid, unknown, or has another name here.
        """
        for name, count in (("max_workers", max_workers), ("max_records", max_records)):
            if type(count) is not int or count < 1:
                raise SetupError(f"{name} must be an int >= 1, got {count!r}.")
        check_ack_policy(ack_policy)
        outer, calls = cast("PulsarBrokerConfig", self.config), CallsCollection[Raw]()
        config = PulsarSubscriberConfig(
            topics=Topics(topic),
            subscription=subscription,
            subscription_type=subscription_type,
            max_workers=max_workers,
            max_records=max_records if batch else None,
            options=consumer_options,
            no_reply=no_reply,
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
            _outer_config=outer,
            _ack_policy=ack_policy,
        )
        created = PulsarSubscriber(config, _PulsarSubscriberSpecification(outer, config, calls), calls)
        super().subscriber(created, persistent=persistent)
        return created.add_call(
            parser_=parser or self._parser, decoder_=decoder or self._decoder, dependencies_=dependencies, codec_=codec
        )

    def publisher(  # type: ignore[override]  # noqa: D417  # as in each of FastStream's brokers
        self,
        topic: str,
        *,
        batch: bool = False,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        reply_to: str = "",
        producer_options: Options | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: object = None,
        include_in_schema: bool = True,
    ) -> Publisher:
        """Declare a publisher; the return value of a handler that it decorates is published.

        Args:
            topic: the topic; a router's prefix is added before it.
            batch: true if each element of a handler's list is a message; `publish()` then takes several.
            key: of every message without its own.
            headers: of every message; the message's own take precedence.
            reply_to: the topic for replies.
            producer_options: arguments of `pulsar_ext.asyncio.Client.create_producer()` for the publisher's own
                producer, added to the broker's; without them it shares the producer of `broker.publish()`.
            schema: for AsyncAPI, if it differs from the handler's return type.

        All other arguments are those of FastStream's publishers.

        Raises:
            SetupError: one of the `producer_options` is invalid or unknown.
        """
        check_producer_options(producer_options)
        outer, kind = cast("PulsarBrokerConfig", self.config), PulsarBatchPublisher if batch else Publisher
        config = PulsarPublisherConfig(
            topic=topic,
            key=key,
            headers=headers or {},
            reply_to=reply_to,
            options=producer_options,
            title_=title,
            description_=description,
            schema_=schema,
            include_in_schema=include_in_schema,
            _outer_config=outer,
        )
        created = kind(config, _PulsarPublisherSpecification(outer, config))
        super().publisher(created, persistent=persistent)
        return created

    def include_router(
        self,
        router: Registrator[Raw, PulsarBrokerConfig],
        *,
        prefix: str = "",
        dependencies: Sequence[Dependant] = (),
        middlewares: Middlewares = (),
        include_in_schema: bool | None = None,
    ) -> None:
        """Include a `PulsarRouter`, with a prefix before its topics, such as `"orders."` or `"tenant/namespace/"`."""
        if not isinstance(router, PulsarRegistrator):
            raise SetupError(f"A PulsarBroker includes a PulsarRouter, not {type(router).__name__}.")
        super().include_router(
            router,
            prefix=prefix,
            dependencies=dependencies,
            middlewares=middlewares,
            include_in_schema=include_in_schema,
        )


def _arguments_of(method: Callable[..., object]) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())[1:]


class PulsarPublisher(ArgsContainer):
    """Publisher of a `PulsarRoute`, with the arguments of `PulsarBroker.publisher()`, which are checked at once."""

    __slots__ = ()
    __signature__: ClassVar = inspect.Signature(_arguments_of(PulsarRegistrator.publisher))

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.__signature__.bind(*args, **kwargs)
        super().__init__(*args, **kwargs)


class PulsarRoute(SubscriberRoute):
    """Handler for `PulsarRouter(handlers=[…])`: `PulsarRoute(handle, "orders", subscription="billing")`.

    Args:
        call: the handler.
        *args: the arguments of `PulsarBroker.subscriber()`.
        publishers: the publishers of its return value, each a `PulsarPublisher`.
        **kwargs: the arguments of `PulsarBroker.subscriber()`.

    Raises:
        TypeError: an argument is missing.
    """

    __slots__ = ()
    __signature__: ClassVar = inspect.Signature(
        [
            inspect.Parameter("call", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(one for one in _arguments_of(PulsarRegistrator.subscriber) if one.kind is not one.VAR_KEYWORD),
            inspect.Parameter("publishers", inspect.Parameter.KEYWORD_ONLY, default=()),
            inspect.Parameter("consumer_options", inspect.Parameter.VAR_KEYWORD),
        ]
    )

    def __init__(
        self, call: Callable[..., object], *args: object, publishers: Iterable[PulsarPublisher] = (), **kwargs: object
    ) -> None:
        self.__signature__.bind(call, *args, publishers=publishers, **kwargs)
        super().__init__(call, *args, publishers=publishers, **kwargs)


class PulsarRouter(  # pyright: ignore[reportIncompatibleMethodOverride]  # as in each of FastStream's brokers
    PulsarRegistrator, BrokerRouter[Raw, PulsarBrokerConfig]
):
    """Declarations of subscribers and publishers for `broker.include_router()`.

    Args:
        prefix: added before their topics, such as `"orders."` or `"tenant/namespace/"`.
        handlers: subscribers declared without a decorator.
        ack_policy: of its subscribers without their own. As in FastStream, subscribers declared before a broker
            includes the router do not use the broker's.

    All other arguments are those of FastStream's routers.
    """

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[SubscriberRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Middlewares = (),
        routers: Iterable[PulsarRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        ack_policy: AckPolicy = EMPTY,
        include_in_schema: bool | None = None,
    ) -> None:
        check_ack_policy(ack_policy)
        super().__init__(
            handlers=handlers,
            routers=routers,
            config=PulsarBrokerConfig(
                prefix=prefix,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                ack_policy=ack_policy,
                include_in_schema=include_in_schema,
            ),
        )
