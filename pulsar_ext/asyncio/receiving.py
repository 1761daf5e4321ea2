"""What the awaited consumer and the awaited reader share."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext._official import Timeout
from pulsar_ext.message import Message

from .errors import PulsarException, raise_for
from .feed import Feed

if TYPE_CHECKING:
    from collections.abc import Callable

    from .threads import Threads

__all__ = ["AsyncReceiving"]

_SLICE_MILLIS = 500


class AsyncReceiving:
    """Stands before the official asyncio class."""

    blocking: Any
    _feed: Feed
    _message_class: type[Message]
    _threads: Threads

    def _begin(
        self, blocking: Any, threads: Threads, ask: Callable[[Any], object] | None, receive: Callable[[int], Any]
    ) -> None:
        """Take the blocking counterpart.

        Args:
            blocking: the counterpart.
            threads: where it may wait.
            ask: asks the C++ client for one message; None where Python judges each message.
            receive: the counterpart's own receive with a timeout in milliseconds.
        """
        self.blocking = blocking
        self._threads = threads
        self._message_class = getattr(blocking, "_message_class", Message)
        self._receive_blocking = receive
        self._feed = Feed(ask or self._ask_thread)
        if ask is not None:
            blocking._answered_by(self._feed)  # noqa: SLF001  # its other half

    def _ask_thread(self, answer: Callable[[Any, Any], None]) -> None:
        """Ask for a message on a thread."""
        self._threads.submit(partial(self._answer_from_thread, answer))

    def _answer_from_thread(self, answer: Callable[[Any, Any], None]) -> None:
        while True:
            try:
                message = self._receive_blocking(_SLICE_MILLIS)
            except Timeout:
                continue
            except pulsar.PulsarException as error:
                answer(getattr(pulsar.Result, type(error).__name__, pulsar.Result.UnknownError), None)
                return
            answer(pulsar.Result.Ok, message.inner)
            return

    async def _next(self, timeout_millis: int | None) -> Message:
        feed = self._feed
        if timeout_millis is None:
            inner = await feed.next()
        else:
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

    async def seek(self, messageid: Any) -> None:
        """Move to a message by any id of it, `MessageId.earliest` or `latest`, or to a publish time in milliseconds.

        Raises:
            IncompleteChunkedMessage: the message cannot be delivered any more: chunks of it were trimmed.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidUse: it is neither an id nor an int.
        """
        await self._threads.run(self.blocking.seek, messageid)

    async def close(self) -> None:
        """Close, after sending pending acknowledgements; whoever waits for a message is told `AlreadyClosed`.

        Raises:
            PulsarException: `AlreadyClosed`, if it is closed, as officially.
        """
        if self.blocking._closed:  # noqa: SLF001
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
        if not self.blocking._closed:  # noqa: SLF001
            await self.close()
