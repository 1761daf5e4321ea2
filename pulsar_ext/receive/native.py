"""Opening a C++ consumer or reader in the place of another one, and unsubscribing from one or several topics."""

from __future__ import annotations

import contextlib
import logging
import time
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import answered_within
from pulsar_ext._native.handles import inner_of
from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._native.signatures import default_arguments
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName

from .order import NOTHING
from .seek_places import NOT_THERE, PROBE, Head, first_at, first_by_time, position_of, read_heads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pulsar_ext._native.answer import Answer
    from pulsar_ext._native.seek_gate import SeekGate
    from pulsar_ext._runtime.context import ClientContext


_SENT_SECONDS = 0.1
"""How long the broker may take until it knows that it has sent everything to a consumer that was closed. If another one
of a Failover subscription is there by then, it reads on for that one, and moves the cursor back amid this read."""
_BUSY_SECONDS, _BUSY_LOOK_SECONDS = 10.0, 0.1
"""How long the broker may take until it knows that a consumer is gone whose connection was lost."""

_log = logging.getLogger("pulsar_ext")

_NAMES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}
"""The names of the arguments that are not defaults, each set of them once."""


class Standing(Protocol):
    """The consumer or reader of ours."""

    inner: Any

    def _stand_on_(self, official: Any) -> Any:
        """Go on with the C++ object of an official consumer or reader; gives it."""
        ...


class LeftOut(Protocol):
    """The acknowledgements of a consumer."""

    def leave_out(self, inner: Any, last: int, /) -> None:
        """Acknowledge what nobody else does.

        Args:
            inner: a C++ message before the one that was sought, in the same entry.
            last: which message of its batch is the last of these.
        """

    def moves_some(self, topics: Iterable[str] | None, /) -> None:
        """Take note that the next seek moves the cursors of these topics and partitions only; None for all."""


class _Foundation:
    """What both have in common.

    Args:
        handle: the consumer or reader of ours.
        open_official: the official `subscribe()` or `create_reader()`.
        named: its arguments by name.
        context: of its client.
    """

    _defaults: ClassVar[dict[str, Any]]
    """Of the arguments."""

    def __init__(
        self,
        handle: Standing,
        open_official: Callable[..., Any],
        named: dict[str, Any],
        context: ClientContext,
    ) -> None:
        self._handle, self._open_official, self._context = handle, open_official, context
        self._keep(named)

    def _keep(self, named: dict[str, Any]) -> None:
        """Keep what is not a default, in two tuples: a dictionary of all takes 800 bytes, for each consumer."""
        defaults = self._defaults
        own = {name: one for name, one in named.items() if name not in defaults or one is not defaults[name]}
        names = tuple(own)
        self._names, self._values = _NAMES.setdefault(names, names), tuple(own.values())

    @property
    def _named(self) -> dict[str, Any]:
        """The arguments by name."""
        return self._defaults | dict(zip(self._names, self._values, strict=True))

    def retire(self) -> None:
        """Close the C++ object, so that another one can take its place."""
        with contextlib.suppress(pulsar.PulsarException):  # it is not used any more, whatever it says
            self._handle.inner.close()

    def leaves_out(self, _: Any, /) -> bool:
        """Leave nothing out."""
        return False

    def have_queue(self) -> None:
        """Have the next C++ object keep a message ahead."""
        self._keep(self._named | {"receiver_queue_size": 1})

    def _open(self, **changed: Any) -> Any:
        # Where connections are TLS, one that is lost amid its handshake is an error, and is not made anew.
        return self._context.persist(partial(self._open_official, **self._named | changed), pulsar.ConnectError)


