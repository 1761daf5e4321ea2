"""Which replies belong to which request, and when a request has all of them (pure)."""

from __future__ import annotations

import uuid
import weakref
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.errors import InvalidUse, NoReply, RequestFailed

from .envelope import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.message import Message

__all__ = ["Correlations", "Exchange", "check_request"]


class Exchange:
    """One request, and the replies to it.

    A replier that died amid its replies has its request come to another one, which begins anew: a reply of the same
    replier with the same index is the same reply.

    Args:
        deliver: is given what comes for this request, a message or an error, on any thread.
        topic: of the request.
        repliers: how many repliers have to end their replies; None if nobody knows.
        timeout_ms: how long all of it may take, in milliseconds.
    """

    def __init__(
        self, deliver: Callable[[Message | BaseException], object], topic: str, repliers: int | None, timeout_ms: int
    ) -> None:
        self.correlation_id = uuid.uuid4().hex
        self.deliver = deliver
        self.timeout_ms = timeout_ms
        self._topic, self._repliers = topic, repliers
        self._seen: dict[str, set[int]] = {}
        self._counts: dict[str, int] = {}
        self.is_done = False
        """Whether nothing more is waited for."""

    def take(self, came: Message | BaseException) -> Message | None:
        """Take what was delivered; give the message if it is a reply to hand out.

        Raises:
            RequestFailed: a replier says that it failed; others may have more to say.
            BaseException: the error that was delivered.
        """
        if isinstance(came, BaseException):
            self.is_done = True
            raise came
        reply = Reply.of(came.properties())
        if reply is None:
            return None
        seen = self._seen.setdefault(reply.replier, set())
        is_new = reply.index is not None and reply.index not in seen
        if reply.index is not None:
            seen.add(reply.index)
        if reply.error is not None:
            self._counts[reply.replier] = 0
        elif reply.count is not None:
            self._counts[reply.replier] = reply.count
        if self._repliers is not None:
            ended = sum(len(self._seen[one]) >= count for one, count in self._counts.items())
            self.is_done = ended >= self._repliers
        if reply.error is not None:
            raise RequestFailed(reply.error)
        return came if is_new else None

    def expire(self) -> None:
        """End it: the time is over.

        Raises:
            NoReply: more was waited for.
        """
        self.is_done = True
        if self._repliers is not None:
            raise self.unanswered()

    def unanswered(self) -> NoReply:
        """Make the error of a request that was not answered, or not to the end."""
        replies = sum(map(len, self._seen.values()))
        came = f"{replies} replies came" if replies else "No reply came"
        return NoReply(
            f"{came} to the request on {self._topic} within {self.timeout_ms} ms, and more were waited for. It may "
            "still be answered, or be under way: whether to ask again is for the application to know.",
            topic=self._topic,
            correlation_id=self.correlation_id,
            replies=replies,
        )


class Correlations:
    """The requests of one requester that wait for replies, weakly: whoever waits keeps its own."""

    def __init__(self) -> None:
        self._waiting: weakref.WeakValueDictionary[str, Exchange] = weakref.WeakValueDictionary()
        self._is_closed = False

    def begin(self, exchange: Exchange) -> None:
        """Have replies delivered to a request.

        Raises:
            pulsar.AlreadyClosed: no more replies come.
        """
        self._waiting[exchange.correlation_id] = exchange
        if self._is_closed:
            raise _closed()

    def hand_over(self, message: Any) -> None:
        """Deliver a message to its request; one that nobody waits for is dropped."""
        reply = Reply.of(message.properties())
        waiting = None if reply is None else self._waiting.get(reply.correlation_id)
        if waiting is not None:
            waiting.deliver(message)

    def close(self) -> None:
        """Have every request that waits, and every later one, end with `AlreadyClosed`."""
        self._is_closed = True
        for known in self._waiting.valuerefs():
            if (waiting := known()) is not None:
                waiting.deliver(_closed())


def check_request(repliers: Any, timeout_ms: Any) -> None:
    """Refuse what a request cannot have.

    Raises:
        InvalidUse: there are no so many repliers, or there is no such time.
    """
    if repliers is not None and (type(repliers) is not int or repliers < 1):
        raise InvalidUse(f"repliers is expected to be an int, 1 or more, or None, not {repliers!r}.")
    if type(timeout_ms) is not int or timeout_ms < 1:
        raise InvalidUse(f"timeout_ms is expected to be a whole number of milliseconds, 1 or more, not {timeout_ms!r}.")


def _closed() -> Exception:
    error: Exception = pulsar.AlreadyClosed("Pulsar error: AlreadyClosed: the requester, or its client, is closed.")
    return error
