"""Telling the C++ consumer what to acknowledge, in the only forms that it sends rightly.

The C++ client has a grouping of its own, of 100 ms or 1000 ids, which cannot be set from Python. It acknowledges whole
batches for ids that it did not make itself, drops what is due while there is no connection, and never repeats a
cumulative acknowledgement. What goes through here is therefore made of ids that it takes as they are:

- a whole entry is an id without a batch index;
- messages of a batch are ids of a batch that is made up here, whose bit set the C++ client then sends;
- a position is the id of a made-up batch of that entry: such ids can be repeated, each with a higher index.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pulsar_ext._native.messages import InnerMessageId, deserialize_inner, made_up_batch
from pulsar_ext._wire.message_id_data import MessageIdData, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .leaving import Entry, Leaving

__all__ = ["NativeSender"]

_GROUP = 1000
"""So many pending ids make the C++ client send them at once."""
_AT_ONCE = 100
"""So many take 0.3 to 30 ms, by how many threads want the interpreter's lock: no connection is lost and made anew in
between."""
_MOST_BATCHES = 100
"""So many are kept made up, to be added to: what left of a batch is sent again with what comes."""
_MAX_INDEX = (1 << 31) - 1


class NativeSender:
    """Sends the acknowledgements of one topic, or one partition, through a C++ consumer.

    Args:
        topic: the full name, which consumers of several topics need with each id; None where there is only one.
        partition: its index, -1 if none.
    """

    def __init__(self, topic: str | None, partition: int) -> None:
        self._topic, self.partition = topic, partition
        self._last: Entry | None = None
        self._repeated = 0
        self._batches: dict[Entry, list[Any]] = {}
        self._fillers: list[Any] = []

    @property
    def is_named(self) -> bool:
        """Whether the topic is one of several of the consumer."""
        return self._topic is not None

    def send(self, inner: Any, leaving: Leaving, live: dict[Entry, Any], glance: Callable[[], None]) -> None:
        """Hand over what leaves; the C++ client sends it within 100 ms, or with the thousandth id.

        Args:
            inner: the C++ consumer.
            leaving: what leaves.
            live: the C++ ids of chunked messages, which alone know every chunk, by their last entry.
            glance: looks at the connection; called again and again where many leave, which may take seconds.
        """
        for first in range(0, len(leaving.whole), _AT_ONCE):
            if first:
                glance()
            some = leaving.whole[first : first + _AT_ONCE]
            deque(map(inner.acknowledge, self._ids_of(some, live)), 0)
            for entry in some if self._batches else ():
                self._batches.pop(entry, None)
        for entry, size, bits in leaving.indexes:
            made_up = self._batch(entry, size)
            for index in range(size):
                if bits >> index & 1:
                    inner.acknowledge(made_up[index])
        if leaving.cumulative is not None:
            inner.acknowledge_cumulative(self._position(leaving.cumulative))
            self._batches = {entry: ids for entry, ids in self._batches.items() if entry > leaving.cumulative}

    def flush(self, inner: Any) -> None:
        """Have the C++ client send what it holds now: fill its group with ids of a ledger that cannot be.

        The broker has to pass over these; see `pulsar_ext._runtime.context`.
        """
        if not self._fillers:
            self._fillers = list(self._ids_of([(-1, number) for number in range(_GROUP)], {}))
        deque(map(inner.acknowledge, self._fillers), 0)

    def forget(self) -> None:
        """Forget the bit sets of batches: the cursor was moved."""
        self._batches.clear()
        self._last = None

    def _ids_of(self, entries: Sequence[Entry], live: dict[Entry, Any]) -> Iterator[Any]:
        """Give the ids of whole entries, one call of Python less for each than one by one."""
        ledger_ids, entry_ids = map(itemgetter(0), entries), map(itemgetter(1), entries)
        made: Iterator[Any] = map(InnerMessageId, repeat(self.partition), ledger_ids, entry_ids, repeat(-1))
        if self._topic is not None:
            made = map(self._on_topic, made)
        return (live.get(entry) or one for entry, one in zip(entries, made, strict=True)) if live else made

    def _on_topic(self, inner_id: Any) -> Any:
        if self._topic is not None:
            inner_id.topic_name(self._topic)
        return inner_id

    def _batch(self, entry: Entry, size: int) -> list[Any]:
        if entry not in self._batches:
            if len(self._batches) >= _MOST_BATCHES:
                del self._batches[next(iter(self._batches))]
            base = InnerMessageId(self.partition, *entry, -1)
            self._batches[entry] = [self._on_topic(one) for one in made_up_batch(base, size)]
        return self._batches[entry]

    def _position(self, entry: Entry) -> Any:
        # The C++ client ignores a position that is not above the last one, and then drops what the broker redelivers.
        self._repeated = self._repeated + 1 if entry == self._last else 0
        self._last = entry
        data = MessageIdData(*entry, self.partition, batch_index=self._repeated, batch_size=_MAX_INDEX)
        return self._on_topic(deserialize_inner(encode(data)))
