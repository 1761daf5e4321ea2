"""What the application acknowledged, for each topic or partition: what waits, what was sent, what is to be confirmed.

`acknowledge()` puts the message into the inbox and returns. The inbox is read some hundred messages at a time. The
native core reads their ids in C++. Without it, asking the C++ client for a message's id costs more than anything else
about an acknowledgement, and the messages that a consumer's only thread receives are numbered to spare most of it. They
come out of one queue, where the messages of a batch stand side by side in their order: if the first and the last of
some messages with consecutive numbers are as far apart in their batch as their numbers are, then those between are the
ones between, and need not be asked.

Whatever else is taken out in between only puts the ends further apart, and then nothing is concluded. What has to be
ruled out is that messages come again, or in no order. That is what the `ReceiveOrder` is for: a new epoch begins with a
seek, a redelivery and whenever the connection may be a new one, and only the numbers of the present epoch say anything;
a number is left out before what another thread fetched ahead; nothing is numbered after a negative acknowledgement or
where several threads receive. Messages of several partitions or topics are always asked.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pulsar

from pulsar_ext._native.core import acknowledge, runs, serialized_ids
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.chunks.resolver import as_message_id, entry_topic
from pulsar_ext.ids.message_id import Origin
from pulsar_ext.ids.topic_name import TopicName

from .delivery import SentAcks
from .ids import acknowledged_by, acknowledged_up_to, gather, gather_numbered, says_all, singles
from .leaving import Leaving, Singles, whole_without
from .native_sender import NativeSender
from .tracker import AckTracker, Remembered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pulsar_ext._native.core import Run
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.message import Message
    from pulsar_ext.receive.order import ReceiveOrder

    from .leaving import Entry
    from .tracker import Unacked


_log = logging.getLogger("pulsar_ext.acks")

_MAX_UNCONFIRMED = 20_000
"""How many entries a confirmed flush surely checks: what left before these has long arrived."""
_CUT_SECONDS = 1.0
"""A connection that is lost this soon behind what was sent again may have been lost by that."""
_DOUBT_SECONDS = 2.0
"""How long it is not sent again then, unless it was looked whether it has arrived."""


class TopicAcks:
    """One topic, or one partition, that a consumer acknowledges on.

    Args:
        topic: its full name.
        partition: its index, -1 if none.
        named: whether the C++ consumer needs the topic with each id.
        tracker: what has not left.
        unacked: what was received and has not left, of all topics; None if nobody waits for it.
    """

    def __init__(
        self, topic: str, partition: int, *, named: bool, tracker: AckTracker, unacked: Unacked[Any] | None = None
    ) -> None:
        self.topic, self.tracker, self._unacked = topic, tracker, unacked
        self.has_cursor = TopicName.parse(topic).is_persistent
        """Whether the broker keeps what was acknowledged, so that it can be asked; not on a non-persistent topic."""
        self.sender = NativeSender(topic if named else None, partition)
        self.sent = SentAcks()
        self.remembered: Remembered | None = None
        """What may be delivered again though it was acknowledged; None while the connection is surely the same."""
        self.again: tuple[float, float] | None = None
        """What left since and before when has to be sent again; None if nothing has."""
        self.live: dict[Entry, Any] = {}
        self.firsts: dict[Entry, Entry] = {}
        self._unconfirmed: dict[Entry, tuple[int, int] | None] = {}
        self._passed: deque[Singles] = deque()
        self._passed_count = 0
        self.reached: Entry | None = None
        """The highest position that left."""
        self.expected: Entry | None = None
        """The highest position that the cursor has to show when it is looked at behind a reconnection."""
        self.sessions: frozenset[tuple[str, str]] | None = None
        """The subscription's consumers as the broker listed them, by address and beginning; None if not looked at."""
        self.is_held = False
        """Whether nothing leaves until the cursor was looked at, which an operator may have moved back."""
        self.held_since = 0.0
        self.doubted_until = 0.0
        """Until when nothing is sent again: a broker drops a connection for what it got, where a topic has ended."""
        self.sent_again = 0.0
        self.sessions_due = 0.0
        """From when on to look who the broker lists."""
        self.looked = 0.0
        self.behind = 0

    def note_passed(self, singles: Singles, now: float) -> None:
        """Keep what was given to the C++ consumer, message by message, for a while."""
        self.sent.add(singles, now, {})
        if self.remembered is not None:
            self.remembered.add(singles)
        if self._unacked is not None:
            self._unacked.acknowledge(self.topic, Leaving(whole=tuple(singles.entries)))
        if not self.has_cursor:
            return
        self._passed.append(singles)
        self._passed_count += len(singles)
        while self._passed_count - len(self._passed[0]) > _MAX_UNCONFIRMED:
            self._passed_count -= len(self._passed.popleft())

    def unconfirmed(self) -> dict[Entry, tuple[int, int] | None]:
        """Give what left and was not confirmed yet: of a batch the number of its messages, and the bit set of some."""
        for some in self._passed:
            self._unconfirmed.update(dict.fromkeys(some.entries))
        self._forget_passed()
        if (count := len(self._unconfirmed)) > 2 * _MAX_UNCONFIRMED:
            # All at once: taking the first out of a dictionary, one by one, gets slower with each.
            self._unconfirmed = dict(islice(self._unconfirmed.items(), count - _MAX_UNCONFIRMED, None))
        return self._unconfirmed

    def confirmed(self, entry: Entry, part: tuple[int, int] | None) -> None:
        """Note that the broker shows what left; more of the same batch may have left since."""
        if self._unconfirmed.get(entry, ()) == part:
            self._unconfirmed.pop(entry, None)

    def leave(self, inner: Any, now: float, glance: Callable[[], None], *, force: bool) -> bool:
        """Give the C++ consumer what leaves, with `force` flushed out of it; tell whether anything did.

        It is kept for a while. `glance` looks at the connection; it is called again and again where many leave.
        """
        if self.is_held:
            return False
        leaving = self.tracker.leave()
        if leaving:
            with logging_refusals(self, len(leaving)):
                self._hand_over(inner, leaving, now, glance)
            self.tracker.left()
        if force and (leaving or self.sent):
            self.sender.flush(inner)
        return bool(leaving)

    def _hand_over(self, inner: Any, leaving: Leaving, now: float, glance: Callable[[], None]) -> None:
        live = self.live
        self.sent.add(leaving, now, live)
        if self.remembered is not None:
            self.remembered.add(leaving)
        self.sender.send(inner, leaving, live, glance)
        self.live = {}  # all that waits has left
        if self._unacked is not None:
            self._unacked.acknowledge(self.topic, leaving)
        if not self.has_cursor:
            self.firsts.clear()
            return
        unconfirmed = self.unconfirmed()
        if leaving.cumulative is not None:
            self.reached = max(leaving.cumulative, self.reached or leaving.cumulative)
            upto = leaving.cumulative
            for entry in [entry for entry in unconfirmed if entry <= upto]:
                del unconfirmed[entry]
            unconfirmed[upto] = None
            self.firsts = {entry: first for entry, first in self.firsts.items() if entry > upto}
        # No more than are kept: a million would take longer than the connection may go without a look.
        unconfirmed.update(dict.fromkeys(leaving.whole[-_MAX_UNCONFIRMED:]))
        for entry in leaving.whole if self.firsts else ():
            if (first := self.firsts.pop(entry, None)) is not None:
                unconfirmed[first] = None
        for entry, size, bits in leaving.indexes:
            unconfirmed[entry] = (size, bits)

    def wants_sessions(self, now: float) -> bool:
        """Whether it has to be looked at who the broker lists: something waits for that, or it is not known yet."""
        wants = self.is_held or self.is_doubted(now) or (self.reached is not None and self.sessions is None)
        return wants and now >= self.sessions_due

    def hold(self, now: float) -> None:
        """Let nothing leave until the cursor was looked at, where a position left and that can be told from a reset."""
        self.is_held = self.reached is not None and self.sessions is not None
        if self.is_held:
            self.held_since = self.sessions_due = now

    def doubt(self, now: float) -> None:
        """Send nothing again for a while behind a reconnection, if the connection may have been lost by just that."""
        if self.sent and now - self.sent_again < _CUT_SECONDS:
            self.doubted_until, self.sessions_due = now + _DOUBT_SECONDS, now

    def is_doubted(self, now: float) -> bool:
        """Whether nothing is sent again until it was looked whether it has arrived."""
        return now < self.doubted_until

    def looked_at(self, began: float, *, arrived: bool) -> None:
        """Note a look that began at a time, and whether the broker has everything that left until then."""
        self.doubted_until = 0.0
        if arrived:
            self.sent.expire(began)

    def hand_over_again(self, inner: Any, now: float, glance: Callable[[], None]) -> None:
        """Give it once more what may have been lost with a connection, once nothing keeps it from that."""
        if self.again is None or self.is_held or self.is_doubted(now):
            return
        live = self.sent.ids
        again, self.again = self.sent.take(*self.again), None
        if again:
            self.sent_again = now
            self.sent.add(again, now, live, is_repeated=True)
            self.sender.send(inner, again, live, glance)

    def hand_over_missing(self, inner: Any, missing: Leaving, glance: Callable[[], None]) -> None:
        """Give it once more what the broker does not show."""
        self.sender.send(inner, missing, self.sent.ids, glance)

    def remember(self, since: float) -> None:
        """Remember what left since a time, and leaves from now on: messages may be delivered again all the same."""
        before = self.remembered
        if before is None or since < before.since:
            self.remembered = Remembered(since, self.sent.arrived if before is None else before.arrived)
            self.remembered.add(self.sent.since(since))

    def came_again(self, entry: Entry, index: int) -> bool:
        """Whether a message was acknowledged, and is delivered again because that was lost with a connection."""
        remembered = self.remembered
        if remembered is None or remembered.shows_reset(entry):
            return False
        return remembered.has(entry, index) or self.tracker.holds(entry, index)

    def take_back(self, entry: Entry, index: int, size: int, now: float) -> None:
        """Forget an acknowledgement: the message is to be delivered again; the arguments are `SentAcks.take_back`'s."""
        self.tracker.take_back(entry, index, size)
        self.sent.take_back(entry, index, size, now)
        if self.remembered is not None:
            self.remembered.take_back(entry, index, size)
        unconfirmed = self.unconfirmed()
        if entry in unconfirmed:
            size, bits = unconfirmed.pop(entry) or (size, (1 << size) - 1)
            if bits := bits & whole_without(index, size):
                unconfirmed[entry] = size, bits

    def forget_sent(self) -> None:
        """Send nothing again that has left, and drop nothing that is delivered again: a seek moves the cursor."""
        self.sent.take()
        self.remembered = None

    def forget(self) -> None:
        """Forget everything: the cursor was moved elsewhere."""
        self.tracker.clear()
        self.sender.forget()
        self.forget_sent()
        self.live.clear()
        self.firsts.clear()
        self._forget_passed()
        self._unconfirmed.clear()
        self.again = self.reached = self.expected = None
        self.is_held = False

    def _forget_passed(self) -> None:
        self._passed.clear()
        self._passed_count = 0


