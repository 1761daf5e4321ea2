"""Repliers of the blocking client: `process()` with a handler whose results are sent back."""

from __future__ import annotations

import contextlib
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Self

from pulsar_ext._runtime.condition import Flag
from pulsar_ext.errors import InvalidUse
from pulsar_ext.process.driving import drive

from .reply_producers import ReplyProducers

if TYPE_CHECKING:
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.consumer import Consumer
    from pulsar_ext.message import Message

    from .envelope import Answer
    from .opening import ReplierOptions
    from .replying import Replying

__all__ = ["Replier"]


class Replier:
    """Answers the requests on one topic; made by `Client.replier()`.

    Several processes with the same subscription share the requests.
    """

    def __init__(self, context: ClientContext, options: ReplierOptions, replying: Replying) -> None:
        if iscoroutinefunction(replying.handler):
            raise InvalidUse("The handler is an async function: replier() of pulsar_ext.asyncio awaits it.")
        self._opener, self._options, self._replying = context.opener, options, replying
        self.consumer: Consumer
        self._producers = ReplyProducers(lambda topic: context.opener.create_producer(**options.producing(topic)))

    def open(self) -> Self:
        """Subscribe to the requests."""
        self.consumer = self._opener.subscribe(**self._options.consuming())
        return self

    def run(self, *, concurrency: int = 1) -> None:
        """Answer requests, so many at a time, until `stop()`, a close or a SIGTERM; see `Consumer.process()`.

        A request is acknowledged when its replies are persisted. If the process dies before, it comes to another
        replier.

        Args:
            concurrency: how many requests are handled at once, each on a thread of its own.

        Raises:
            InvalidUse: it is not an int, 1 or more.
            pulsar.AlreadyClosed: it was closed before.
            pulsar.PulsarException: a receive failed.
        """
        self.consumer.process(self._handle, concurrency=concurrency, on_error=self._replying.becomes)

    def stop(self) -> None:
        """Have every `run()` receive no more, and return when what is under way is answered; it waits for nothing."""
        self.consumer.stop_processing()

    def close(self) -> None:
        """Close; requests that are not answered come to another replier. Closing again does nothing.

        Raises:
            pulsar.PulsarException: the broker did not answer, or refused; it is closed all the same.
        """
        with contextlib.ExitStack() as closing:
            closing.callback(self._producers.close)
            self.consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handle(self, message: Message) -> None:
        drive(self._replying.steps(message, self._send))

    def _send(self, answer: Answer, properties: dict[str, str], content: Any) -> None:
        sent = self._producers.send(answer.topic, content, properties)
        known = Flag()  # the future's own wait is not for C++ threads to end, if greenlets have patched Python's locks
        sent.add_done_callback(lambda _: known.set())
        known.wait()
        sent.result()
        self._producers.close_idle()
