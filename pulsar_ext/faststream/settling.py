"""FastStream's exceptions that settle a message, where FastStream itself leaves it unacknowledged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from faststream import BaseMiddleware
from faststream.exceptions import AckMessage, HandlerException, NackMessage, RejectMessage, SkipMessage

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from faststream._internal.basic_types import AsyncFuncAny
    from faststream._internal.context import ContextRepo
    from faststream.message import StreamMessage

__all__ = ["Settling"]


class Settling(BaseMiddleware):
    """Settles one message whose handler raised.

    Without a policy that settles messages, `AckMessage`, `NackMessage` and `RejectMessage` do it. With one, a message
    that `SkipMessage` is raised for is acknowledged: it would stay unacknowledged for as long as there is the consumer.

    Args:
        raw_message: what was received.
        context: FastStream's.
        is_manual: whether the handler settles its messages.
        log: logs a line at a level, with an error.
    """

    def __init__(
        self, raw_message: Any, /, *, context: ContextRepo, is_manual: bool, log: Callable[..., object]
    ) -> None:
        super().__init__(raw_message, context=context)
        self._is_manual, self._log = is_manual, log
        self._message: StreamMessage[Any] | None = None

    async def consume_scope(self, call_next: AsyncFuncAny, msg: StreamMessage[Any]) -> Any:
        """Note the message."""
        self._message = msg
        return await call_next(msg)

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> bool:
        """Settle it as the exception says; return if the exception goes no further."""
        del exc_type, exc_tb
        if self._message is None or not isinstance(exc_val, HandlerException):
            return False
        try:
            await self._settle(self._message, exc_val)
        except Exception as error:  # noqa: BLE001  # as FastStream does
            self._log(logging.CRITICAL, repr(error), exc_info=error)
        return self._is_manual

    async def _settle(self, message: StreamMessage[Any], error: HandlerException) -> None:
        if isinstance(error, SkipMessage) and not self._is_manual:
            await message.ack()
        elif isinstance(error, AckMessage) and self._is_manual:
            await message.ack(**error.extra_options)
        elif isinstance(error, NackMessage) and self._is_manual:
            await message.nack(**error.extra_options)
        elif isinstance(error, RejectMessage) and self._is_manual:
            await message.reject(**error.extra_options)