class AcksByTopic:
    """What a consumer acknowledges, apart for each topic or partition.

    Args:
        topics: what was subscribed to.
        runs: whether runs of entries without a gap leave as one position.
        keeps_indexes: whether the broker keeps acknowledgements inside batches.
    """

    __slots__ = ("_keeps_indexes", "_known", "_runs", "_several", "_topics", "remembers", "unacked")

    def __init__(self, topics: Any, *, runs: bool, keeps_indexes: bool) -> None:
        self._topics = topics
        self._several = not isinstance(topics, str)
        self._runs, self._keeps_indexes = runs, keeps_indexes
        self._known: dict[str | int, TopicAcks] = {}
        self.unacked: Unacked[Any] | None = None
        """What was received and is waited for; it is set before anything is acknowledged."""
        self.remembers = False
        """Whether messages may be delivered again that were acknowledged."""

    def __iter__(self) -> Iterator[TopicAcks]:
        return iter(self._known.values())

    def __len__(self) -> int:
        """How many topics and partitions something was acknowledged on."""
        return len(self._known)

    def of(self, topic: str | None, partition: int) -> TopicAcks:
        """Give those of a topic.

        Args:
            topic: the full name of the topic or the partition; None where there is only one and its partitions.
            partition: its index, -1 if none. An id that was made of numbers has none, nor has one of a producer of this
                partition alone, whatever its topic is.
        """
        known = self.known(topic, partition)
        return self._new(topic, partition) if known is None else known

    def known(self, topic: str | None, partition: int) -> TopicAcks | None:
        """Give those of a topic, as `of()`; None if there are none."""
        if partition < 0 and not self._several and topic is not None:
            partition = TopicName.parse(topic).partition_index
        return self._known.get(topic if self._several and topic is not None else partition)

    def of_message(self, inner: Any, inner_id: Any) -> TopicAcks | None:
        """Give those of a C++ message's topic; None if nothing was acknowledged there."""
        if self._several:
            return self._known.get(inner.topic_name())
        return self._known.get(inner_id.partition()) or self.known(inner.topic_name(), inner_id.partition())

    def _new(self, topic: str | None, partition: int) -> TopicAcks:
        name = TopicName.parse(self._topics if topic is None else topic)
        if partition < 0 and name.is_partition:
            return self.of(topic, name.partition_index)
        if topic is None:
            topic = str(name if partition < 0 or name.is_partition else name.partition(partition))
        runs = self._runs and TopicName.parse(topic).is_persistent  # else there is no cursor to begin one at
        tracker = AckTracker(runs=runs, keeps_indexes=self._keeps_indexes)
        acks = TopicAcks(topic, partition, named=self._several or partition >= 0, tracker=tracker, unacked=self.unacked)
        if self.remembers:
            acks.remember(math.inf)
        self._known[topic if self._several else partition] = acks
        return acks


