"""What the application acknowledged and nobody has looked at yet, and the numbers that spare most of the looking.

Asking the C++ client for a message's id costs more than anything else about an acknowledgement. So the messages that a
consumer's only thread receives are numbered. They come out of one queue, where the messages of a batch stand side by
side in their order: if the first and the last of some messages with consecutive numbers are as far apart in their batch
as their numbers are, then those between are the ones between, and need not be asked.

Whatever else is taken out in between only puts the ends further apart, and then nothing is concluded. What has to be
ruled out is that messages come again, or in no order. That is what the `ReceiveOrder` is for: a new epoch begins with a
seek, a redelivery and whenever the connection may be a new one, and only the numbers of the present epoch say anything;
a number is left out before what another thread fetched ahead; nothing is numbered after a negative acknowledgement or
where several threads receive. Messages of several partitions or topics are always asked.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_ext._native.core import runs, serialized_ids
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext.ids.topic_name import TopicName

from .id_bytes import gather, gather_numbered, singles
from .leaving import Singles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pulsar_ext._native.core import Run
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.message import Message
    from pulsar_ext.receive.order import ReceiveOrder

    from .leaving import Entry

__all__ = ["AckInbox", "Taken"]


class Taken(NamedTuple):
    """What was read in an inbox."""

    size: int
    """How many."""
    found: Iterable[tuple[int, Entry, int, int, int]]
    """As `id_bytes.gather()` gives it."""
    id_at: Callable[[int], Any]
    """Gives the C++ id at a place."""
    topic_at: Callable[[int], str | None] = lambda _: None
    """Gives the topic of a place where there are several."""
    singles: Singles | None = None
    """Instead, if all are single messages of one ledger."""
    messages: Sequence[Message] = ()
    """Those, not to be kept."""
    is_first_at: Callable[[int], bool] = lambda _: False
    """Tells whether what is at a place came as if it had never been delivered; False where nobody knows."""


_message_id = InnerMessage.message_id


class AckInbox:
    """The acknowledgements of one consumer that nobody has looked at; any thread may append.

    Args:
        topics: what was subscribed to.
        order: of the consumer's messages.
    """

    __slots__ = ("_mixes", "_one", "_order", "ids", "messages", "position_ids", "positions")

    def __init__(self, topics: Any, order: ReceiveOrder) -> None:
        self.messages: list[Message] = []
        """Acknowledged one by one."""
        self.ids: list[MessageId] = []
        """The same, by ids that a consumer or a producer handed out."""
        self.positions: list[Message] = []
        """Acknowledged with everything before them."""
        self.position_ids: list[MessageId] = []
        """The same, by ids that were handed out."""
        self._order = order
        self._one = isinstance(topics, str)
        self._mixes = not self._one or not TopicName.parse(topics).is_partition

    def __len__(self) -> int:
        return len(self.messages) + len(self.ids) + len(self.positions) + len(self.position_ids)

    @property
    def has_more_than_messages(self) -> bool:
        """Whether ids or positions are in it."""
        return bool(self.ids or self.positions or self.position_ids)

    def clear(self) -> None:
        """Drop everything."""
        for kept in (self.messages, self.ids, self.positions, self.position_ids):
            kept.clear()

    def take_messages(self) -> Taken:
        """Look at the messages that were acknowledged one by one."""
        return self._read(list(self.messages), at_once=True)

    def take_positions(self) -> Taken:
        """Look at the messages that were acknowledged with everything before them."""
        return self._read(list(self.positions), at_once=False)

    def take_ids(self) -> Taken:
        """Look at the ids that were acknowledged one by one."""
        return _read_ids(list(self.ids))

    def take_position_ids(self) -> Taken:
        """Look at the ids that were acknowledged with everything before them."""
        return _read_ids(list(self.position_ids))

    # What was taken stays here until it was dealt with: a Ctrl-C in between has it dealt with twice, never not at all.

    def drop_messages(self, taken: Taken) -> None:
        """Forget messages that were dealt with; what another thread has appended since stays."""
        del self.messages[: taken.size]

    def drop_positions(self, taken: Taken) -> None:
        """Forget positions that were dealt with."""
        del self.positions[: taken.size]

    def drop_ids(self, taken: Taken) -> None:
        """Forget ids that were dealt with."""
        del self.ids[: taken.size]

    def drop_position_ids(self, taken: Taken) -> None:
        """Forget position ids that were dealt with."""
        del self.position_ids[: taken.size]

    def _read(self, taken: list[Message], *, at_once: bool) -> Taken:
        def read(start: int, stop: int) -> list[bytes]:
            return serialized_ids(taken[start:stop])

        def id_at(at: int) -> Any:
            return _message_id(taken[at].inner)

        def topic_at(at: int) -> str | None:
            return None if self._one else taken[at].topic_name()

        def is_first_at(at: int) -> bool:
            return not taken[at].redelivery_count()

        read_as = partial(Taken, len(taken), id_at=id_at, is_first_at=is_first_at)
        if (found := runs(taken)) is not None:
            all_singles = _singles_of(found) if found and at_once and self._one else None
            entries = map(entry_of, () if all_singles else found)
            return read_as(entries, topic_at=topic_at, singles=all_singles, messages=taken if all_singles else ())
        if not self._one:
            each = ((*one[:4], at) for at in range(len(taken)) for one in gather(read(at, at + 1)))
            return read_as(each, topic_at=topic_at)
        # Where the first is a single message, probably all are, and numbers spare nothing.
        if at_once and (len(taken) == 1 or singles(read(0, 1)) is not None):
            data = read(0, len(taken))
            if (all_singles := singles(data)) is not None:
                return read_as((), singles=all_singles, messages=taken)
            return read_as(gather(data))
        own = self._order.trusted()
        if not own:
            return read_as(gather(read(0, len(taken))))
        numbers = [one.number for one in taken]
        return read_as(gather_numbered(numbers, read, own, mixed=self._mixes))


def _read_ids(taken: list[MessageId]) -> Taken:
    found = gather([one.serialize() for one in taken])
    return Taken(len(taken), found, lambda at: taken[at].inner, lambda at: taken[at].topic_name())


def entry_of(run: Run) -> tuple[int, Entry, int, int, int]:
    """Return a run as `id_bytes.gather()` does."""
    partition, ledger, entry, size, first, last, at = run
    bits = ((1 << (last - first + 1)) - 1) << first if first >= 0 else 0
    return partition, (ledger, entry), size, bits, at


def _singles_of(found: list[Run]) -> Singles | None:
    """Return runs that are a message each, all of one ledger; None if they are not."""
    partition, ledger, first, size = found[0][:4]
    if size or any((*run[:2], run[3]) != (partition, ledger, 0) for run in found):
        return None
    entries, row = [run[2] for run in found], range(first, first + len(found))
    return Singles(partition, ledger, row if entries == list(row) else entries)
