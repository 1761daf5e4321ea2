"""Telling an awaited consumer's listener, in its loop, whether the consumer is the active one."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ._cancellation import is_own_cancellation
from ._loop_bridge import running_loop_bridge

if TYPE_CHECKING:
    from pulsar_ext.client.consumer_settings import ConsumerEventListener

__all__ = ["LoopEvents"]

_log = logging.getLogger("pulsar_ext")


class LoopEvents:
    """Stands where the blocking client expects a listener, and tells the application's in the loop, one by one.

    Args:
        listener: the application's; its methods may be async.
    """

    def __init__(self, listener: ConsumerEventListener) -> None:
        self._listener, self._bridge = listener, running_loop_bridge()
        self._events: deque[tuple[str, int]] = deque()
        self._consumer: Any = None
        self._telling: asyncio.Task[None] | None = None

    def became_active(self, _: Any, partition: int, /) -> None:
        """Hear it; on a thread of the C++ client."""
        self._bridge.call_soon(self._hear, "became_active", partition)

    def became_inactive(self, _: Any, partition: int, /) -> None:
        """Hear it; on a thread of the C++ client."""
        self._bridge.call_soon(self._hear, "became_inactive", partition)

    def attach(self, consumer: Any) -> None:
        """Take the awaited consumer that the listener is told of."""
        self._consumer = consumer
        self._tell()

    def _hear(self, what: str, partition: int) -> None:
        self._events.append((what, partition))
        self._tell()

    def _tell(self) -> None:
        if self._consumer is not None and self._events and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell_all())  # an eager one may be done already

    async def _tell_all(self) -> None:
        while self._events:
            what, partition = self._events.popleft()
            try:
                told = getattr(self._listener, what)(self._consumer, partition)
                if isawaitable(told):
                    await told
            except (Exception, asyncio.CancelledError) as error:  # the next event has to be told
                if is_own_cancellation(error):
                    raise
                _log.exception("A listener raised; the event was %s of partition %d", what, partition)
