"""The sender of a producer with interceptors: stands before the one that sends, whichever that is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.results import raise_result
from pulsar_ext._native.signatures import shaped_like
from pulsar_ext.produce.options import named_options, rows_of
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, BulkOutcome, SentMany, duplicate_message
from pulsar_ext.produce.sender import WrappingSender, check_callback

from .outgoing import OutgoingMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.produce.sender import Sender

    from .chain import ProducerChain

__all__ = ["InterceptedSender"]

_OK = pulsar.Result.Ok


class InterceptedSender(WrappingSender):
    """Has interceptors see each message before it is sent, and what becomes of it.

    Args:
        sender: sends what they give.
        chain: the interceptors.
    """

    def __init__(self, sender: Sender, chain: ProducerChain) -> None:
        super().__init__(sender)
        self.chain = chain

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message and wait for its outcome."""
        self.context.callbacks.refuse("send")  # before an interceptor sees it
        shown, message = self._before(content, named_options(args, kwargs))
        try:
            sent = self._sender.send(message.value, **message.options())
        except BaseException as error:
            self.chain.sent(shown, message, None, error)
            raise
        self.chain.sent(shown, message, sent, None)
        return sent

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message and have `callback(result, message_id)` called once it is persisted or has failed."""
        check_callback(callback)
        shown, message = self._before(content, named_options(args, kwargs))
        try:
            self._sender.send_async(message.value, _Outcome(self.chain, shown, message, callback), **message.options())
        except BaseException as error:  # it has no outcome
            self.chain.sent(shown, message, None, error)
            raise

    def send_many(self, contents: Iterable[Any], columns: dict[str, Iterable[Any]], *, flush: bool) -> SentMany:
        """Send many messages, and with `flush` wait until all of them are persisted."""
        self._sender.send_many((), {}, flush=False)  # refuses what cannot be
        bulk, taken = BulkOutcome(), 0
        for content, options in rows_of(contents, columns):
            self.post(content, bulk.one, options, patient=True)
            taken += 1
            if self.many_in_flight is not None:
                bulk.wait(taken - self.many_in_flight)
        if flush:
            with contextlib.suppress(pulsar.PulsarException):  # of any message that failed: ours are known below
                self._sender.flush()
            bulk.wait(taken)
            bulk.raise_failure()
        return SentMany(taken, bulk.duplicates, bulk.last)

    def post(self, content: Any, callback: SendCallback, options: dict[str, Any], *, patient: bool = False) -> None:
        """Send one of many; the sender says how."""
        shown, message = self._before(content, options)
        outcome = _Outcome(self.chain, shown, message, callback)
        try:
            self._sender.post(message.value, outcome, message.options(), patient=patient)
        except BaseException as error:  # it has no outcome
            self.chain.sent(shown, message, None, error)
            raise

    def finish(self, deadline: float) -> None:
        """Close, and wait for what is pending no longer than until `deadline`, a monotonic time in seconds."""
        try:
            self._sender.finish(deadline)
        finally:
            self.chain.close()

    def _before(self, content: Any, options: dict[str, Any]) -> tuple[Any, OutgoingMessage]:
        return self.chain.shown, self.chain.before_send(OutgoingMessage.of(content, options))


class _Outcome:
    """The callback of one message: tells the interceptors first, then the application.

    Args:
        chain: the interceptors.
        shown: the producer, which is kept until the message has its outcome.
        message: what is sent.
        callback: the application's; None if it does not ask.
    """

    __slots__ = ("_callback", "_chain", "_message", "_shown")

    def __init__(
        self, chain: ProducerChain, shown: Any, message: OutgoingMessage, callback: SendCallback | None
    ) -> None:
        self._chain, self._shown, self._message, self._callback = chain, shown, message, callback

    def __call__(self, result: Any, message_id: MessageId) -> None:
        try:
            error = _error_of(result, self._message.sequence_id)
            self._chain.sent(self._shown, self._message, message_id if error is None else None, error)
        finally:
            if self._callback is not None:
                self._callback(result, message_id)


def _error_of(result: Any, sequence_id: int | None) -> BaseException | None:
    """Give what a send with a result raises; None if it is persisted."""
    if result is DUPLICATE_MESSAGE:
        return duplicate_message(sequence_id)
    if result == _OK:
        return None
    try:
        raise_result(result)
    except pulsar.PulsarException as raised:
        error: BaseException = raised
        return error
