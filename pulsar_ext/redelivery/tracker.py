"""Redelivering whole messages: negative acknowledgements, acknowledgement timeouts of chunked ones, dead letters.

A chunked message is redelivered on a Shared or Key_Shared subscription only if every chunk of it is asked for. The C++
client asks for the last one, so here every negative acknowledgement waits until it is due and is then handed over entry
by entry, and chunked messages that nobody acknowledges in time are handed over the same way.

On an Exclusive or Failover subscription everything comes again. The broker moves its cursor back for that, and if it
reads entries at that moment, the end of that read moves the cursor forward once more: what is in between comes to
nobody before the next consumer does. So another C++ consumer takes the place of the old one instead, for which the
broker waits until it has read. That one has no half of a chunked message either, whose first chunk it would refuse.
So it is for a message that is not acknowledged in time: the C++ client would have the broker move its cursor back.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._native.results import UNREACHABLE
from pulsar_ext._runtime.lazy import lazy
from pulsar_ext._wire.message_id_data import has_first_chunk
from pulsar_ext.ack.tracker import Unacked
from pulsar_ext.chunks.resolver import is_open
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId, from_inner
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import received
from pulsar_ext.receive.order import Part, Transition

from .letters import DeadLetters, LetterEncryption, LetterProducers, RetryLetters, RetryTopics
from .schedule import OFFICIAL_DELAY_MILLIS, Delayed, Delays, check_backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext._runtime.scheduler import ClientScheduler
    from pulsar_ext.ack.acknowledger import Acknowledger
    from pulsar_ext.chunks.resolver import Resolver
    from pulsar_ext.ids.position import Position
    from pulsar_ext.receive.compacted import CompactionFilter
    from pulsar_ext.receive.filter import ScreenedSource
    from pulsar_ext.receive.order import ReceiveOrder

    from .schedule import Backoff


_GAP_SECONDS = 0.15
"""So much later the C++ client has surely asked for what it got before: its timer starts anew with what it gets."""
_SLACK_SECONDS = 0.05
"""What is due so soon goes with what is due: on an Exclusive subscription each group has everything redelivered."""
_TICK_SECONDS = 0.1
_OPENED_SECONDS = 1.0
"""When it is looked whether another C++ consumer was opened."""
_LOOK_AGAIN_SECONDS = 5.0
"""When chunks are looked for again that could not be found."""

_log = logging.getLogger("pulsar_ext")


class Redelivery(Part):
    """What one consumer wants to be redelivered.

    Args:
        scheduler: calls `tick()` while something waits, which may take long.
        acks: the consumer's acknowledgements.
        order: of its messages.
        delays: of its messages. The timeout is of those that the C++ client would not bring again, every one: all on an
            Exclusive or Failover subscription or with a backoff, else the chunked ones.
        resolver: finds all entries of a message.
    """

    def __init__(
        self,
        scheduler: ClientScheduler,
        acks: Acknowledger,
        order: ReceiveOrder,
        *,
        delays: Delays,
        resolver: Resolver,
    ) -> None:
        self._scheduler, self._acks, self._order = scheduler, acks, order
        self._resolver, self._delays, self._splits = resolver, delays, delays.splits
        self._nacked: Delayed[list[Any]] = Delayed(_GAP_SECONDS)
        self._late: Delayed[MessageId] = Delayed()
        """Chunked messages, by when they are late."""
        self._unacked: Unacked[Any] | None = None
        """What is waited for where everything comes again, or where each message has a time of its own."""
        if delays.timeout_ms and (delays.late_backoff is not None or not delays.splits):
            self._unacked = acks.collector.by_topic.unacked = Unacked()
        self._lock = OwnedLock()  # the handler of a signal may close what it interrupts
        self._scheduled = False
        self._inner: Any = None
        self._screened: ScreenedSource | None = None
        self._closed = False
        self.compaction: CompactionFilter | None = None  # if the topic is read as compacted
        self.dead_letters: DeadLetters | None = None
        self.retry_letters: RetryLetters | None = None
        self.letter_producers: LetterProducers | None = None
        self.tell: Callable[[list[Any], list[Any]], None] | None = None
        """Hears which entries the broker is asked for: negatively acknowledged ones, and those that are late."""

    @lazy
    def _refused(self) -> SimpleQueue[tuple[float, Any]]:
        """What was refused and nobody has looked at yet; most consumers refuse nothing."""
        refused: SimpleQueue[tuple[float, Any]] = threads.Queue()
        return refused

    @property
    def screens(self) -> bool:
        """Whether each message has to be looked at as it comes."""
        return bool(self._delays.timeout_ms) or self._looks_ahead

    @property
    def _looks_ahead(self) -> bool:
        """Whether a message may be acknowledged here that the application has not asked for yet."""
        return self.dead_letters is not None or self.compaction is not None

    @property
    def harmless(self) -> int:
        """How often a message may have been redelivered that need not be looked at; -1 if each has to be."""
        if self._delays.timeout_ms or self._unacked is not None or self.dead_letters is None:
            return -1
        return self.dead_letters.max_redeliver_count

    def attach(self, inner: Any, screened: ScreenedSource | None) -> None:
        """Take the C++ consumer, and what looks at its messages as they are received."""
        with self._lock:
            self._inner, self._screened = inner, screened
        if self.letter_producers is not None:
            self._scheduler.keep(self)
        if self._looks_ahead:
            self._scheduler.watch(self)

    def renew(self, inner: Any, _: Iterator[Any], /) -> None:
        """Ask another C++ consumer from now on."""
        with self._lock:
            self._inner = inner

    def nack(self, message_id: MessageId) -> None:
        """Have the message of an id, which knows its topic, redelivered after the delay."""
        due = self._delays.refused_until(None)
        self._acks.take_back(message_id)
        self._add(message_id, self._entries(message_id), due)
        self._scheduler.watch(self)

    def nack_message(self, inner: Any) -> None:
        """Have a C++ message redelivered, or sent to the dead letter topic if it was often enough."""
        self._acks.take_back(self._id_of(inner))
        self._refused.put((self._delays.refused_until(inner), inner))
        self._watch()

    def ask_for(self, inner: Any) -> None:
        """Have a C++ message redelivered after the delay, however often it was."""
        message_id = self._id_of(inner)
        self._acks.take_back(message_id)
        self._add(message_id, self._entries_or_later(message_id), self._delays.refused_until(inner))
        self._scheduler.watch(self)

    def screen(self, inner: Any) -> bool:
        """Look at a C++ message that arrives: False if it is not for the application."""
        if self._acks.came_again(inner):
            return False
        if self.compaction is not None and not self.compaction(inner):
            self._acks.add_messages([received(inner)])  # else its entry would stay in the backlog
            return False
        letters = self.dead_letters
        if letters is not None and inner.redelivery_count() > letters.max_redeliver_count:
            if not self._acks.is_duplicate(inner):
                letters.send(inner)
            return False
        if self._unacked is not None:
            inner_id = inner.message_id()
            entry = inner_id.ledger_id(), inner_id.entry_id()
            late_at = self._delays.late_at(inner)
            self._unacked.receive(inner.topic_name(), entry, inner_id.batch_index(), late_at, inner_id)
            self._watch()
        elif self._delays.timeout_ms:
            inner_id = inner.message_id()
            if has_first_chunk(inner_id.serialize()):
                message_id = from_inner(inner_id, inner.topic_name)
                with self._lock:
                    self._late.add(bytes(message_id.serialize()), message_id, self._delays.late_at(inner))
                self._scheduler.watch(self)
        return True

    def redeliver_entries(self, topic: str, positions: list[Position]) -> None:
        """Have entries of a topic redelivered; on an Exclusive or Failover subscription everything."""
        partition = TopicName.parse(topic).partition_index
        entries = [InnerMessageId(partition, one.ledger_id, one.entry_id, -1) for one in positions]
        for entry in entries:
            entry.topic_name(topic)
        with self._lock:
            inner = self._inner
        if inner is not None:
            self._ask(inner, entries)

    def acknowledged(self, data: bytes) -> None:
        """Have a chunked message not come again."""
        with self._lock:
            self._late.drop(data)

    def forget(self) -> None:
        """Have nothing redelivered: the broker does it all, or the cursor was moved."""
        for _ in self._drained():
            pass
        if self._unacked is not None:
            self._unacked.clear()
        with self._lock:
            self._nacked.clear()
            self._late.clear()

    def before(self, transition: Transition, /) -> None:
        """Have nothing redelivered that the broker redelivers anyway; ask for nothing more behind a close."""
        if transition is Transition.REDELIVERY:
            self.forget()
        elif transition is Transition.CLOSE:
            self.close()

    def after(self, transition: Transition, /) -> None:
        """Have nothing redelivered of what came before the cursor moved; see that another C++ consumer gets there."""
        if transition is not Transition.REDELIVERY:  # what came again meanwhile may have been refused anew
            self.forget()
        if transition is Transition.UNSUBSCRIPTION:
            self.close()
        if transition.replaces:
            self._scheduler.watch(self, _OPENED_SECONDS)

    def close(self) -> None:
        """Ask for nothing more."""
        self._closed = True
        if self.dead_letters is not None:
            self.dead_letters.close()
        if self.letter_producers is not None:
            self.letter_producers.close()

    def tick(self, now: float) -> float | None:
        """Ask for what is due.

        Returns:
            After how many seconds to look again; None if nothing waits.
        """
        if self._closed:
            return None
        try:
            self._order.renew()  # the last C++ consumer may not have been opened, and perhaps nobody receives
        except UNREACHABLE as error:
            _log.warning("The broker cannot be reached, and is tried again in %.0f s: %s", _OPENED_SECONDS, error)
            return _OPENED_SECONDS
        self._scheduled = False  # before it is emptied: what comes later schedules anew
        for due_at, refused in self._drained():
            try:
                self._redeliver(refused, due_at)
            except BaseException:
                self._refused.put((due_at, refused))
                raise
        asks = self._acks.is_on_its_cluster and (self._splits or self._acks.is_connected)
        with self._lock:
            inner = self._inner if asks else None
            late = [] if inner is None else self._late.due(now)
            due = [] if inner is None else self._nacked.due(now, _SLACK_SECONDS)
        overdue = [self._entries_or_later(message_id) for message_id in late]
        if inner is not None and (due or overdue or self._until_late(now) == 0):
            self._acks.leave_now()  # so that what is acknowledged does not come again, and is not late
            all_again = not self._splits and self._until_late(now) == 0
            overdue += self._late_entries(now)
            refused, timed_out = ([entry for entries in each for entry in entries] for each in (due, overdue))
            if refused or timed_out or all_again:
                if self.tell is not None:
                    self.tell(refused, timed_out)
                self._ask(inner, refused + timed_out)
        with self._lock:
            waits = [self._nacked.wait(now), self._late.wait(now), self._until_late(now)]
        if self._screened is not None and self._looks_ahead:
            self._screened.look_ahead()
            waits.append(_TICK_SECONDS)
        soonest = min((one for one in waits if one is not None), default=None)
        return None if soonest is None else min(max(soonest, 0.01 if asks else _TICK_SECONDS), _TICK_SECONDS)

    def _redeliver(self, refused: Any, due: float) -> None:
        letters = self.dead_letters
        if letters is not None and refused.redelivery_count() >= letters.max_redeliver_count:
            letters.send(refused)
        else:
            message_id = self._id_of(refused)
            self._add(message_id, self._entries_or_later(message_id), due)

    def _drained(self) -> Iterator[tuple[float, Any]]:
        """Take out what was refused, though another thread may do so meanwhile."""
        with contextlib.suppress(Empty):
            while True:
                yield self._refused.get_nowait()

    def _late_entries(self, now: float) -> list[list[Any]]:
        """Give the entries of the messages that are late."""
        if self._unacked is None:
            return []
        late = []
        for topic, inner_id in self._unacked.take_late(now):
            message_id = from_inner(inner_id)
            message_id.topic_name(topic)
            late.append(self._entries_or_later(message_id))
        return late

    def _until_late(self, now: float) -> float | None:
        """Give how long until a message is late that has everything come again; None if none is waited for."""
        soonest = None if self._unacked is None else self._unacked.soonest()
        return None if soonest is None else max(soonest - now, 0.0)

    def _watch(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.watch(self)

    def _ask(self, inner: Any, entries: list[Any]) -> None:
        """Ask for entries; on an Exclusive or Failover subscription for everything."""
        if not self._splits:
            self._order.replace()
            return
        self._acks.expect_redelivery()
        for entry in entries:
            inner.negative_acknowledge(entry)

    def _add(self, message_id: MessageId, entries: list[Any], due: float) -> None:
        if self._unacked is not None and self._splits:
            topic = self._acks.collector.topic_of(message_id)
            self._unacked.drop(topic, (message_id.ledger_id(), message_id.entry_id()))
        key = (message_id.topic_name(), message_id.ledger_id(), message_id.entry_id())
        if entries:
            with self._lock:
                self._nacked.add(key, entries, due)

    def _entries_or_later(self, message_id: MessageId) -> list[Any]:
        """Give what `_entries()` does; nothing if its chunks cannot be found, and then they are looked for again."""
        try:
            return self._entries(message_id)
        except pulsar.PulsarException as error:
            self._look_again(message_id, error)
            return []

    def _look_again(self, message_id: MessageId, error: Exception) -> None:
        _log.warning(
            "The chunks of %r could not be found; it is redelivered once they are, and they are looked for again in "
            "%.0f s: %s",
            message_id,
            _LOOK_AGAIN_SECONDS,
            error,
        )
        with self._lock:
            self._late.add(bytes(message_id.serialize()), message_id, time.monotonic() + _LOOK_AGAIN_SECONDS)

    @staticmethod
    def _id_of(inner: Any) -> MessageId:
        message_id = from_inner(inner.message_id())
        message_id.topic_name(inner.topic_name())
        return message_id

    def _entries(self, message_id: MessageId) -> list[Any]:
        """Give the C++ ids whose redelivery brings the whole message."""
        # On an Exclusive or Failover subscription one entry brings everything.
        if self._splits and (isinstance(message_id, ChunkMessageId) or is_open(message_id)):
            return self._resolver.to_redeliver(self._acks.collector.topic_of(message_id), message_id)
        return [message_id.inner]


_OFFICIAL_TIMEOUT_MILLIS = 10_000
"""The shortest timeout; the official client refuses what is below."""


@dataclass(frozen=True, slots=True)
class RedeliveryOptions:
    """The arguments of `Client.subscribe()` that the official client does not have, about redelivery; see there.

    Raises:
        InvalidUse: one of them is not valid, or does not go without another.
    """

    enable_retry: bool = False
    retry_letter_topic: str | None = None
    negative_ack_redelivery_backoff: Backoff | None = None
    ack_timeout_redelivery_backoff: Backoff | None = None
    letter_encryption_key: str | None = None
    letter_crypto_key_reader: pulsar.CryptoKeyReader | None = None

    def __post_init__(self) -> None:
        if type(self.enable_retry) is not bool:
            raise InvalidUse(f"enable_retry is expected to be True or False, not {self.enable_retry!r}.")
        if self.retry_letter_topic is not None:
            if not isinstance(self.retry_letter_topic, str) or not self.retry_letter_topic:
                raise InvalidUse(f"retry_letter_topic is expected to be a topic, not {self.retry_letter_topic!r}.")
            if not self.enable_retry:
                raise InvalidUse("retry_letter_topic needs enable_retry=True: without it nothing goes there.")
        check_backoff("negative_ack_redelivery_backoff", self.negative_ack_redelivery_backoff)
        check_backoff("ack_timeout_redelivery_backoff", self.ack_timeout_redelivery_backoff)

    def retry_topics(self, named: dict[str, Any], *, splits: bool) -> RetryTopics | None:
        """Have a subscription read the retry topic as well, if it is wanted.

        Args:
            named: the official arguments by name; the topics are changed in them, and the policy where it counts.
            splits: whether the broker redelivers single entries.

        Raises:
            InvalidUse: what is subscribed to cannot have one.
        """
        if self.ack_timeout_redelivery_backoff is not None and not named["unacked_messages_timeout_ms"]:
            raise InvalidUse("ack_timeout_redelivery_backoff needs unacked_messages_timeout_ms, which it adds to.")
        if not self.enable_retry:
            return None
        topics = RetryTopics(
            named["topic"], named["subscription_name"], named["dead_letter_policy"], self.retry_letter_topic
        )
        named["topic"] = topics.topics
        if splits:
            named["dead_letter_policy"] = topics.policy
        return topics


def take_over_redelivery(
    context: ClientContext,
    named: dict[str, Any],
    acks: Acknowledger,
    order: ReceiveOrder,
    options: RedeliveryOptions,
    retry: RetryTopics | None,
    *,
    splits: bool,
) -> Redelivery:
    """Take from a subscription's arguments what the C++ client does not do right with redelivered messages.

    Args:
        context: of the consumer's client.
        named: the official arguments by name; what is taken over is changed in them.
        acks: the consumer's acknowledgements.
        order: of its messages.
        options: the arguments that the official client does not have.
        retry: what is read for retry letters.
        splits: whether the broker redelivers single entries (Shared and Key_Shared subscriptions).
    """
    delay, timeout, policy, subscription = (
        named[name]
        for name in (
            "negative_ack_redelivery_delay_ms",
            "unacked_messages_timeout_ms",
            "dead_letter_policy",
            "subscription_name",
        )
    )
    late = options.ack_timeout_redelivery_backoff
    delays = Delays(
        delay_ms=delay if isinstance(delay, int) else 0,  # the official client refuses what is not an int
        timeout_ms=timeout if isinstance(timeout, int) and (splits or timeout >= _OFFICIAL_TIMEOUT_MILLIS) else 0,
        nack_backoff=options.negative_ack_redelivery_backoff,
        late_backoff=late,
        splits=splits,
    )
    redelivery = Redelivery(context.inquiries, acks, order, delays=delays, resolver=context.resolver)
    acks.collector.chunked = redelivery.acknowledged
    if redelivery.screens and (not splits or (late is not None and timeout >= _OFFICIAL_TIMEOUT_MILLIS)):
        named["unacked_messages_timeout_ms"] = 0
    if isinstance(delay, int):
        named["negative_ack_redelivery_delay_ms"] = min(delay, OFFICIAL_DELAY_MILLIS)
    dies = splits and policy and policy.max_redeliver_count > 0
    encryption = LetterEncryption(
        options.letter_encryption_key, options.letter_crypto_key_reader, named["crypto_key_reader"]
    )
    if not (dies or retry):
        return redelivery
    producers = redelivery.letter_producers = LetterProducers(context, named["schema"], encryption)
    if retry is not None:
        redelivery.retry_letters = RetryLetters(producers, retry, subscription)
    if dies:
        named["dead_letter_policy"] = None
        redelivery.dead_letters = DeadLetters(
            producers,
            policy,
            subscription,
            acknowledge=lambda inner: acks.add_messages([received(inner)]),
            redeliver=redelivery.ask_for,
            cluster=lambda: order.cluster,
        )
    return redelivery
