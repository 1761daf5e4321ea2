"""Model of a topic for the tests of skips: entries of every kind, and every possible position of a cursor."""

import dataclasses
from types import SimpleNamespace

from hypothesis import strategies as st

from pulsar_ext.admin import EntryMetadata
from pulsar_ext.chunks.search import resolve_chunks
from pulsar_ext.errors import AdminNotFound
from pulsar_ext.ids.position import Ledgers, Position, PositionRange, PositionRanges
from pulsar_ext.skip.boundaries import Backlog, entry_after, item_of
from pulsar_ext.skip.plan import Situation

OLD, NOW = 1_000_000, 2_000_000
_SMALL = st.integers(1, 4)


@dataclasses.dataclass(frozen=True)
class Entry:
    """Entry of the model: of a producer, with a number of messages, or the chunk `chunk` of `chunks`."""

    producer: int
    messages: int = 1
    chunk: int = 0
    chunks: int = 0
    message: int = 0
    published: int = OLD


def _interleave(draw, queues):
    """Merge the producers' entries in any order that keeps each producer's own order."""
    queues = [list(queue) for queue in queues if queue]
    merged = []
    while queues:
        queue = draw(st.sampled_from(queues))
        merged.append(queue.pop(0))
        queues = [one for one in queues if one]
    return merged


@st.composite
def topics(draw, *, chunks=True, least=1, producers=3, sizes=_SMALL):
    """Draw a topic: batches and chunked messages of some producers, interleaved, over several ledgers.

    `sizes` are the sizes of batches. Of an incomplete message, at least `least` chunks exist.
    """
    queues, number = [], 0
    for producer in range(draw(st.integers(1, producers))):
        queue = []
        for _ in range(draw(st.integers(0, 7))):
            number += 1
            kind = draw(st.sampled_from(["plain", "batch", "chunked", "broken"] if chunks else ["plain", "batch"]))
            if kind == "plain":
                queue.append(Entry(producer, message=number))
            elif kind == "batch":
                queue.append(Entry(producer, draw(sizes), message=number))
            else:
                of = draw(st.integers(least + 1, 4))
                kept = of if kind == "chunked" else draw(st.integers(least, of - 1))
                queue += [Entry(producer, 1, chunk, of, number) for chunk in range(kept)]
        queues.append(queue)
    entries = _interleave(draw, queues)
    ledgers, remaining = [], len(entries)
    while remaining:
        # An empty ledger precedes some; if these were drawn separately, they would exhaust hypothesis' entropy.
        ledgers += [0] * draw(st.booleans()) + [draw(st.integers(1, min(remaining, 6)))]
        remaining -= ledgers[-1]
    return entries, dict(enumerate(ledgers, start=3))


