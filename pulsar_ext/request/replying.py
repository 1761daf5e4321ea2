"""From a request to its replies, step by step, for the blocking and the awaited client (pure)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pulsar_ext.errors import InvalidUse, RequestFailed
from pulsar_ext.process.actions import Redeliver, check_on_error

from .envelope import Answer, in_same_namespace
from .reply_producers import NotSentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.message import Message
    from pulsar_ext.process.actions import Action
    from pulsar_ext.process.driving import Steps

__all__ = ["END", "Replying"]

END = object()
"""What stands for the end of an iterator of replies."""

_log = logging.getLogger("pulsar_ext")


@dataclass(frozen=True, slots=True)
class Replying:
    """What a replier does with a request.

    Args:
        handler: is given each request; what it returns is the reply, an iterator gives several.
        name: the replier's.
        on_error: what becomes of a request whose handler raised, as in `process()`; None to tell the requester.
        may_reply_to: whether replies to a request on the first topic may go to the second one.
        has_letters: whether the consumer of the requests has retry letters.

    Raises:
        InvalidUse: the handler or `on_error` is not valid.
    """

    handler: Callable[[Message], Any]
    name: str
    on_error: Action | Callable[[Message, Exception], Any] | None = None
    may_reply_to: Callable[[str, str], bool] = in_same_namespace
    has_letters: bool = False

    def __post_init__(self) -> None:
        if self.on_error is not None:
            check_on_error(self.on_error, has_letters=self.has_letters)
        if not callable(self.handler):
            raise InvalidUse(f"handler is expected to be a function of a request, not {self.handler!r}.")

    def steps(self, message: Message, send: Callable[[Answer, dict[str, str], Any], Any]) -> Steps:
        """Give the steps of one request.

        Args:
            message: the request.
            send: sends one reply, given its properties and its content.

        Raises:
            NotSentError: a reply may be sent later.
            Exception: what the handler raised, if there is an `on_error`.
        """
        answer = Answer.to(message.properties(), self.name)
        if answer is not None and not self._may_reply(message.topic_name(), answer.topic):
            _log.error("A request on %s wants its reply on %s, and is left out", message.topic_name(), answer.topic)
            return
        try:
            yield from self._reply(message, answer, send)
        except NotSentError:
            raise
        except Exception as error:
            if self.on_error is not None and not isinstance(error, RequestFailed):
                raise
            _log.log(
                logging.DEBUG if isinstance(error, RequestFailed) else logging.ERROR,
                "A request on %s could not be answered",
                message.topic_name(),
                exc_info=error,
            )
            if answer is not None:
                yield from _say_failed(answer, error, send)

    def becomes(self, message: Message, error: Exception) -> Any:
        """Say what becomes of a request that could not be answered, as `on_error` of `process()`."""
        comes_again = isinstance(error, NotSentError) or self.on_error is None
        if callable(self.on_error) and not comes_again:
            return self.on_error(message, error)
        action = Redeliver() if comes_again else self.on_error
        _log.error("A request on %s could not be answered; %r", message.topic_name(), action, exc_info=error)
        return action

    def _may_reply(self, topic: str, reply_topic: str) -> bool:
        """Ask the application; where it raises, it does not say that a reply may go there."""
        try:
            return self.may_reply_to(topic, reply_topic)
        except Exception:  # noqa: BLE001  # whatever it is, the request would come again for ever
            _log.exception("%r raised for a request on %s", self.may_reply_to, topic)
            return False

    def _reply(
        self, message: Message, answer: Answer | None, send: Callable[[Answer, dict[str, str], Any], Any]
    ) -> Steps:
        result = yield partial(self.handler, message)
        if not isinstance(result, Iterator | AsyncIterator):
            if answer is not None:
                yield partial(send, answer, answer.only(), result)
            return
        step = partial(next, result, END) if isinstance(result, Iterator) else partial(anext, result, END)
        while (reply := (yield step)) is not END:
            if answer is not None:
                yield partial(send, answer, answer.next(), reply)
        if answer is not None:
            yield partial(send, answer, answer.end(), None)


def _say_failed(answer: Answer, error: Exception, send: Callable[[Answer, dict[str, str], Any], Any]) -> Steps:
    """Tell the requester; where that cannot be told, nothing else can be done."""
    try:
        yield partial(send, answer, answer.failed(error), None)
    except NotSentError:
        raise
    except Exception:  # noqa: BLE001  # such as a topic that does not take it
        _log.exception("The requester at %s cannot be told", answer.topic)
