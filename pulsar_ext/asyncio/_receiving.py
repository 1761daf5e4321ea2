"""What the awaited consumer and the awaited reader share."""

from __future__ import annotations

import asyncio
import logging
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext.message import Message, Received
from pulsar_ext.receive.loop import Receiving
from pulsar_ext.receive.many import check_max_messages

from ._blocking_receiver import Asking
from ._receive_queue import Feed
from .errors import PulsarException, raise_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

    from ._executor import Threads

__all__ = ["AsyncReceiving", "AsyncSeeking"]


_log = logging.getLogger("pulsar_ext")


class AsyncReceiving:
    """Stands before the official asyncio class."""

    blocking: Any
    _feed: Feed
    _message_class: type[Message]
    _threads: Threads

    def _begin(
        self, blocking: Any, threads: Threads, ask: Callable[[Any], object] | None, receive: Callable[[], Any]
    ) -> None:
        """Take the blocking counterpart.

        Args:
            blocking: the counterpart.
            threads: where it may wait.
            ask: asks the C++ client for one message; None where Python judges each message.
            receive: the counterpart's own receive.
        """
        self.blocking = blocking
        self._threads = threads
        self._message_class = getattr(blocking, "message_class", Received)
        self._feed = Feed(ask or Asking(lambda: receive().inner))
        if isinstance(blocking, Receiving):
            blocking.take_part(self._feed)

    async def _next(self, timeout_millis: int | None) -> Message:
        feed = self._feed
        if timeout_millis is None:
            inner = await feed.next()
        else:
            if not isinstance(timeout_millis, int):
                found = type(timeout_millis).__name__
                raise ValueError(  # what the official client raises
                    f"Argument timeout_millis is expected to be of type 'int' and not '{found}'"
                )
            try:
                async with asyncio.timeout(timeout_millis / 1000):
                    inner = await feed.next()
            except TimeoutError:
                raise_for(pulsar.Result.Timeout)
        message: Message = self._message_class()
        message.inner = inner
        return message

    async def _several(self, max_messages: int, timeout_millis: int | None) -> list[Message]:
        """Wait for one message, and take with it what is here."""
        check_max_messages(max_messages)
        try:
            messages = [await self._next(timeout_millis)]
        except PulsarException as error:
            if error.error() == pulsar.Result.Timeout:
                return []
            raise
        new, take = self._message_class, self._feed.take
        while len(messages) < max_messages and (inner := take()) is not None:
            message = new()
            message.inner = inner
            messages.append(message)
        return messages

    async def close(self) -> None:
        """Close, after sending pending acknowledgements; whoever waits for a message is told `AlreadyClosed`.

        Raises:
            PulsarException: `AlreadyClosed`, if it is closed, as officially.
        """
        if self.blocking.is_closed:
            raise_for(pulsar.Result.AlreadyClosed)
        await self._threads.run(self.blocking.close)
        self._feed.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._next(None)
        except PulsarException as error:
            if error.error() == pulsar.Result.AlreadyClosed:
                raise StopAsyncIteration from None
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not (self.blocking.is_closed or self._threads.ended):
            await self.close()


class AsyncSeeking(AsyncReceiving):
    """A consumer or a reader, which can be moved, and may have a listener."""

    _heard: asyncio.Event | None = None
    """Set while the listener hears."""

    async def seek(self, messageid: Any) -> None:
        """Move to a message by any id of it, `MessageId.earliest` or `latest`, or to a publish time in milliseconds.

        Raises:
            IncompleteChunkedMessage: the message cannot be delivered any more: chunks of it were trimmed.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidUse: it is neither an id nor an int.
        """
        await self._threads.run(self.blocking.seek, messageid)

    @property
    def key_hash_ranges(self) -> KeyHashRanges:
        """The ranges of a consumer or a reader of key ranges; as with the blocking ones, others have no such thing."""
        ranges: KeyHashRanges = self.blocking.key_hash_ranges
        return ranges

    def pause_message_listener(self) -> None:
        """Have the listener wait, until `resume_message_listener()`.

        Raises:
            PulsarException: `InvalidConfiguration`, if there is no listener.
        """
        self._listens().clear()

    def resume_message_listener(self) -> None:
        """Have the listener go on; raises as `pause_message_listener()`."""
        self._listens().set()

    def _listens(self) -> asyncio.Event:
        if self._heard is None:
            raise_for(pulsar.Result.InvalidConfiguration)
        return self._heard

    def _listen(self, listener: Callable[[Any, Message], object]) -> None:
        """Begin to hand every message to a listener, until this is closed."""
        self._heard = asyncio.Event()
        self._heard.set()
        self._listening = asyncio.create_task(self._hand_out(listener, self._heard))

    async def _hand_out(self, listener: Callable[[Any, Message], object], may_go_on: asyncio.Event) -> None:
        while True:
            try:
                message = await anext(self)
            except StopAsyncIteration:
                return
            except Exception:  # noqa: BLE001  # such as an admin API that does not answer
                _log.exception("A listener's receive failed; it goes on in a second")
                await asyncio.sleep(1)
                continue
            await may_go_on.wait()
            try:
                answer = listener(self, message)
                if isawaitable(answer):
                    await answer
            except Exception:  # noqa: BLE001  # whatever it is, the next message has to be handed out
                _log.exception("A listener raised; its message %r stays unacknowledged", message.message_id())

    def is_connected(self) -> bool:
        """Tell whether it is connected to the broker."""
        connected: bool = self.blocking.is_connected()
        return connected
