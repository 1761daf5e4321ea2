"""What the application acknowledged and nobody has looked at yet, and the numbers that spare most of the looking.

Asking the C++ client for a message's id costs more than anything else about an acknowledgement. So the messages that a
consumer's only thread receives are numbered. They come out of one queue, where the messages of a batch stand side by
side in their order: if the first and the last of some messages with consecutive numbers are as far apart in their batch
as their numbers are, then those between are the ones between, and need not be asked.

That holds while nothing comes out of order. A number is therefore left out wherever something was received in another
way; messages of several partitions or topics share a queue, and are asked; so is everything that was numbered before
the connection may have been a new one (`doubt()`), or before a message was negatively acknowledged (see `Consumer`).
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from ._official import InnerMessage, InnerMessageId
from .ack_ids import gather, gather_numbered
from .topics import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .acks import Entry
    from .message import Message
    from .message_id import MessageId

__all__ = ["Inbox", "Taken"]

_MOST = 1 << 40
_FIRST = count(1, _MOST)
"""Each consumer has numbers of its own: a message may be acknowledged by another consumer than it came from."""

Taken = tuple["Iterable[tuple[int, Entry, int, int, int]]", "Callable[[int], Any]", "Callable[[int], str | None]"]
"""What `ack_ids.gather()` found, what gives the C++ id at a place, and what gives its topic where there are several."""

_message_id, _serialize = InnerMessage.message_id, InnerMessageId.serialize


class Inbox:
    """The acknowledgements of one consumer that nobody has looked at; any thread may append.

    Args:
        topics: what was subscribed to.
    """

    def __init__(self, topics: Any) -> None:
        self.messages: list[Message] = []
        """Acknowledged one by one."""
        self.ids: list[MessageId] = []
        """The same, by ids that a consumer or a producer handed out."""
        self.positions: list[Message] = []
        """Acknowledged with everything before them."""
        self.position_ids: list[MessageId] = []
        """The same, by ids that were handed out."""
        first = next(_FIRST)
        self.numbers = count(first)
        self._doubtful, self._end = first, first + _MOST
        self._one = isinstance(topics, str)
        self._mixes = not self._one or not TopicName.parse(topics).is_partition

    def __len__(self) -> int:
        return len(self.messages) + len(self.ids) + len(self.positions) + len(self.position_ids)

    def clear(self) -> None:
        """Drop everything."""
        for kept in (self.messages, self.ids, self.positions, self.position_ids):
            kept.clear()

    def doubt(self) -> None:
        """Let nothing be concluded from the numbers so far."""
        self._doubtful = next(self.numbers)

    def take_messages(self) -> Taken:
        """Take the messages that were acknowledged one by one."""
        return self._read(_taken(self.messages))

    def take_positions(self) -> Taken:
        """Take the messages that were acknowledged with everything before them."""
        return self._read(_taken(self.positions))

    def take_ids(self) -> Taken:
        """Take the ids that were acknowledged one by one."""
        return _read_ids(_taken(self.ids))

    def take_position_ids(self) -> Taken:
        """Take the ids that were acknowledged with everything before them."""
        return _read_ids(_taken(self.position_ids))

    def _read(self, taken: list[Message]) -> Taken:
        def read(start: int, stop: int) -> list[bytes]:
            return list(map(_serialize, map(_message_id, [one.inner for one in taken[start:stop]])))

        def id_at(at: int) -> Any:
            return _message_id(taken[at].inner)

        if self._one:
            numbers = [one.number for one in taken]
            own = range(self._doubtful + 1, self._end)
            found = gather_numbered(numbers, read, own, mixed=self._mixes)
            return found, id_at, lambda _: None
        each = ((*one[:4], at) for at in range(len(taken)) for one in gather(read(at, at + 1)))
        return each, id_at, lambda at: taken[at].topic_name()


def _read_ids(taken: list[MessageId]) -> Taken:
    return gather([one.serialize() for one in taken]), lambda at: taken[at].inner, lambda _: None


def _taken(kept: list[Any]) -> list[Any]:
    """Take what is in a list; by number: what another thread appends meanwhile stays."""
    number = len(kept)
    taken = kept[:number]
    del kept[:number]
    return taken
