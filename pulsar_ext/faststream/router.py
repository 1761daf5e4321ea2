"""Router: subscribers and publishers for a broker, declared by decorators or by routes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from fast_depends.dependencies import Dependant
from faststream._internal.broker import BrokerRouter
from faststream._internal.broker.router import ArgsContainer, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream._internal.types import CustomCallable
from faststream.middlewares import AckPolicy

from .config import Middlewares, PulsarBrokerConfig, check_ack_policy
from .message import Raw
from .registrator import PulsarRegistrator


def _arguments_of(method: Callable[..., object]) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())[1:]


class PulsarPublisher(ArgsContainer):
    """Publisher of a `PulsarRoute`; the arguments are those of `PulsarBroker.publisher()`.

    Raises:
        TypeError: an argument is missing or unknown.
    """

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
