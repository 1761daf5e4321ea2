"""Messages that cannot be decrypted: the permits that they use up, and the chunks that break the C++ client.

A broker sends as many messages as a consumer permits, and the C++ client permits more as messages are taken from its
queue. For a batch that it cannot decrypt it permits one more, however many messages the broker has counted: in the end
none are left, and nothing comes any more. So a consumer or a reader that goes on behind such messages is looked after:
where its queue is empty, and the broker says that it takes no more, another native object takes its place.

A chunked message that is handed on though it cannot be decrypted (`CONSUME`) is larger than the memory that the C++
client has for it, and ends the process: such topics are refused.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._native.results import Timeout
from pulsar_ext.errors import AdminNotFound, InvalidUse, PulsarExtError
from pulsar_ext.ids.topic_name import TopicName

from .order import Transition
from .seeks import partitions_of_each
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pulsar_ext._runtime.context import ClientContext

    from .order import ReceiveOrder

__all__ = ["Flow", "PermitWatch", "goes_on", "refuse_encrypted_chunks", "unique_name"]

_CONSUME, _DISCARD = pulsar.ConsumerCryptoFailureAction.CONSUME, pulsar.ConsumerCryptoFailureAction.DISCARD
_TICK_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 1.0
_TOLD_SECONDS: Final = 60.0
"""How often it is logged at most how many messages could not be read, besides at the end."""
_LOOKED_AT: Final = 32
"""How many entries at either end of a topic are looked at before it is consumed undecrypted."""

_log = logging.getLogger("pulsar_ext")


def goes_on(named: dict[str, Any]) -> bool:
    """Return if messages that cannot be decrypted are passed over or handed on, by the official arguments."""
    return named["crypto_failure_action"] in (_CONSUME, _DISCARD)


def unique_name() -> str:
    """Return a name by which the broker's statistics list one consumer alone."""
    return uuid.uuid4().hex[:10]


