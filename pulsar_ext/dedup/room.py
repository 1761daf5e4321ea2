"""Going on behind a full backlog quota: what the broker refused for lack of room is sent again once there is room.

With the policy `producer_exception` a broker disconnects its producers when the quota is full, and refuses them as they
connect again. The C++ client then fails everything that has no answer, and it is not known what of it is persisted. So
here the C++ producer is closed, and another one of the same name is opened as soon as the broker allows it. It sends
what has no outcome again, in the same order, with the same ids: the broker drops what it has.
"""

from __future__ import annotations

import operator
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.handles import build_again
from pulsar_ext._native.messages import batch_message
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext.produce.dispatch import BatchDispatcher
from pulsar_ext.produce.sender import close_quietly

from .patience import Patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.handles import ProducerHandle
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.produce.batch import Batch, BatchingConfig

__all__ = ["NO_ROOM", "RoomDispatcher"]

NO_ROOM: Final = (
    pulsar.Result.ProducerBlockedQuotaExceededException,
    pulsar.Result.ProducerBlockedQuotaExceededError,
)
_CLOSED = pulsar.Result.AlreadyClosed


class RoomDispatcher(BatchDispatcher, ABC):
    """A `BatchDispatcher` that waits for room where the broker has none.

    Args:
        handle: the C++ producer.
        context: of its client.
        config: how batches are made.
        open_again: opens an official producer of the same name.
        timeout: for how many seconds room is waited for; 0 for any time.
    """

    def __init__(
        self,
        handle: ProducerHandle,
        context: ClientContext,
        config: BatchingConfig,
        open_again: Callable[[], pulsar.Producer],
        timeout: float,
    ) -> None:
        super().__init__(handle, context, config)
        self.timeout = timeout
        self._open_again = open_again
        self.waits_for_room = False
        """Whether nothing is pushed, because the broker has no room."""

    @abstractmethod
    def give_up(self, error: BaseException) -> None:
        """Take note that what is in flight fails, before it is reported."""

    def on_outcome(self, batch: Batch, result: Any, inner: Any) -> None:
        """Take the outcome of a batch, if it is one: what waits for room, or was closed for that, has none yet."""
        keep_thread_state()
        if result in NO_ROOM and self._wait_for_room():
            return
        if not (self.waits_for_room and result == _CLOSED) or self.closed or self.pending.barred:
            super().on_outcome(batch, result, inner)

    def begin_close(self) -> Any:
        """Begin to close the C++ producer, which fails what is in flight; what waits for room fails, too."""
        answer = super().begin_close()
        if self.waits_for_room:
            self._fail_waiting()
        return answer

    def _push_groups(self) -> None:
        if not self.waits_for_room:
            super()._push_groups()

    def _wait_for_room(self) -> bool:
        """Begin to wait for room; False if nothing may be sent any more."""
        if self.closed or self.pending.barred or not self.may_push():
            return False
        with self.pending.changed:
            begins, self.waits_for_room = not self.waits_for_room, True
        if begins:
            threads.start(self._send_again, name="pulsar_ext-room")
        return True

    def _send_again(self) -> None:
        """Send what has no outcome with another C++ producer, once there is room; on a thread of its own."""
        try:
            close_quietly(self.handle)
            ask = Patience(self.timeout or 1e9, lambda: self.closed or self.pending.barred)
            official = ask(self._open_again)
        except BaseException as error:  # noqa: BLE001  # its senders must get an answer
            self.give_up(error)
            self._fail_waiting()
            return
        if not self.exclusively(self._install, official):
            close_quietly(official)
            self._fail_waiting()

    def _fail_waiting(self) -> None:
        self.waits_for_room = False
        self.fail_pending()

    def _install(self, official: pulsar.Producer) -> bool:
        """Send with another C++ producer, first what has no outcome; False if nothing may be sent. The lock is held."""
        if self.closed or self.pending.barred or not self.may_push():
            return False
        self.handle.replace(official)
        for batch in list(self._flying):
            if operator.length_hint(batch.unsent or (None,)):
                continue  # a signal came between: it is still to be pushed
            if batch.message is None:
                message = batch_message(batch.payload(), batch.count)
            else:
                message = batch.message = build_again(batch.message, batch.options, batch.ids[0])
            batch.began = time.monotonic()
            self.handle.inner.send_async(message, partial(self.on_outcome, batch))
        self.waits_for_room = False
        self._push_groups()
        return True