class ConsumerFoundation(_Foundation):
    """The C++ consumer under a consumer: the subscription's cursor says where another one begins.

    Args:
        arguments: as above.
        gate: what a seek begins through.
        acks: the consumer's.
    """

    _defaults = default_arguments(pulsar.Client.subscribe)
    _heads: tuple[Head, ...] = ()
    """What the last seek leaves out, until it has come."""
    _is_retired = False
    """Whether what the C++ consumer gives comes again: it is being closed, and is not yet replaced."""

    def __init__(
        self,
        *arguments: Any,
        gate: SeekGate,
        acks: LeftOut,
    ) -> None:
        super().__init__(*arguments)
        self._gate, self._acks = gate, acks

    def retire(self) -> None:
        """Close the C++ consumer, so that another one can take its place; what it still gives is left out."""
        self._is_retired = True
        super().retire()

    def move(self, target: Any) -> None:
        """Move the cursor, which knows entries; what is before the message in its entry is left out later.

        Args:
            target: a C++ id, or a publish time in milliseconds.

        Raises:
            pulsar.PulsarException: it has not moved, or not on every topic or partition, or not for good.
        """
        self._begin_at(target)
        self._heads = self._heads_of(target)

    def moves_some(self, topics: Iterable[str] | None) -> None:
        """Take note that the seek that is about to begin moves these topics and partitions only; None for all."""
        self._acks.moves_some(topics)

    def move_each(self, targets: Mapping[str, Any]) -> None:
        """Move the cursors of some of several topics and partitions; raises as `move()`.

        Args:
            targets: what `move()` takes, by the full name of the topic or partition.
        """
        found: list[tuple[Any, tuple[Head, ...]]] = []
        for topic, target in targets.items():
            if isinstance(target, int):
                where = first_at(partial(self._context.open_reader, topic), self._context.insist, target)
                place = position_of(topic, where.target), self._heads_of(where.target) if where.is_exclusive else ()
            else:
                place = position_of(topic, target), self._heads_of(target)
            found.append(place)
        self._heads = ()
        for position, heads in found:
            self._begin_at(position)
            self._heads += heads

    def _begin_at(self, target: Any) -> None:
        # Twice: the broker stores the first one with what was acknowledged before, and a crash revives that.
        for _ in range(2):
            self._context.insist(self._gate.seeking(self._handle.inner, target), NOT_THERE)

    def _heads_of(self, target: Any) -> tuple[Head, ...]:
        """Give what is before the message of a C++ id in its entry, and that message, if it is not wanted either."""
        if isinstance(target, int):
            return ()
        several = not isinstance(self._named["topic"], str)
        head = Head.of(target, self._named["start_message_id_inclusive"], several_topics=several)
        return () if head is None else (head,)

    def move_before(self, _: Any) -> None:
        """Do nothing: what was not acknowledged comes again."""

    def move_to_cluster(self) -> None:
        """Skip nothing: the entry that was sought is of another cluster."""
        self._heads = ()

    def open_anew(self) -> tuple[Any, Iterator[Any]]:
        """Open another C++ consumer, by the same name; give it, and its first messages."""
        self.retire()  # again: a Ctrl-C may have come between
        if self._named["consumer_type"] == pulsar.ConsumerType.Failover:
            threads.sleep(_SENT_SECONDS)
        self._is_retired = False
        if self._named["consumer_type"] == pulsar.ConsumerType.Shared:
            self._have_broker_forget()
        inner = self._handle._stand_on_(self._open_when_free())
        ahead: list[Any] = []
        if self._heads and not self._named["message_listener"] and self._named["receiver_queue_size"]:
            ahead = read_heads(self._heads, inner, self._acks.leave_out)
            self._heads = ()
        return inner, iter(ahead)

    def _have_broker_forget(self) -> None:
        """Have the broker forget which consumer of a Shared subscription gets the rest of which chunked message.

        It remembers that beyond the consumer's end, and sends what is left to nobody, or waits for ever until that one
        takes more. A consumer of another type has the broker begin anew, if no other consumer is there. It is not done
        for a pattern, whose topics are not known here.
        """
        topics = self._named["topic"]
        for one in [topics] if isinstance(topics, str) else topics if isinstance(topics, list) else ():
            with contextlib.suppress(pulsar.PulsarException, InvalidUse):  # it is tried: others may be there
                for topic in self._context.opener.get_topic_partitions(one):
                    self._have_it_forget_on(topic)

    def _have_it_forget_on(self, topic: str) -> None:
        # Without a queue: where the broker reads for it, what the next consumer gets begins again in its midst.
        changed = {"topic": topic, "receiver_queue_size": 0, "message_listener": None}
        opened: list[Any] = []
        try:  # so that a Ctrl-C leaves it to be closed
            opened += map(call, (partial(self._open, consumer_type=pulsar.ConsumerType.Exclusive, **changed),))
        finally:
            for one in opened:
                inner_of(one).close()

    def _open_when_free(self) -> Any:
        """Open a consumer; the one before, or that of another type, may be there yet if a connection was lost."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return self._open()
            except pulsar.ConsumerBusy:
                if time.monotonic() > deadline:
                    raise
                threads.sleep(_BUSY_LOOK_SECONDS)

    def leaves_out(self, inner: Any, /) -> bool:
        """Whether a C++ message is before the one that was sought, in the same entry; then it is acknowledged.

        This is for those who have each message by itself: a listener, and who receives without a queue.
        """
        if self._is_retired:
            return True
        if not self._heads:
            return False
        inner_id = inner.message_id()
        for head in self._heads:
            if head.has(inner_id):
                self._acks.leave_out(inner, head.last)
                return True
        self._heads = tuple(head for head in self._heads if not head.is_behind(inner_id))
        return False


class ReaderFoundation(_Foundation):
    """The C++ reader under a reader, whose place in the topic only itself knows."""

    _defaults = default_arguments(pulsar.Client.create_reader)
    _next = _start = None

    def move(self, target: Any) -> None:
        """Open another C++ reader elsewhere, which takes the place of this one when it is opened anew.

        Args:
            target: a C++ id, or a publish time in milliseconds.

        Raises:
            InvalidUse: it is an id of one of several partitions; nothing has moved.
        """
        if isinstance(target, int):
            self._move_to_time(target)
        elif self._is_of_several(target):
            raise InvalidUse(
                f"A reader of all partitions of {self._named['topic']} cannot seek to an id of one of them: the C++ "
                "client drops what is unread of the others. Create it with the topic in a list, which can, or seek to "
                "MessageId.earliest, to MessageId.latest or to a time."
            )
        else:
            self._next = self._open(start_message_id=target)

    def moves_some(self, _: Iterable[str] | None) -> None:
        """Do nothing: a reader acknowledges nothing."""

    def move_each(self, _: Mapping[str, Any]) -> None:
        """Refuse: what is unread of the other partitions cannot be kept.

        Raises:
            InvalidUse: always; nothing has moved.
        """
        raise InvalidUse(
            f"A reader of all partitions of {self._named['topic']} cannot seek on some of them: the C++ client drops "
            f"what is unread of the others. Create it with the topic in a list, [{self._named['topic']!r}], which can."
        )

    def move_before(self, inner_id: Any) -> None:
        """Open another C++ reader, where the message or the entry of a C++ id is the next one."""
        self._next = self._open(start_message_id=inner_id, start_message_id_inclusive=True)

    def move_to_cluster(self) -> None:
        """Have the next C++ reader begin where the first one began; at the earliest message if that was an id."""
        start = self._named["start_message_id"]
        if start not in (InnerMessageId.earliest, InnerMessageId.latest):
            _log.warning(
                "A reader of %s began at an id of another cluster; it reads from the earliest message of this one.",
                self._named["topic"],
            )
            start = InnerMessageId.earliest
        self._next, self._start = None, start  # not opened before this one is closed, which would read there as well

    def _move_to_time(self, millis: int) -> None:
        """Open another C++ reader at the first message that was published at a time or later."""
        found = None
        if TopicName.parse(self._named["topic"]).is_persistent:
            probe = self._open(**PROBE, start_message_id=InnerMessageId.latest)
            found = first_by_time(probe, self._context.insist, millis)
        if found is None or self._is_of_several(found):
            self._next = self._open(start_message_id=InnerMessageId.latest)
            self._context.insist(partial(inner_of(self._next).seek_async, millis), NOT_THERE)
        else:
            self.move_before(found)

    def _is_of_several(self, inner_id: Any) -> bool:
        return inner_id.partition() >= 0 and not TopicName.parse(self._named["topic"]).is_partition

    def open_anew(self) -> tuple[Any, Iterator[Any]]:
        """Give the C++ reader that was opened, or is opened now."""
        if self._next is None:
            self._next = self._open(start_message_id=self._start)
        return self._handle._stand_on_(self._next), NOTHING


def is_of_several(topics: Any, partitions_of: Callable[[str], list[str]]) -> bool:
    """Whether the C++ consumer of what was subscribed to is one of several topics or partitions.

    Args:
        topics: what was subscribed to.
        partitions_of: gives the names of a topic's partitions; of a topic without partitions its own.
    """
    if not isinstance(topics, str):
        return True
    return not TopicName.parse(topics).is_partition and any(
        TopicName.parse(one).is_partition for one in partitions_of(topics)
    )


class Unsubscription:
    """What a consumer asked the broker for last, when it unsubscribed; the broker may have done it all the same."""

    __slots__ = ("_answer", "_begun")

    def __init__(self) -> None:
        self._answer: Answer | None = None
        self._begun: Sequence[int] = ()

    def noted(self, begin: Callable[[Answer, list[int]], object]) -> Callable[[Answer], object]:
        """Give what begins it, and notes its answer.

        Args:
            begin: is called with the answer, and with a list that gets an item together with the beginning.
        """
        return partial(self._begin, begin)

    def _begin(self, begin: Callable[[Answer, list[int]], object], answer: Answer) -> None:
        begun: list[int] = []
        self._answer, self._begun = answer, begun  # first: a Ctrl-C may come behind the next line
        begin(answer, begun)

    def is_done(self, seconds: float) -> bool:
        """Whether an earlier one has been carried out; its answer is waited for, if a Ctrl-C let it begin."""
        answer = self._answer
        if answer is None or not self._begun or not answered_within(seconds, lambda: answer.result is None):
            return False
        return bool(answer.result == pulsar.Result.Ok)
