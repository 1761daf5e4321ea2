"""What the awaited consumer and the awaited reader share."""

from __future__ import annotations

import asyncio
import logging
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic, Self

import pulsar

from pulsar_ext.message import Message, Received, handled_in
from pulsar_ext.receive.loop import Receiving
from pulsar_ext.receive.many import check_max_messages
from pulsar_ext.schema.typed import T

from ._blocking_receiver import BlockingReceiver
from ._cancellation import is_own_cancellation
from ._receive_queue import ReceiveQueue
from ._renewal import Renewal
from .errors import PulsarException, raise_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

    from ._executor import Executor

__all__ = ["AsyncReceiving", "AsyncSeeking"]


_log = logging.getLogger("pulsar_ext")


class AsyncReceiving(Generic[T]):
    """What receives messages; stands before the official asyncio class in the order of base classes."""

    blocking: Any
    _executor: Executor
    _queue: ReceiveQueue
    _renewal: Renewal

    def _begin(
        self,
        blocking: Any,
        executor: Executor,
        receive_async_of: Callable[[Any], Callable[[Any], object]] | None,
        receive: Callable[[], Any],
    ) -> None:
        """Stand over the blocking counterpart.

        Args:
            blocking: the counterpart.
            executor: runs the calls that wait.
            receive_async_of: gives what asks a C++ object for one message; None where Python looks at each message
                first.
            receive: the counterpart's own receive, which is used there.
        """
        self.blocking = blocking
        self._executor = executor
        self._renewal = Renewal(lambda: blocking._renew_(None))
        if receive_async_of is None:
            receiver = BlockingReceiver(lambda: receive().inner)
            self._queue = ReceiveQueue(None, lambda _: receiver.receive_async)
        else:
            self._queue = ReceiveQueue(blocking.inner, receive_async_of)
            self._queue.drops = getattr(blocking, "_came_again_", None)  # a reader acknowledges nothing
        if isinstance(blocking, Receiving):
            blocking._take_part_(self._queue)

    @property
    def _message_class(self) -> type[Message[T]]:
        messages: type[Message[T]] = getattr(self.blocking, "_message_class_", Received)
        return messages

    async def _receive(self, timeout_millis: int | None) -> Message[T]:
        queue = self._queue
        if timeout_millis is not None and not isinstance(timeout_millis, int):
            found = type(timeout_millis).__name__
            raise ValueError(  # what the official client raises
                f"Argument timeout_millis is expected to be of type 'int' and not '{found}'"
            )
        # Replaced by a seek that is at work, or by one that could not finish.
        take = self._take_renewed if queue.is_replaced else queue.get
        if timeout_millis is None:
            inner = await take()
        else:
            try:
                async with asyncio.timeout(timeout_millis / 1000):
                    inner = await take()
            except TimeoutError:
                raise_for(pulsar.Result.Timeout)
        message: Message[T] = self._message_class()
        message.inner = inner
        return message

    _receive_plain = _receive

    async def _take_renewed(self) -> Any:
        await self._renewal.wait()
        return await self._queue.get()

    async def _receive_many(self, max_messages: int, timeout_millis: int | None) -> list[Message[T]]:
        """Wait for one message, and take with it those that need no waiting."""
        check_max_messages(max_messages)
        try:
            messages = [await self._receive_plain(timeout_millis)]  # a subclass looks at all of them
        except PulsarException as error:
            if error.error() == pulsar.Result.Timeout:
                return []
            raise
        new, get_ready = self._message_class, self._queue.get_ready
        while len(messages) < max_messages and (inner := get_ready()) is not None:
            message = new()
            message.inner = inner
            messages.append(message)
        return messages

    async def close(self) -> None:
        """Close, after sending pending acknowledgements; every receive that waits raises `AlreadyClosed`.

        Cancelling leaves it under way.

        Raises:
            PulsarException: `AlreadyClosed`, if it is closed, as officially.
        """
        if self.blocking.is_closed:
            raise_for(pulsar.Result.AlreadyClosed)
        await self._executor.end(self.blocking.close, self._end_receives_)

    def _end_receives_(self) -> None:
        """Have every waiting and later receive raise `AlreadyClosed`: the blocking counterpart is closed."""
        self._queue.close()
        self._renewal.end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        try:
            return await self._receive(None)
        except PulsarException as error:
            if error.error() == pulsar.Result.AlreadyClosed:
                raise StopAsyncIteration from None
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not (self.blocking.is_closed or self._executor.closed):
            await self.close()


class AsyncSeeking(AsyncReceiving[T]):
    """A consumer or a reader, which can be moved, and may have a listener."""

    _listener_task: asyncio.Task[None] | None = None
    """Hands messages to the listener; None without one."""

    async def seek(self, messageid: Any) -> None:
        """Move to a message by any id of it, `MessageId.earliest` or `latest`, or to a publish time in milliseconds.

        A chunked message is one, by whatever id. With `start_message_id_inclusive=True` the message is the next one to
        come, otherwise the one after it is. Of several topics, a dict of these by topic moves some of them.

        Raises:
            IncompleteChunkedMessage: the message cannot be delivered any more: chunks of it were trimmed.
            MessageIdNotFound: an id rebuilt from numbers is past the end of the topic.
            InvalidUse: it is neither an id nor an int.
        """
        await self._executor.run(self.blocking.seek, messageid)

    async def get_last_message_ids(self) -> list[MessageId]:
        """Give the id of the last message of each topic and partition; see `pulsar_ext.Consumer`."""
        return await self._executor.run(self.blocking.get_last_message_ids)

    async def has_reached_end_of_topic(self) -> bool:
        """Tell whether the topic was terminated and everything was consumed; see `pulsar_ext.Consumer`."""
        return await self._executor.run(self.blocking.has_reached_end_of_topic)

    @property
    def key_hash_ranges(self) -> KeyHashRanges:
        """The ranges of a consumer or a reader of key ranges; an AttributeError for others, as in the blocking ones."""
        ranges: KeyHashRanges = self.blocking.key_hash_ranges
        return ranges

    def pause_message_listener(self) -> None:
        """Have the listener wait, until `resume_message_listener()`.

        Raises:
            PulsarException: `InvalidConfiguration`, if there is no listener.
        """
        self._listened().silence()

    def resume_message_listener(self) -> None:
        """Have the listener go on; raises as `pause_message_listener()`."""
        self._listened().unsilence()

    def _listened(self) -> ReceiveQueue:
        if self._listener_task is None:
            raise_for(pulsar.Result.InvalidConfiguration)
        return self._queue

    def _start_listener_(self, listener: Callable[[Any, Message[T]], object]) -> None:
        """Begin to hand every message to a listener, until this is closed."""
        self._listener_task = asyncio.create_task(self._listen(listener))

    async def _listen(self, listener: Callable[[Any, Message[T]], object]) -> None:
        while True:
            try:
                message = await anext(self)
            except StopAsyncIteration:
                return
            except Exception:  # noqa: BLE001  # such as an admin API that does not answer
                _log.exception("A listener's receive failed; it is tried again in a second")
                await asyncio.sleep(1)
                continue
            try:
                with handled_in(message):
                    returned = listener(self, message)
                    if isawaitable(returned):
                        await returned
            except (Exception, asyncio.CancelledError) as error:  # the next message has to be handed out
                if is_own_cancellation(error):
                    raise
                _log.exception("A listener raised; its message %r stays unacknowledged", message.message_id())

    def is_connected(self) -> bool:
        """Tell whether it is connected to the broker."""
        connected: bool = self.blocking.is_connected()
        return connected
