"""Messages between a receive and the application, while interceptors look at them; a Ctrl-C there loses none."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from pulsar_ext.receive.order import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.message import Message
    from pulsar_ext.receive.order import Transition

    from .chain import ReceiverChain

__all__ = ["HandingOut"]


class HandingOut(Part):
    """Has interceptors look at each message before it is handed out.

    What a thread had received when a Ctrl-C ended its call, its next call begins with, as with `Interrupted`.

    Args:
        chain: the interceptors.
    """

    def __init__(self, chain: ReceiverChain[Any]) -> None:
        self._chain = chain
        self._left: dict[int, tuple[list[Message], list[Message]]] = {}
        """By thread: what nobody has looked at, and what was looked at."""

    @property
    def holds(self) -> bool:
        """Whether this thread's next call has a message at once."""
        return any(self._left.get(get_ident(), ()))

    def one(self, receiver: Any, take: Callable[[], Message]) -> Message:
        """Give the next message.

        Args:
            receiver: the consumer or reader.
            take: receives one.
        """
        thread, kept_by = get_ident(), self._left
        unseen, seen = kept_by.setdefault(thread, ([], []))
        if not (unseen or seen):
            unseen.append(take())
        self._look(receiver, unseen, seen)
        message = seen[0]
        del seen[0]
        if not seen:
            try:  # noqa: SIM105  # no call from here on: a Ctrl-C would lose what nobody keeps any more
                del kept_by[thread]
            except KeyError:  # the handler of a signal has taken more meanwhile
                pass
        return message

    def many(self, receiver: Any, take: Callable[[], list[Message]]) -> list[Message]:
        """Give the next messages.

        Args:
            receiver: the consumer or reader.
            take: receives several.
        """
        thread, kept_by = get_ident(), self._left
        unseen, seen = kept_by.setdefault(thread, ([], []))
        if not (unseen or seen):
            unseen += take()
        self._look(receiver, unseen, seen)
        try:  # noqa: SIM105  # no call from here on, as above
            del kept_by[thread]
        except KeyError:
            pass
        return seen

    def _look(self, receiver: Any, unseen: list[Message], seen: list[Message]) -> None:
        while unseen:
            message = self._chain.before(receiver, unseen[0])
            del unseen[0]  # no call between these lines: a Ctrl-C finds the message in one place
            seen += (message,)

    def after(self, _: Transition, /) -> None:
        """Drop what is left: it comes again, or is not what was sought."""
        self._left = {}

    def drop_some(self, is_of_them: Callable[[Any], bool], /) -> None:
        """Drop what is left of some of several topics."""
        for kept in list(self._left.values()):  # other threads begin and end calls meanwhile
            for messages in kept:
                messages[:] = [message for message in messages if not is_of_them(message.inner)]
