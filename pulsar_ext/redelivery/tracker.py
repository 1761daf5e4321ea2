"""Redeliver whole messages: negative acknowledgements, acknowledgement timeouts of chunked messages, dead letters.

On a Shared or Key_Shared subscription a chunked message is redelivered only if the redelivery of every chunk is
requested. The C++ client requests the last one. Here negative acknowledgements are queued until they are due, and then
passed to the native consumer entry by entry. Chunked messages with an acknowledgement timeout are handled alike.

On an Exclusive or Failover subscription everything is redelivered. The broker moves its cursor back for that. If it is
reading entries at that moment, the end of the read moves the cursor forward again, and the entries in between are not
delivered before the next consumer connects. So the native consumer is replaced instead: the broker waits for the end of
the read before it accepts the new one. The new consumer also holds no incomplete chunked message, whose first chunk it
would reject. An acknowledgement timeout replaces the native consumer for the same reason.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerConsumer, InnerMessage, InnerMessageId
from pulsar_ext._native.results import UNREACHABLE
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.lazy import lazy
from pulsar_ext._runtime.scheduler import ClientScheduler
from pulsar_ext._wire.message_id_data import has_first_chunk
from pulsar_ext.ack.acknowledger import Acknowledger
from pulsar_ext.ack.tracker import Unacked
from pulsar_ext.chunks.resolver import Resolver, is_unresolved
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId, from_inner
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message, received
from pulsar_ext.receive.compacted import CompactionFilter
from pulsar_ext.receive.filter import ScreenedSource
from pulsar_ext.receive.order import Arguments, Part, ReceiveOrder, Transition, TransitionSubscriber

from .letters import DeadLetters, LetterEncryption, LetterProducers, RetryLetters, RetryTopics
from .schedule import NATIVE_DELAY_MS, Backoff, DelayQueue, Delays, check_backoff

_GAP_SECONDS = 0.15
"""Interval in which the C++ client has surely requested what it was passed; more messages would restart its timer."""
_SLACK_SECONDS = 0.05
"""Messages due this soon join the current group: on an Exclusive subscription each group redelivers everything."""
_TICK_SECONDS = 0.1
_REOPEN_CHECK_SECONDS = 1.0
"""Delay before a check whether another native consumer was opened."""
_LOOKUP_RETRY_SECONDS = 5.0
"""Delay before another lookup of chunks that were not found."""

_log = logging.getLogger("pulsar_ext")


class Redelivery(TransitionSubscriber):
    """The pending redeliveries of one consumer.

    The timeout is for messages that the C++ client would not redeliver correctly: all on an Exclusive or Failover
    subscription or with a backoff, otherwise chunked ones.
    """

    part = Part.REDELIVERY

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
        self._resolver, self._delays, self._is_shared = resolver, delays, delays.is_shared
        self._unacked: Unacked[InnerMessageId] | None = None
        """All messages with a deadline, if one redelivers everything or each has its own; None otherwise."""
        if delays.timeout_ms and (delays.timeout_backoff is not None or not delays.is_shared):
            self._unacked = acks.collector.by_topic.unacked = Unacked()
        self._lock = OwnedLock()  # a signal handler may close the consumer while this thread holds the lock
        self._scheduled = False
        self._inner: InnerConsumer | None = None
        self._screened: ScreenedSource | None = None
        self._closed = False
        self.compaction: CompactionFilter | None = None  # if the topic is read as compacted
        self.dead_letters: DeadLetters | None = None
        self.retry_letters: RetryLetters | None = None
        self.letter_producers: LetterProducers | None = None
        self.on_redeliver: Callable[[list[InnerMessageId], list[InnerMessageId]], None] | None = None
        """Called with the entries to be redelivered: negatively acknowledged ones, and timed out ones."""

    # The following are created at their first use, as most consumers need none.

    @lazy
    def _nacked(self) -> DelayQueue[list[InnerMessageId]]:
        return DelayQueue(_GAP_SECONDS)

    @lazy
    def _timeouts(self) -> DelayQueue[MessageId]:
        """Chunked messages by acknowledgement deadline."""
        return DelayQueue()

    @lazy
    def _nack_queue(self) -> SimpleQueue[tuple[float, Message]]:
        """Negatively acknowledged messages not processed yet."""
        nacked: SimpleQueue[tuple[float, Message]] = threads.Queue()
        return nacked

    @property
    def screens(self) -> bool:
        """True if each message must be screened when it is received."""
        return bool(self._delays.timeout_ms or self.dead_letters or self.compaction)

    @property
    def _screens_ahead(self) -> bool:
        """True if a message may be acknowledged here before the application receives it."""
        return self.dead_letters is not None or self.compaction is not None

    @property
    def harmless(self) -> int:
        """Highest redelivery count of messages that need no screening; -1 if all need it."""
        if self._delays.timeout_ms or self._unacked is not None or self.dead_letters is None:
            return -1
        return self.dead_letters.max_redeliver_count

    def attach(self, inner: InnerConsumer, screened: ScreenedSource | None) -> None:
        """Use a native consumer, and the source that screens its messages."""
        with self._lock:
            self._inner, self._screened = inner, screened
        if self.letter_producers is not None:
            self._scheduler.keep(self)
        if self._screens_ahead:
            self._scheduler.watch(self)

    def on_reopen(self, inner: InnerConsumer, _: Iterator[InnerMessage], /) -> None:
        """Use another native consumer from now on."""
        with self._lock:
            self._inner = inner

    def nack(self, message_id: MessageId) -> None:
        """Redeliver the message of an id with a topic after the delay."""
        due = self._delays.nack_due_at(None)
        self._acks.withdraw(message_id)
        self._add(message_id, self._entries(message_id), due)
        self._scheduler.watch(self)

    def nack_message(self, message: Message) -> None:
        """Redeliver a message, or send its dead letter after the last redelivery."""
        self._acks.withdraw_message(message)
        due_at = self._delays.nack_due_at(message)
        self._nack_queue.put((due_at, message))
        if not self._scheduled:  # later ones are processed together, and do not compete with the application now
            self._watch(0.0 if self.dead_letters else min(due_at - time.monotonic(), _TICK_SECONDS))

    def redeliver_later(self, inner: InnerMessage) -> None:
        """Redeliver a native message after the delay, whatever its redelivery count."""
        message_id = self._id_of(inner)
        self._acks.withdraw(message_id)
        self._add(message_id, self._entries_or_retry(message_id), self._delays.nack_due_at(inner))
        self._scheduler.watch(self)

    def screen(self, inner: InnerMessage) -> bool:
        """Screen a received native message; return False if it is not to be delivered to the application."""
        if self._acks.is_redelivered_duplicate(inner):
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
            ack_deadline = self._delays.ack_deadline(inner)
            self._unacked.receive(inner.topic_name(), entry, inner_id.batch_index(), ack_deadline, inner_id)
            self._watch()
        elif self._delays.timeout_ms:
            inner_id = inner.message_id()
            if has_first_chunk(inner_id.serialize()):
                message_id = from_inner(inner_id, inner.topic_name)
                with self._lock:
                    self._timeouts.add(bytes(message_id.serialize()), message_id, self._delays.ack_deadline(inner))
                self._scheduler.watch(self)
        return True

    def redeliver_entries(self, topic: str, positions: list[Position]) -> None:
        """Redeliver entries of a topic; on an Exclusive or Failover subscription everything."""
        partition = TopicName.parse(topic).partition_index
        entries = [InnerMessageId(partition, one.ledger_id, one.entry_id, -1) for one in positions]
        for entry in entries:
            entry.topic_name(topic)
        with self._lock:
            inner = self._inner
        if inner is not None:
            self._ask(inner, entries)

    def acknowledged(self, data: bytes) -> None:
        """Cancel the acknowledgement timeout of a chunked message."""
        with self._lock:
            self._timeouts.drop(data)

    def forget(self) -> None:
        """Cancel all redeliveries: the broker redelivers everything, or the cursor was moved."""
        for _ in self._drain_nacked():
            pass
        if self._unacked is not None:
            self._unacked.clear()
        with self._lock:
            for made in (Redelivery._nacked.made_for(self), Redelivery._timeouts.made_for(self)):
                if made is not None:
                    made.clear()

    def on_before(self, transition: Transition, /) -> None:
        """Cancel redeliveries that the broker performs anyway; stop at a close."""
        if transition is Transition.REDELIVERY:
            self.forget()
        elif transition is Transition.CLOSE:
            self.close()

    def on_after(self, transition: Transition, /) -> None:
        """Cancel redeliveries from before the cursor was moved, and check that another native consumer is opened."""
        if transition is not Transition.REDELIVERY:  # redelivered messages may be negatively acknowledged already
            self.forget()
        if transition is Transition.UNSUBSCRIPTION:
            self.close()
        if transition.replaces:
            self._scheduler.watch(self, _REOPEN_CHECK_SECONDS)

    def close(self) -> None:
        """Stop redelivering."""
        self._closed = True
        if self.dead_letters is not None:
            self.dead_letters.close()
        if self.letter_producers is not None:
            self.letter_producers.close()

    def tick(self, now: float) -> float | None:
        """Redeliver what is due."""
        if self._closed:
            return None
        try:
            self._order.reopen()  # the native consumer may not have been opened, and perhaps no thread receives
        except UNREACHABLE as error:
            _log.warning("The broker cannot be reached; retrying in %.0f s: %s", _REOPEN_CHECK_SECONDS, error)
            return _REOPEN_CHECK_SECONDS
        self._scheduled = False  # before the queue is read: later messages schedule another call
        for due_at, nacked in self._drain_nacked():
            try:
                self._redeliver(nacked, due_at)
            except BaseException:
                self._nack_queue.put((due_at, nacked))
                raise
        may_ask = self._acks.is_on_its_cluster and (self._is_shared or self._acks.is_connected)
        with self._lock:
            inner = self._inner if may_ask else None
            late = [] if inner is None else self._timeouts.due(now)
            due = [] if inner is None else self._nacked.due(now, _SLACK_SECONDS)
        overdue = [self._entries_or_retry(message_id) for message_id in late]
        if inner is not None and (due or overdue or self._seconds_until_timeout(now) == 0):
            self._acks.send_pending()  # acknowledged messages must be neither redelivered nor timed out
            redelivers_all = not self._is_shared and self._seconds_until_timeout(now) == 0
            overdue += self._timed_out_entries(now)
            wanted, timed_out = ([entry for entries in each for entry in entries] for each in (due, overdue))
            if wanted or timed_out or redelivers_all:
                if self.on_redeliver is not None:
                    self.on_redeliver(wanted, timed_out)
                self._ask(inner, wanted + timed_out)
        with self._lock:
            delays = [self._nacked.wait(now), self._timeouts.wait(now), self._seconds_until_timeout(now)]
        if self._screened is not None and self._screens_ahead:
            self._screened.screen_ahead()
            delays.append(_TICK_SECONDS)
        next_due = min((one for one in delays if one is not None), default=None)
        return None if next_due is None else min(max(next_due, 0.01 if may_ask else _TICK_SECONDS), _TICK_SECONDS)

    def _redeliver(self, nacked: Message, due: float) -> None:
        letters = self.dead_letters
        if letters is not None and nacked.redelivery_count() >= letters.max_redeliver_count:
            letters.send(nacked.inner)
        else:
            message_id = nacked.message_id()
            message_id.topic_name(nacked.topic_name())
            self._add(message_id, self._entries_or_retry(message_id), due)

    def _drain_nacked(self) -> Iterator[tuple[float, Message]]:
        """Yield the negatively acknowledged messages; another thread may do so too."""
        with contextlib.suppress(Empty):
            while True:
                yield self._nack_queue.get_nowait()

    def _timed_out_entries(self, now: float) -> list[list[InnerMessageId]]:
        """Return the entries of timed out messages."""
        if self._unacked is None:
            return []
        late = []
        for topic, inner_id in self._unacked.pop_overdue(now):
            message_id = from_inner(inner_id)
            message_id.topic_name(topic)
            late.append(self._entries_or_retry(message_id))
        return late

    def _seconds_until_timeout(self, now: float) -> float | None:
        """Return the seconds until the next message times out; None without one."""
        next_due = None if self._unacked is None else self._unacked.next_due()
        return None if next_due is None else max(next_due - now, 0.0)

    def _watch(self, seconds: float = 0.0) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.watch(self, max(seconds, 0.0))

    def _ask(self, inner: InnerConsumer, entries: list[InnerMessageId]) -> None:
        """Request the redelivery of entries; on an Exclusive or Failover subscription of everything."""
        if not self._is_shared:
            self._order.replace()
            return
        self._acks.expect_redelivery()
        for entry in entries:
            inner.negative_acknowledge(entry)

    def _add(self, message_id: MessageId, entries: list[InnerMessageId], due: float) -> None:
        if self._unacked is not None and self._is_shared:
            topic = self._acks.collector.topic_of(message_id)
            self._unacked.drop(topic, (message_id.ledger_id(), message_id.entry_id()))
        key = (message_id.topic_name(), message_id.ledger_id(), message_id.entry_id())
        if entries:
            with self._lock:
                self._nacked.add(key, entries, due)

    def _entries_or_retry(self, message_id: MessageId) -> list[InnerMessageId]:
        """Return the entries of a message; if its chunks are not found, return none and retry later."""
        try:
            return self._entries(message_id)
        except pulsar.PulsarException as error:
            _log.warning(
                "Lookup of the chunks of %r failed; it is redelivered when they are found, retrying in %.0f s: %s",
                message_id,
                _LOOKUP_RETRY_SECONDS,
                error,
            )
            with self._lock:
                self._timeouts.add(bytes(message_id.serialize()), message_id, time.monotonic() + _LOOKUP_RETRY_SECONDS)
            return []

    @staticmethod
    def _id_of(inner: InnerMessage) -> MessageId:
        message_id = from_inner(inner.message_id())
        message_id.topic_name(inner.topic_name())
        return message_id

    def _entries(self, message_id: MessageId) -> list[InnerMessageId]:
        """Return the native ids whose redelivery redelivers the whole message."""
        # On an Exclusive or Failover subscription one entry redelivers everything.
        if self._is_shared and (isinstance(message_id, ChunkMessageId) or is_unresolved(message_id)):
            return self._resolver.to_redeliver(self._acks.collector.topic_of(message_id), message_id)
        return [message_id.inner]


_MIN_OFFICIAL_TIMEOUT_MS = 10_000
"""The shortest acknowledgement timeout that the official client accepts."""


@dataclass(frozen=True, slots=True)
class RedeliveryOptions:
    """The redelivery arguments of `Client.subscribe()` that the official client does not have; see there."""

    enable_retry: bool = False
    retry_letter_topic: str | None = None
    negative_ack_redelivery_backoff: Backoff | None = None
    ack_timeout_redelivery_backoff: Backoff | None = None
    letter_encryption_key: str | None = None
    letter_crypto_key_reader: pulsar.CryptoKeyReader | None = None

    def __post_init__(self) -> None:
        if type(self.enable_retry) is not bool:
            raise InvalidUse(f"enable_retry must be True or False, got {self.enable_retry!r}")
        if self.retry_letter_topic is not None:
            if not isinstance(self.retry_letter_topic, str) or not self.retry_letter_topic:
                raise InvalidUse(f"retry_letter_topic must be the name of a topic, got {self.retry_letter_topic!r}")
            if not self.enable_retry:
                raise InvalidUse("retry_letter_topic needs enable_retry=True")
        check_backoff("negative_ack_redelivery_backoff", self.negative_ack_redelivery_backoff)
        check_backoff("ack_timeout_redelivery_backoff", self.ack_timeout_redelivery_backoff)

    def retry_topics(self, named: Arguments, *, is_shared: bool) -> RetryTopics | None:
        """Add the retry topic to a subscription with `enable_retry`."""
        if self.ack_timeout_redelivery_backoff is not None and not named["unacked_messages_timeout_ms"]:
            raise InvalidUse("ack_timeout_redelivery_backoff needs unacked_messages_timeout_ms, to which it is added")
        if not self.enable_retry:
            return None
        topics = RetryTopics(
            named["topic"], named["subscription_name"], named["dead_letter_policy"], self.retry_letter_topic
        )
        named["topic"] = topics.topics
        if is_shared:
            named["dead_letter_policy"] = topics.policy
        return topics


def configure_redelivery(
    context: ClientContext,
    named: Arguments,
    acks: Acknowledger,
    order: ReceiveOrder,
    options: RedeliveryOptions,
    retry: RetryTopics | None,
    *,
    is_shared: bool,
) -> Redelivery:
    """Configure redelivery for a subscription, and remove what the C++ client does wrong from its arguments."""
    delay, timeout = named["negative_ack_redelivery_delay_ms"], named["unacked_messages_timeout_ms"]
    policy, subscription = named["dead_letter_policy"], named["subscription_name"]
    late = options.ack_timeout_redelivery_backoff
    delays = Delays(
        delay_ms=delay if isinstance(delay, int) else 0,  # the official client raises for anything else
        timeout_ms=timeout if isinstance(timeout, int) and (is_shared or timeout >= _MIN_OFFICIAL_TIMEOUT_MS) else 0,
        nack_backoff=options.negative_ack_redelivery_backoff,
        timeout_backoff=late,
        is_shared=is_shared,
    )
    redelivery = Redelivery(context.inquiries, acks, order, delays=delays, resolver=context.resolver)
    acks.collector.chunked = redelivery.acknowledged
    if redelivery.screens and (not is_shared or (late is not None and timeout >= _MIN_OFFICIAL_TIMEOUT_MS)):
        named["unacked_messages_timeout_ms"] = 0
    if isinstance(delay, int):
        named["negative_ack_redelivery_delay_ms"] = min(delay, NATIVE_DELAY_MS)
    has_dead_letters = is_shared and policy and policy.max_redeliver_count > 0
    encryption = LetterEncryption(
        options.letter_encryption_key, options.letter_crypto_key_reader, named["crypto_key_reader"]
    )
    if not (has_dead_letters or retry):
        return redelivery
    producers = redelivery.letter_producers = LetterProducers(context, named["schema"], encryption)
    if retry is not None:
        redelivery.retry_letters = RetryLetters(producers, retry, subscription)
    if has_dead_letters:
        named["dead_letter_policy"] = None
        redelivery.dead_letters = DeadLetters(
            producers,
            policy,
            subscription,
            acknowledge=lambda inner: acks.add_messages([received(inner)]),
            redeliver=redelivery.redeliver_later,
            cluster=lambda: order.cluster,
        )
    return redelivery