class Topic:
    """The model as the broker shows it, with the methods of `Queries` and of the admin API that searches call."""

    def __init__(self, entries, sizes, acked=(), *, index=False):
        self.at = [Position(ledger, entry) for ledger in sorted(sizes) for entry in range(sizes[ledger])]
        self.stored = dict(zip(self.at, entries, strict=True))
        self.acked = {self.at[number] for number in acked}
        self.asked = 0
        self.index, self.headers = index, {}
        numbers, total = {}, 0
        for position, entry in self.stored.items():
            total += entry.messages
            first = numbers.get(entry.producer, 0)
            if not entry.chunks or entry.chunk == 0:
                numbers[entry.producer] = first + entry.messages
            sequence = first if not entry.chunks or entry.chunk == 0 else first - 1
            self.headers[position] = EntryMetadata(
                position=position,
                producer_name=f"p{entry.producer}",
                sequence_id=sequence,
                publish_time=entry.published,
                num_messages_in_batch=entry.messages if entry.messages > 1 else None,
                uuid=f"u{entry.message}" if entry.chunks else None,
                chunk_id=entry.chunk if entry.chunks else None,
                num_chunks=entry.chunks or None,
                index=total - 1 if index else None,
            )
        ranges, before = [], Position(min(sizes, default=0), -1)
        mark = before
        for position in self.at:
            if position in self.acked:
                if before == mark and not ranges:
                    mark = before = position
                    continue
                ranges.append(PositionRange(before, position))
            before = position
        self.backlog = Backlog(Ledgers(sizes.items()), mark, PositionRanges.of(ranges))

    def situation(self, **over):
        values = {
            "backlog": self.backlog,
            "unbatched": False,
            "may_hide_acks": False,
            "idle": True,
            "batch_index_acks": False,
            "chunked": False,
            "entry_bytes": 100.0,
            "now_ms": NOW,
        }
        return Situation(**(values | over))

    def entry(self, position):
        self.asked += 1
        return self.headers.get(position)

    def entries(self, positions):
        self.asked += 1
        return [self.headers.get(at) for at in positions]

    def entry_of_index(self, index):
        self.asked += 1
        found = next((at for at in self.at if self.headers[at].index >= index), None)
        # The broker's answer inside the first batch.
        return Position(-1, -1) if found == self.at[0] and self.headers[found].index > index else found

    def messages_between(self, _, first, end):
        self.asked += 1
        return sum(self.stored[at].messages for at in self.at if first <= at < end and at not in self.acked)

    def all_unbatched(self, _, first, last):
        self.asked += 1
        return all(entry.messages == 1 for at, entry in self.stored.items() if first <= at <= last)

    def keeps_batch_indexes(self):
        self.asked += 1
        return True

    def scan(self, backlog, _, first):
        at = first
        while at in self.headers:
            self.asked += 1
            item = item_of(self.headers[at])
            yield item
            at = entry_after(item, backlog.ledgers)

    def chunks(self, position):
        return resolve_chunks(_Admin(self), "t", position)

    def whole(self):
        """Return the deliverable messages, each with its entries, in the order of their last entries."""
        found, open_chunks = [], {}
        for position, entry in self.stored.items():
            if not entry.chunks:
                if position not in self.acked:
                    found += [(position, index, [position]) for index in range(entry.messages)]
            else:
                open_chunks.setdefault(entry.message, []).append(position)
                chunks = open_chunks[entry.message]
                if len(chunks) == entry.chunks and not self.acked.intersection(chunks):
                    found.append((position, -1, list(chunks)))
        return found

    def boundaries(self):
        """Yield each clean boundary as `(last entry before it, messages before it, entries before it)`."""
        start = self.backlog.mark_delete
        ends = [(chunks[0], chunks[-1]) for _, _, chunks in self.whole()]
        for boundary in [start, *(at for at in self.at if at not in self.acked)]:
            if all((first <= boundary) == (last <= boundary) for first, last in set(ends)):
                before = sum(last <= boundary for _, last in ends)
                yield boundary, before, sum(at <= boundary and at not in self.acked for at in self.at)


class _Admin:
    """Admin API of a topic."""

    def __init__(self, topic):
        self._topic = topic

    def entry(self, _, ledger, entry):
        if (found := self._topic.entry(Position(ledger, entry))) is None:
            raise AdminNotFound("no such entry")
        return found

    def internal_stats(self, _):
        return SimpleNamespace(ledger_sizes=lambda: list(self._topic.backlog.ledgers))


def expected_boundary(topic, count, unit):
    """Return the first clean boundary of that count, or the two nearest counts, or the end."""
    boundaries = list(topic.boundaries())
    counts = [boundary[1] if unit == "message" else boundary[2] for boundary in boundaries]
    if count in counts:
        return boundaries[counts.index(count)]
    above = [each for each in counts if each > count]
    return (max(each for each in counts if each < count), min(above)) if above else boundaries[-1]


def straight(count, each=1):
    size = 10
    sizes = dict.fromkeys(range(count // each // size), size)
    return [Entry(0, each) for _ in range(count // each)], sizes
