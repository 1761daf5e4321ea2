"""Pass acknowledgements to the native consumer, in the only forms that it sends correctly.

The C++ client groups acknowledgements itself, for 100 ms or up to 1000 ids, which Python cannot configure. It
acknowledges whole batches for ids that it did not create, drops due acknowledgements without a connection, and never
repeats a cumulative acknowledgement. The ids built here are sent unchanged:

- a whole entry is an id without a batch index;
- messages of a batch are ids of a batch object built here, whose bit set the C++ client sends;
- a position is the id of a batch built for its entry: such ids can be repeated, each with a higher index.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter

from pulsar_ext._native.messages import InnerConsumer, InnerMessageId, deserialize_inner, synthetic_batch_ids
from pulsar_ext._wire.message_id_data import MessageIdData, encode

from .groups import AckGroup, Entry

__all__ = ["NativeSender"]

_GROUP_SIZE = 1000
"""Number of pending ids at which the C++ client sends them."""
_SLICE = 100
"""Number of ids passed between two polls of the connection: 0.3 to 30 ms, too short for an unnoticed reconnection."""
_MAX_BATCHES = 100
"""Maximum number of batches kept, so that further acknowledgements are added to their bit sets."""
_MAX_INDEX = (1 << 31) - 1


class NativeSender:
    """Pass the acknowledgements of one topic or partition to a native consumer.

    One of several topics needs its full `topic` with each id.
    """

    def __init__(self, topic: str | None, partition: int) -> None:
        self._topic, self.partition = topic, partition
        self._last: Entry | None = None
        self._repeated = 0
        self._batches: dict[Entry, list[InnerMessageId]] = {}
        self._fillers: list[InnerMessageId] = []

    @property
    def is_named(self) -> bool:
        """True for one of several topics of the consumer."""
        return self._topic is not None

    def send(
        self,
        inner: InnerConsumer,
        group: AckGroup,
        live: dict[Entry, InnerMessageId],
        check_connection: Callable[[], None],
    ) -> None:
        """Pass a group to the native consumer, which sends it within 100 ms, or with the thousandth id."""
        for first in range(0, len(group.whole), _SLICE):
            if first:
                check_connection()
            some = group.whole[first : first + _SLICE]
            deque(map(inner.acknowledge, self._ids_of(some, live)), 0)
            for entry in some if self._batches else ():
                self._batches.pop(entry, None)
        for entry, size, bits in group.indexes:
            made_up = self._batch(entry, size)
            for index in range(size):
                if bits >> index & 1:
                    inner.acknowledge(made_up[index])
        if group.cumulative is not None:
            inner.acknowledge_cumulative(self._position(group.cumulative))
            self._batches = {entry: ids for entry, ids in self._batches.items() if entry > group.cumulative}

    def flush(self, inner: InnerConsumer) -> None:
        """Make the C++ client send its group, by filling it with ids of a ledger that cannot exist.

        The broker must ignore these ids; see `pulsar_ext._runtime.context`.
        """
        if not self._fillers:
            self._fillers = list(self._ids_of([(-1, number) for number in range(_GROUP_SIZE)], {}))
        deque(map(inner.acknowledge, self._fillers), 0)

    def forget(self) -> None:
        """Drop the bit sets of batches: the cursor was moved."""
        self._batches.clear()
        self._last = None

    def _ids_of(self, entries: Sequence[Entry], live: dict[Entry, InnerMessageId]) -> Iterator[InnerMessageId]:
        """Return the ids of whole entries; `map` saves a Python call for each."""
        ledger_ids, entry_ids = map(itemgetter(0), entries), map(itemgetter(1), entries)
        made: Iterator[InnerMessageId] = map(InnerMessageId, repeat(self.partition), ledger_ids, entry_ids, repeat(-1))
        if self._topic is not None:
            made = map(self._on_topic, made)
        return (live.get(entry) or one for entry, one in zip(entries, made, strict=True)) if live else made

    def _on_topic(self, inner_id: InnerMessageId) -> InnerMessageId:
        if self._topic is not None:
            inner_id.topic_name(self._topic)
        return inner_id

    def _batch(self, entry: Entry, size: int) -> list[InnerMessageId]:
        if entry not in self._batches:
            if len(self._batches) >= _MAX_BATCHES:
                del self._batches[next(iter(self._batches))]
            base = InnerMessageId(self.partition, *entry, -1)
            self._batches[entry] = [self._on_topic(one) for one in synthetic_batch_ids(base, size)]
        return self._batches[entry]

    def _position(self, entry: Entry) -> InnerMessageId:
        # The C++ client ignores a position that is not above the last one, and then drops what the broker redelivers.
        self._repeated = self._repeated + 1 if entry == self._last else 0
        self._last = entry
        data = MessageIdData(*entry, self.partition, batch_index=self._repeated, batch_size=_MAX_INDEX)
        return self._on_topic(deserialize_inner(encode(data)))
