"""Messages that cannot be decrypted: they use up permits, and their chunks break the C++ client.

A broker sends as many messages as a consumer permits, and the C++ client grants permits as messages are taken from its
queue. For a batch that it cannot decrypt, it grants a single permit, however many messages the broker has counted. When
the permits are used up, nothing arrives any more. So a consumer or a reader that continues after such messages is
monitored: if its queue is empty and the broker reports no permits, the native object is replaced.

A chunked message that is delivered undecrypted (`CONSUME`) is larger than the C++ client's buffer for it, and ends the
process. Opening a consumer of such a topic raises.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import pulsar

from pulsar_ext._native.messages import InnerMessage, InnerMessageId
from pulsar_ext._native.results import Timeout
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.errors import AdminNotFound, InvalidUse, PulsarExtError
from pulsar_ext.ids.topic_name import TopicName

from .order import Arguments, ReceiveOrder, Transition
from .seeks import Topics, partitions_of_each
from .watch import Watch

_FAIL = pulsar.ConsumerCryptoFailureAction.FAIL
"""The default: a comparison of the binding's enumerations takes a microsecond."""
_CONSUME, _DISCARD = pulsar.ConsumerCryptoFailureAction.CONSUME, pulsar.ConsumerCryptoFailureAction.DISCARD
_TICK_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 60.0
"""Interval of the log lines that count unreadable messages; another one is logged at the end."""
_PROBED_ENTRIES: Final = 32
"""Number of entries probed at either end of a topic before it is consumed undecrypted."""

_log = logging.getLogger("pulsar_ext")
R = TypeVar("R")
M = TypeVar("M")


def tolerates_decryption_failure(named: Arguments) -> bool:
    """Return if messages that cannot be decrypted are skipped or delivered, by the official arguments."""
    action = named["crypto_failure_action"]
    return action is not _FAIL and action in (_CONSUME, _DISCARD)


def unique_name() -> str:
    """Return a name that identifies one consumer in the broker's statistics."""
    return uuid.uuid4().hex[:10]


class Flow:
    """Counts the messages received from a native object, and the receives that found none (pure)."""

    __slots__ = ("_before", "_listens", "busy", "empty", "received", "waits")

    def __init__(self, *, listens: bool = False) -> None:
        self._listens = listens
        self.received = self.empty = self.busy = 0
        self.waits: Callable[[], bool] = lambda: False
        """Return if a message was requested that has not arrived; used without a receive with a timeout."""
        self._before = (-1, -1)

    def counting(self, wait: Callable[[int], InnerMessage]) -> Callable[[int], InnerMessage]:
        """Return a receive with a timeout in milliseconds that counts messages."""

        def counted(millis: int) -> InnerMessage:
            try:
                for inner in map(wait, (millis,)):
                    self.received += 1
                    return inner
            except Timeout:
                self.empty += 1
                raise
            raise AssertionError  # the map above has exactly one item

        return counted

    def handling(self, listener: Callable[[R, M], object]) -> Callable[[R, M], object]:
        """Return a listener that counts the messages it handles."""

        def counted(receiver: R, message: M) -> None:
            self.received += 1
            self.busy += 1
            try:
                listener(receiver, message)
            finally:
                self.busy -= 1

        return counted

    def is_idle(self) -> bool:
        """Return if no message has arrived since the last call, and the queue is empty."""
        received, empty = self._before
        self._before = self.received, self.empty
        if received != self.received:
            return False
        return not self.busy if self._listens else empty != self.empty or self.waits()

    def renew(self) -> None:
        """Restart the counts for another native object."""
        self.received = 0
        self._before = (-1, -1)


_Stalled = tuple[str, str, str, int]
"""A topic, a subscription, the time since which the consumer is connected, and the number of messages sent to it."""