@contextlib.contextmanager
def logging_refusals(topic: TopicAcks, count: int) -> Iterator[None]:
    """Log acknowledgements that the C++ consumer refuses, as for a message of a topic that is not its own."""
    try:
        yield
    except pulsar.AlreadyClosed:
        raise
    except pulsar.PulsarException as error:
        _log.error("%d acknowledgements on %s were refused: %s", count, topic.topic, error)


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
    messages: list[Message] = []  # noqa: RUF012  # nobody changes it
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
            entries = chain.from_iterable(map(entries_of, () if all_singles else found))
            return read_as(entries, topic_at=topic_at, singles=all_singles, messages=taken if all_singles else [])
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


def entries_of(run: Run) -> Iterator[tuple[int, Entry, int, int, int]]:
    """Return what a run acknowledges, as `gather()` does."""
    partition, ledger, entry, size, first, last, at = run
    if size:
        bits = ((1 << (last - first + 1)) - 1) << first if first >= 0 else 0
        yield partition, (ledger, entry), size, bits, at
    else:
        for each in _row_of(run):
            yield partition, (ledger, each), 0, 0, at


def _row_of(run: Run) -> range:
    """Return the entries of single messages."""
    _, _, entry, _, first, last, _ = run
    return range(entry, entry + last - first + 1)