class Flow:
    """Counts what comes out of a native object, and how often nothing did (pure).

    Args:
        listens: whether a listener is called with each message, so that the queue is empty unless that is at work.
    """

    __slots__ = ("_before", "_listens", "busy", "empty", "received", "waits")

    def __init__(self, *, listens: bool = False) -> None:
        self._listens = listens
        self.received = self.empty = self.busy = 0
        self.waits: Callable[[], bool] = lambda: False
        """Returns if a message was asked for that is not there; where that is not a receive with a timeout."""
        self._before = (-1, -1)

    def counting(self, wait: Callable[[int], Any]) -> Callable[[int], Any]:
        """Return a receive with a timeout in milliseconds that counts."""

        def counted(millis: int) -> Any:
            try:
                for inner in map(wait, (millis,)):
                    self.received += 1
                    return inner
            except Timeout:
                self.empty += 1
                raise

        return counted

    def handling(self, listener: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
        """Return a listener that counts what it handles."""

        def counted(receiver: Any, message: Any) -> None:
            self.received += 1
            self.busy += 1
            try:
                listener(receiver, message)
            finally:
                self.busy -= 1

        return counted

    def is_idle(self) -> bool:
        """Return if nothing has come since the last call, and the queue is empty."""
        received, empty = self._before
        self._before = self.received, self.empty
        if received != self.received:
            return False
        return not self.busy if self._listens else empty != self.empty or self.waits()

    def renew(self) -> None:
        """Begin to count what comes out of another native object."""
        self.received = 0
        self._before = (-1, -1)


_Stalled = tuple[str, str, str, int]
"""A topic, a subscription, since when the broker has the consumer, and how many messages it has sent it."""


class PermitWatch(Watch):
    """Has another native object take the place of one whose permits are used up.

    Args:
        context: of the client.
        order: of the messages.
        flow: counts them.
        topics: what is read.
        name: by which the broker lists the native object.
        move: has the next native object of a reader begin at the entry of a C++ id; None for a consumer, which begins
            at its cursor.
    """

    _PATIENCE_SECONDS = 1.0

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        flow: Flow,
        topics: Any,
        name: str,
        *,
        move: Callable[[Any], None] | None = None,
    ) -> None:
        super().__init__(context, order, topics)
        self._flow, self._name, self._move = flow, name, move
        self._stalled: frozenset[_Stalled] = frozenset()
        self._next: Any = None
        """At which entry a reader is to go on; None while that is not known."""
        self._pause, self._total, self._told, self._told_at = _TICK_SECONDS, 0, 0, -math.inf
        self._warned = False

    def begin(self) -> None:
        """Look from now on."""
        self._context.inquiries.watch(self, _TICK_SECONDS)

    def close(self) -> None:
        """Look no more."""
        super().close()
        self._tell()

    def renew(self, inner: Any, ahead: Iterator[Any], /) -> None:  # noqa: ARG002  # by the broker's statistics alone
        """Look at another native object."""
        self._flow.renew()
        self._settle()

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # by counts alone
        """Look if permits are used up, where nothing comes; the scheduler's call.

        Returns:
            After how many seconds to look again; None after a close.
        """
        if self._closed:
            return None
        if self._order.is_paused or self._order.is_silent or not self._flow.is_idle():
            self._settle()
            return _TICK_SECONDS
        try:
            stalled = self._look()
            if not stalled:
                self._settle(min(2 * self._pause, _LONGEST_SECONDS))
            elif stalled != self._stalled:
                self._settle()
                self._stalled = stalled
            else:
                self._go_on(stalled)
        except (PulsarExtError, pulsar.PulsarException) as error:  # no admin API answers, or the topic is moving
            self._warn(f"it cannot be seen: {error}")
            return _LONGEST_SECONDS
        return self._pause

    def _settle(self, pause: float = _TICK_SECONDS) -> None:
        self._stalled, self._next, self._pause = frozenset(), None, pause

    def _look(self) -> frozenset[_Stalled]:
        """Return where the broker sends no more."""
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

    def _go_on(self, stalled: frozenset[_Stalled]) -> None:
        """Replace the native object, for a reader once everything that the broker sent has surely come."""
        unread = max(sum(out for *_, out in stalled) - self._flow.received, 0)
        if self._move is None:
            self._order.replace(lambda: not self._closed)
        elif self._next is None:
            self._next = self._first_unsent(*stalled)
            return
        else:
            first = self._next
            with self._order.passing(Transition.REPLACEMENT):
                if self._closed:
                    return
                self._move(first)
        self._total += unread
        now = time.monotonic()
        if now >= self._told_at + _TOLD_SECONDS:
            self._told_at = now
            self._tell()

    def _tell(self) -> None:
        """Log how many messages could not be read."""
        if self._total != self._told:
            self._told = self._total
            _log.warning(
                "%d messages of batches on %s could not be decrypted so far; the native object, which permits no more "
                "messages after them, is replaced.",
                self._total,
                self._topics,
            )

    def _first_unsent(self, stalled: _Stalled, *others: _Stalled) -> Any:
        """Return the C++ id of the first entry that was not sent to a reader; what was sent is there after this."""
        topic, subscription, *_ = stalled
        partition = TopicName.parse(topic).partition_index
        cursor = self._admin().internal_stats(topic).cursors.get(subscription)
        if others or cursor is None or (partition >= 0 and not TopicName.parse(self._topics).is_partition):
            self._warn("a reader of several partitions goes on only if it is created with the topic in a list")
            return None
        # A broker serves one connection in order, and a client has one connection to each broker.
        self._context.open_reader(topic, InnerMessageId.latest).close()
        read = cursor.read_position
        return InnerMessageId(partition, read.ledger_id, read.entry_id, -1)

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "Batches of %s that cannot be decrypted may use up what is permitted, after which nothing comes; %s.",
                self._topics,
                why,
            )


def refuse_encrypted_chunks(context: ClientContext, named: dict[str, Any]) -> None:
    """Refuse to consume undecrypted what has encrypted chunked messages, as far as that can be seen.

    Args:
        context: of the client.
        named: the official arguments by name.

    Raises:
        InvalidUse: one of the entries at either end of a topic is a chunk of such a message; nothing was opened.
    """
    if named["crypto_failure_action"] != _CONSUME:
        return
    try:
        chunk = _encrypted_chunk(context, named["topic"])
    except PulsarExtError as error:
        _log.warning(
            "crypto_failure_action=CONSUME ends the process at an encrypted chunked message, and %s cannot be searched "
            "for these: %s",
            named["topic"],
            error,
        )
        return
    if chunk:
        raise InvalidUse(
            f"crypto_failure_action=CONSUME cannot receive the encrypted chunked message at {chunk}: the C++ client "
            "would overrun its memory. Nothing was opened; use DISCARD or FAIL."
        )


def _encrypted_chunk(context: ClientContext, topics: Any) -> str:
    """Return where an encrypted chunked message is, at either end of a topic; empty if there is none."""
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
        found += [(ledger_id, one) for one in range(min(entries, _LOOKED_AT - len(found)))]
    last: list[tuple[int, int]] = []
    for ledger_id, entries in reversed(ledgers):
        last += [(ledger_id, one) for one in range(max(entries - _LOOKED_AT + len(last), 0), entries)]
    return list(dict.fromkeys(found + last))