class PermitWatch(Watch):
    """Replaces a native object whose permits are used up."""

    _PATIENCE_SECONDS = 1.0

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        flow: Flow,
        topics: Topics,
        name: str,
        *,
        move: Callable[[InnerMessageId], None] | None = None,
    ) -> None:
        super().__init__(context, order, topics)
        self._flow, self._name, self._move = flow, name, move
        self._stalled: frozenset[_Stalled] = frozenset()
        self._next: InnerMessageId | None = None
        """Entry at which a reader continues; None while it is unknown."""
        self._pause, self._total, self._logged, self._logged_at = _TICK_SECONDS, 0, 0, -math.inf
        self._warned = False

    def begin(self) -> None:
        """Begin monitoring."""
        self._context.inquiries.watch(self, _TICK_SECONDS)

    def close(self) -> None:
        """End monitoring."""
        super().close()
        self._log_total()

    def on_reopen(self, *_: object) -> None:
        """Monitor the reopened native object."""
        self._flow.renew()
        self._reset()

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # by counts alone
        """Check whether the permits are used up if no message arrives; return the seconds until the next check."""
        if self._closed:
            return None
        if self._order.is_paused or self._order.is_silent or not self._flow.is_idle():
            self._reset()
            return _TICK_SECONDS
        try:
            stalled = self._stalled_consumers()
            if not stalled:
                self._reset(min(2 * self._pause, _LONGEST_SECONDS))
            elif stalled != self._stalled:
                self._reset()
                self._stalled = stalled
            else:
                self._replace(stalled)
        except (PulsarExtError, pulsar.PulsarException) as error:  # no admin API answers, or the topic is moving
            self._warn(f"the permits cannot be checked: {error}")
            return _LONGEST_SECONDS
        return self._pause

    def _reset(self, pause: float = _TICK_SECONDS) -> None:
        self._stalled, self._next, self._pause = frozenset(), None, pause

    def _stalled_consumers(self) -> frozenset[_Stalled]:
        """Return the consumers to which the broker sends no more messages."""
        admin = self._admin()
        found: set[_Stalled] = set()
        for topic in partitions_of_each(self._context, self._topics):
            with contextlib.suppress(AdminNotFound):
                for subscription, stats in admin.stats(topic).subscriptions.items():
                    found |= {
                        (topic, subscription, one.get("connectedSince", ""), one.get("msgOutCounter", 0))
                        for one in stats.raw.get("consumers") or ()
                        if one.get("consumerName") == self._name and one.get("availablePermits", 1) <= 0
                    }
        return frozenset(found)

    def _replace(self, stalled: frozenset[_Stalled]) -> None:
        """Replace the native object; for a reader, only after every message that the broker sent has arrived."""
        unread = max(sum(out for *_, out in stalled) - self._flow.received, 0)
        if self._move is None:
            self._order.replace(lambda: not self._closed)
        elif self._next is None:
            self._next = self._first_unsent(*stalled)
            return
        else:
            first = self._next
            with self._order.run_transition(Transition.REPLACEMENT):
                if self._closed:
                    return
                self._move(first)
        self._total += unread
        now = time.monotonic()
        if now >= self._logged_at + _LOG_SECONDS:
            self._logged_at = now
            self._log_total()

    def _log_total(self) -> None:
        """Log the number of messages that could not be read."""
        if self._total != self._logged:
            self._logged = self._total
            _log.warning(
                "%d messages of batches on %s could not be decrypted so far. They used up the permits of the consumer "
                "or reader, which was reopened.",
                self._total,
                self._topics,
            )

    def _first_unsent(self, stalled: _Stalled, *others: _Stalled) -> InnerMessageId | None:
        """Return the C++ id of the first entry that was not sent to a reader, after all sent entries have arrived."""
        topic, subscription, *_ = stalled
        partition = TopicName.parse(topic).partition_index
        is_partition = isinstance(self._topics, str) and TopicName.parse(self._topics).is_partition
        cursor = self._admin().internal_stats(topic).cursors.get(subscription)
        if others or cursor is None or (partition >= 0 and not is_partition):
            self._warn("a reader of several partitions recovers only if it is created with the topic in a list")
            return None
        # A broker serves one connection in order, and a client has one connection to each broker.
        self._context.open_reader(topic, InnerMessageId.latest).close()
        read = cursor.read_position
        return InnerMessageId(partition, read.ledger_id, read.entry_id, -1)

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "Batches of %s that cannot be decrypted may use up the permits, after which no message arrives; %s.",
                self._topics,
                why,
            )


def raise_on_encrypted_chunks(context: ClientContext, named: Arguments) -> None:
    """Raise if undecrypted consumption would meet encrypted chunked messages, as far as that can be checked."""
    if not tolerates_decryption_failure(named) or named["crypto_failure_action"] != _CONSUME:
        return
    try:
        chunk = _encrypted_chunk(context, named["topic"])
    except PulsarExtError as error:
        _log.warning(
            "crypto_failure_action=CONSUME ends the process at an encrypted chunked message, and %s cannot be searched "
            "for such messages: %s",
            named["topic"],
            error,
        )
        return
    if chunk:
        raise InvalidUse(
            f"crypto_failure_action=CONSUME cannot receive the encrypted chunked message at {chunk}: it would overrun "
            "a buffer of the C++ client. Nothing was opened; use DISCARD or FAIL."
        )


def _encrypted_chunk(context: ClientContext, topics: Topics) -> str:
    """Return the position of an encrypted chunked message at either end of a topic; an empty string without one."""
    admin = context.admin_api()
    for topic in filter(lambda one: TopicName.parse(one).is_persistent, partitions_of_each(context, topics)):
        with contextlib.suppress(AdminNotFound):
            for ledger_id, entry_id in _ends(admin.internal_stats(topic).ledger_sizes()):
                entry = admin.entry(topic, ledger_id, entry_id)
                if entry.is_chunk and entry.encrypted:
                    return f"{ledger_id}:{entry_id} of {topic}"
    return ""


def _ends(sizes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the first and the last entries of a topic."""
    found: list[tuple[int, int]] = []
    ledgers = list(sizes)
    for ledger_id, entries in ledgers:
        found += [(ledger_id, one) for one in range(min(entries, _PROBED_ENTRIES - len(found)))]
    last: list[tuple[int, int]] = []
    for ledger_id, entries in reversed(ledgers):
        last += [(ledger_id, one) for one in range(max(entries - _PROBED_ENTRIES + len(last), 0), entries)]
    return list(dict.fromkeys(found + last))