def _singles_of(found: list[Run]) -> Singles | None:
    """Return runs that are a message each, all of one ledger; None if they are not."""
    partition, ledger = found[0][:2]
    if any((*run[:2], run[3]) != (partition, ledger, 0) for run in found):
        return None
    return Singles(
        partition, ledger, _row_of(found[0]) if len(found) == 1 else [*chain.from_iterable(map(_row_of, found))]
    )


class AckCollector:
    """The acknowledgements of one consumer until they leave; its user holds a lock, and calls `absorb()` first.

    Args:
        context: of the consumer's client.
        order: of the consumer's messages.
        topics: what was subscribed to.
        runs: whether runs of entries without a gap leave as one position.
        keeps_indexes: whether the broker keeps acknowledgements inside batches.
    """

    __slots__ = (
        "_before",
        "_context",
        "_numbering",
        "_order",
        "_single",
        "_topics",
        "acknowledged",
        "by_topic",
        "chunked",
        "chunks_begin",
        "count",
        "has_chunks",
        "inbox",
    )

    def __init__(
        self, context: ClientContext, order: ReceiveOrder, topics: Any, *, runs: bool, keeps_indexes: bool
    ) -> None:
        self._context, self._order, self._topics = context, order, topics
        self.inbox = AckInbox(topics, order)
        self.by_topic = AcksByTopic(topics, runs=runs, keeps_indexes=keeps_indexes)
        self.count = 0
        """How many were read since the last group left."""
        self.acknowledged = 0.0
        """When something was acknowledged the last time."""
        self._before = 0.0
        """The same, before that."""
        self.has_chunks = False
        """Whether a chunked message was acknowledged."""
        self.chunked: Callable[[bytes], None] = lambda _: None
        """Is called with the id of each chunked message that is acknowledged."""
        self.chunks_begin: Callable[[], None] = lambda: None
        """Is called as the first chunked message is acknowledged."""
        self._numbering = self._single = False

    @property
    def may_have_chunks(self) -> bool:
        """Whether chunked messages come: one was acknowledged, or nothing was yet."""
        return self.has_chunks or not self.acknowledged

    def is_busy(self, now: float, seconds: float) -> bool:
        """Whether acknowledgements come one after the other, none of them so long behind the one before."""
        return now - self.acknowledged < seconds and self.acknowledged - self._before < seconds

    # -- reading the inbox ---------------------------------------------------------------------------------------------

    def absorb(self, now: float, pass_to: Callable[[], Any]) -> bool:
        """Read what is in the inbox.

        Args:
            now: the time, in seconds of `time.monotonic()`.
            pass_to: returns the C++ consumer that gets single messages at once, so that they need not be kept; None for
                none. It is called after the inbox was read: what was acknowledged without a connection is kept.

        Returns:
            Whether some were passed to it.
        """
        inbox, passed = self.inbox, False
        if len(inbox):
            self._before, self.acknowledged = self.acknowledged, now
        if inbox.messages:
            taken = inbox.take_messages()
            if self._single != (taken.singles is not None):
                self._single = not self._single  # numbers spare nothing where messages are single
                self._order.number_if(wanted=self._numbering and not self._single)
            if taken.singles is not None and (inner := pass_to()) is not None:
                self._pass_on(taken.singles, taken.messages, now, inner)
                passed = True
            else:
                self.count += taken.size
                self._add(taken)
            inbox.drop_messages(taken)
        if inbox.ids:
            taken = inbox.take_ids()
            self.count += taken.size
            self._add(taken)
            inbox.drop_ids(taken)
        if inbox.positions:
            taken = inbox.take_positions()
            self._add_positions(taken)
            inbox.drop_positions(taken)
        if inbox.position_ids:
            taken = inbox.take_position_ids()
            self._add_positions(taken)
            inbox.drop_position_ids(taken)
        return passed

    def number_messages(self, now: float) -> None:
        """Have messages numbered as they are received: they are being acknowledged."""
        if not self._numbering and self._order.may_number:
            self.acknowledged, self._numbering, self._single = now, True, False
            self._order.number_if(wanted=True)

    def number_no_messages_after(self, idle_seconds: float, now: float) -> None:
        """Have messages not numbered any more if none was acknowledged for so long."""
        if self._numbering and now - self.acknowledged > idle_seconds:
            self._numbering = False
            self._order.number_if(wanted=False)

    @property
    def pending(self) -> int:
        """How many acknowledgements were read and have not left, entries and parts of batches."""
        return sum(topic.tracker.pending for topic in self.by_topic)

    def settle(self, *, everything: bool = False) -> None:
        """Have messages leave whose batch was not added to since the last call, or all."""
        for topic in self.by_topic:
            topic.tracker.settle(everything=everything)

    def _pass_on(self, singles: Singles, messages: list[Message], now: float, inner: Any) -> None:
        """Give messages to the C++ consumer as they are: it takes one in half the time of an id."""
        to = self.by_topic.of(None, singles.partition)
        to.note_passed(singles, now)
        with logging_refusals(to, len(singles)):
            acknowledge(inner, messages)

    def _add(self, taken: Taken) -> None:
        if taken.singles is not None:
            self.by_topic.of(None, taken.singles.partition).tracker.add_singles(taken.singles)
        for partition, entry, size, bits, at in taken.found:
            to = self.by_topic.of(taken.topic_at(at), partition)
            if size > 0:
                if not to.tracker.add_bits(entry, size, bits) and taken.is_first_at(at):
                    to.tracker.add_again(entry)
                continue
            if size < 0:
                self._add_chunked(to, entry, taken.id_at(at))
            to.tracker.add_whole(entry)

    def _add_positions(self, taken: Taken) -> None:
        self.count += 1
        for partition, entry, size, bits, at in taken.found:
            to = self.by_topic.of(taken.topic_at(at), partition)
            to.tracker.add_cumulative(entry, bits.bit_length() - 1, max(size, 0))

    def _add_chunked(self, to: TopicAcks, entry: Entry, inner: Any) -> None:
        """Keep a chunked message's C++ id, which alone knows every chunk, while it lives."""
        self._add_live(to, entry, inner)
        if not self.has_chunks:
            self.has_chunks = True
            self.chunks_begin()
        self.chunked(bytes(inner.serialize()))

    @staticmethod
    def _add_live(to: TopicAcks, entry: Entry, inner: Any) -> None:
        to.live[entry] = inner
        first = decode(inner.serialize()).first_chunk
        if first is not None:
            to.firsts[entry] = (first.ledger_id, first.entry_id)

    # -- by ids --------------------------------------------------------------------------------------------------------

    def takes(self, message_id: MessageId) -> bool:
        """Whether an id, of a message that is not chunked, says by itself all that has to be known."""
        if not isinstance(self._topics, str):
            return False
        return message_id.origin is Origin.LIVE or (
            message_id.origin is Origin.BYTES and says_all(message_id.serialize())
        )

    def topic_of(self, message_id: MessageId) -> str:
        """Give the topic, or the partition, of an id.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
        """
        return entry_topic(self._topics if isinstance(self._topics, str) else None, message_id)

    def find(self, message_id: Any, lock: contextlib.AbstractContextManager[Any]) -> Callable[[], None]:
        """Find out what an id of any kind acknowledges, without the lock: it may take long; give what adds it, with it.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            MessageIdUnresolved: it cannot be found out what the id stands for; nothing is acknowledged.
        """
        ours = as_message_id(message_id)
        topic = self.topic_of(ours)
        found = acknowledged_by(self._context, topic, ours, lambda entry: self._known_size(topic, ours, entry, lock))

        def add() -> None:
            to = self.by_topic.of(topic, ours.partition())
            if found.place >= 0:
                to.tracker.add_bits(found.entry, found.size, 1 << found.place)
            for entry, inner in found.wholes:
                if inner is not None and len(found.wholes) == 1 and b":" in inner.serialize():
                    self._add_live(to, entry, inner)
                to.tracker.add_whole(entry)

        return add

    def find_position(self, message_id: Any, lock: contextlib.AbstractContextManager[Any]) -> Callable[[], None]:
        """Find out up to where an id of any kind acknowledges; as `find()`."""
        ours = as_message_id(message_id)
        topic = self.topic_of(ours)
        found = acknowledged_up_to(self._context, topic, ours, lambda entry: self._known_size(topic, ours, entry, lock))

        def add() -> None:
            self.by_topic.of(topic, ours.partition()).tracker.add_cumulative(found.entry, found.place, found.size)

        return add

    def take_back(self, message_id: MessageId, now: float) -> None:
        """Forget an acknowledgement: the message is to be delivered again. That of a chunked message stays."""
        data = decode(message_id.serialize())
        if data.first_chunk is None:
            to = self.by_topic.of(self.topic_of(message_id), data.partition)
            to.take_back((data.ledger_id, data.entry_id), data.batch_index, data.batch_size, now)

    def leave_out(self, inner: Any, last: int) -> None:
        """Count messages as acknowledged that a seek leaves out of their entry.

        Args:
            inner: one of them, a C++ message.
            last: which message of its batch is the last of them.
        """
        inner_id = inner.message_id()
        data = decode(inner_id.serialize())
        entry, bits = (data.ledger_id, data.entry_id), (1 << (last + 1)) - 1
        to = self.by_topic.of(inner.topic_name(), data.partition)
        if data.first_chunk is not None:
            self._add_chunked(to, entry, inner_id)
        to.tracker.leave_out(entry, data.batch_size if data.batch_index >= 0 else 0, bits)

    def is_duplicate(self, inner: Any) -> bool:
        """Whether a C++ message was acknowledged already."""
        inner_id = inner.message_id()
        to = self.by_topic.of(inner.topic_name(), inner_id.partition())
        return to.tracker.is_duplicate((inner_id.ledger_id(), inner_id.entry_id()), inner_id.batch_index())

    @property
    def number_of_topics(self) -> int:
        """Number of topics and partitions that something was acknowledged on."""
        return len(self.by_topic)

    def remember(self, since: float) -> None:
        """Remember what left since a time: it may be delivered again, though it was acknowledged."""
        self.by_topic.remembers = True
        for topic in self.by_topic:
            topic.remember(since)

    def remember_no_more(self) -> None:
        """Take what is delivered for what was not acknowledged."""
        self.by_topic.remembers = False
        for topic in self.by_topic:
            topic.remembered = None

    def came_again(self, inner: Any) -> bool:
        """Whether a C++ message was acknowledged, and is delivered again because that was lost with a connection."""
        inner_id = inner.message_id()
        to = self.by_topic.of_message(inner, inner_id)
        return to is not None and to.came_again((inner_id.ledger_id(), inner_id.entry_id()), inner_id.batch_index())

    def _known_size(
        self, topic: str, message_id: MessageId, entry: Entry, lock: contextlib.AbstractContextManager[Any]
    ) -> int:
        """Give how many messages the batch of an entry has, if some of them were acknowledged; else 0."""
        with lock:
            known = self.by_topic.of(topic, message_id.partition()).tracker.partly().get(entry)
        return 0 if known is None else known[0]
