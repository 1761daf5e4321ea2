"""A router: subscribers and publishers that a broker takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream._internal.broker import BrokerRouter
from faststream._internal.constants import EMPTY

from pulsar_ext.message import Message

from .config import PulsarBrokerConfig
from .registrator import PulsarRegistrator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fast_depends.dependencies import Dependant
    from faststream._internal.types import BrokerMiddleware, CustomCallable
    from faststream.middlewares import AckPolicy

__all__ = ["PulsarRouter"]


class PulsarRouter(  # pyright: ignore[reportIncompatibleMethodOverride]  # as in each of FastStream's brokers
    PulsarRegistrator, BrokerRouter[Message, PulsarBrokerConfig]
):
    """Declares subscribers and publishers for `broker.include_router()`.

    Args:
        prefix: comes in front of their topics, such as `"orders."` or `"tenant/namespace/"`.
        dependencies: of the handlers.
        middlewares: around them.
        routers: other routers that this one takes over.
        parser: as in FastStream.
        decoder: as in FastStream.
        ack_policy: of those of its subscribers that have none of their own. As in FastStream, those that are declared
            before a broker includes the router do not take the broker's.
        include_in_schema: for AsyncAPI.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[PulsarRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        ack_policy: AckPolicy = EMPTY,
        include_in_schema: bool | None = None,
    ) -> None:
        super().__init__(
            handlers=(),
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
