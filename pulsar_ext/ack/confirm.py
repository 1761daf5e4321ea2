"""How a consumer acknowledges, and acknowledging with a receipt: a flush that the broker's cursor has to show.

A received message goes through an inbox, and costs one append. The official client sends acknowledgements some time
later and never says whether they arrived. `flush_acks()` and a block of messages that ends with it, or has them
redelivered whole, ask the admin API for the subscription's cursor until it shows everything. Acknowledgements inside
batches do not appear there: they count as arrived when the broker has answered a later request on the same connection.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Protocol, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.messages import InnerMessage, InnerMessageId
from pulsar_ext.chunks.resolver import as_message_id
from pulsar_ext.errors import AckNotConfirmed, AdminNotFound, AdminUnavailable, InvalidUse
from pulsar_ext.ids.message_id import MessageId

from .leaving import Leaving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.message import Message

    from .acknowledger import Acknowledger
    from .leaving import Entry
    from .topics import TopicAcks


_FIRST_WAIT, _LONGEST_WAIT = 0.005, 0.25
_AGAIN_SECONDS = 0.5
_LISTED = 100
_SLOW_SECONDS = 0.085
"""What took longer may have had a disconnection and a reconnection in it."""


def flush_acks(context: ClientContext, acks: Acknowledger, *, confirm: bool, timeout_ms: int) -> None:
    """Send what was acknowledged, and wait until the cursors show it; a non-persistent topic has none.

    Raises:
        AckNotConfirmed: they do not show all of it in time, or the client was connected to another cluster meanwhile,
            and what had not been confirmed is dropped.
        InvalidUse: the timeout is not an int of 0 or more.
        AdminError: the admin API refused.
        pulsar.AlreadyClosed: the consumer or its client is closed, before or meanwhile.
    """
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms < 0:
        raise InvalidUse(f"timeout_ms is an int of milliseconds, 0 or more, not {timeout_ms!r}.")
    acks.refuse_closed()
    cluster = acks.cluster
    sent = acks.flush()
    if not confirm:
        acks.wait_until_sent()
        return
    deadline = time.monotonic() + timeout_ms / 1000
    check = _Check(context, acks)
    wait, began, fewest = _FIRST_WAIT, time.monotonic(), math.inf
    again = began + _AGAIN_SECONDS
    while not check.done(sent=sent):
        acks.refuse_closed()
        if acks.cluster != cluster:
            break
        now = time.monotonic()
        wait = max(wait, now - began)  # many take long to look at
        if check.missing < fewest:  # the broker is at it: a million take it some seconds, and twice as many longer
            fewest, again = check.missing, max(again, now + _AGAIN_SECONDS)
        if now >= deadline:
            raise check.error(timeout_ms)
        threads.sleep(min(wait, deadline - now))
        wait = min(2 * wait, _LONGEST_WAIT)
        began = time.monotonic()
        if not sent or now >= again:
            sent = acks.flush()
            if sent and now >= again:
                check.send_again()
                again = now + 2 * _AGAIN_SECONDS
    if acks.cluster != cluster:
        raise check.dropped()


class _Check:
    """What the broker has still to show."""

    def __init__(self, context: ClientContext, acks: Acknowledger) -> None:
        self._context, self._acks = context, acks
        self._missing: list[tuple[TopicAcks, Entry, tuple[int, int] | None]] = []
        self._why = ""
        self._keeps: bool | None = None

    def done(self, *, sent: bool) -> bool:
        """Look at the cursors; what they show needs no confirmation any more."""
        self._missing, self._why = [], ""
        with self._acks.lock:
            topics = list(self._acks.collector.by_topic)
        for topic in topics:
            self._look(topic, sent=sent)
        return not self._missing and not self._acks.pending

    @property
    def missing(self) -> int:
        """How many the cursors did not show at the last look."""
        return len(self._missing)

    def send_again(self) -> None:
        """Send once more what is not shown."""
        for topic in {id(one): one for one, _, _ in self._missing}.values():
            parts = [(entry, part) for one, entry, part in self._missing if one is topic]
            whole = tuple(entry for entry, part in parts if part is None and entry != topic.reached)
            indexes = tuple((entry, *part) for entry, part in parts if part is not None) if self._keeps else ()
            reached = topic.reached if any(entry == topic.reached for entry, _ in parts) else None
            with self._acks.lock:
                if self._acks.is_connected:
                    missing = Leaving(reached, whole, indexes)
                    topic.hand_over_missing(self._acks.inner, missing, self._acks.glance)

    def error(self, timeout_ms: int) -> AckNotConfirmed:
        """Say what is missing."""
        texts = [text for topic, entry, part in self._missing[:_LISTED] for text in _texts(topic, entry, part)]
        count = len(self._missing) or self._acks.pending
        return AckNotConfirmed(
            f"{count} acknowledged entries are not on the cursor of subscription {self._acks.subscription!r} after "
            f"{timeout_ms} ms{', because there is no connection' if not self._missing else ''}: "
            f"{', '.join(texts[:5])}{' …' if len(texts) > 5 else ''}. {self._why}"  # noqa: PLR2004  # enough to see
            "They are kept and sent again.",
            missing=texts[:_LISTED],
            count=count,
            subscription=self._acks.subscription,
        )

    def dropped(self) -> AckNotConfirmed:
        """Return the error for acknowledgements of a cluster that the client is not connected to any more."""
        return AckNotConfirmed(
            f"The client was connected to another cluster before the cursor of subscription "
            f"{self._acks.subscription!r} showed every acknowledgement. Those of the first cluster are dropped, and "
            "nothing was acknowledged on the other one: process again what is delivered there.",
            missing=[],
            count=self.missing,
            subscription=self._acks.subscription,
        )

    def _look(self, topic: TopicAcks, *, sent: bool) -> None:
        with self._acks.lock:
            wanted = dict(topic.unconfirmed())
        if not wanted:
            return
        try:
            info = self._context.admin_api().internal_stats(topic.topic).cursors.get(self._acks.subscription)
        except AdminUnavailable as error:  # the broker restarts, or the topic moves
            self._why = f"The admin API does not answer: {error} "
            info = None
        except AdminNotFound:
            info = None
        processed: bool | None = None
        confirmed = []
        each = [False] * len(wanted) if info is None else info.acknowledges_each(list(wanted))
        for (entry, part), is_shown in zip(wanted.items(), each, strict=True):
            shown = is_shown
            if not shown and part is not None and sent and self._keeps_indexes():
                processed = self._is_processed(topic) if processed is None else processed
                shown = processed
            if shown:
                confirmed.append((entry, part))
            else:
                self._missing.append((topic, entry, part))
                if part is not None and not self._keeps:
                    self._why = (
                        "The broker keeps whole batches: acknowledge the rest of theirs, or have it keep "
                        "acknowledgements inside batches (acknowledgmentAtBatchIndexLevelEnabled). "
                    )
        with self._acks.lock:
            for entry, part in confirmed:
                topic.confirmed(entry, part)

    def _is_processed(self, topic: TopicAcks) -> bool:
        """Wait until the broker has done what was sent to it for one topic; False if that cannot be known.

        A broker serves one connection in order, and a client has one connection to each broker.
        """
        before = time.monotonic()
        try:
            if topic.sender.is_named:  # the C++ consumer of several topics answers no such question
                self._context.open_reader(topic.topic, InnerMessageId.latest).close()
            else:
                self._context.senders.ask(self._acks.inner.get_last_message_id_async)
        except pulsar.PulsarException:
            return False
        return self._acks.is_connected and self._acks.was_connected and time.monotonic() - before < _SLOW_SECONDS

    def _keeps_indexes(self) -> bool:
        if self._keeps is None:
            self._keeps = self._context.keeps_batch_indexes() is not False  # as every broker since 4.2 by default
        return self._keeps


def _texts(topic: TopicAcks, entry: Entry, part: tuple[int, int] | None) -> Iterator[str]:
    position = f"{entry[0]}:{entry[1]}:{topic.sender.partition}"
    if part is None:
        yield position
        return
    size, bits = part
    yield from (f"{position}:{index}" for index in range(size) if bits >> index & 1)


class ScopedConsumer(Protocol):
    """What a scope needs of a consumer; the last three return something to await if the consumer is an awaited one."""

    def _record_(self) -> list[Any]:
        """Note what is received from now on in the list that is returned."""
        ...

    def _end_record_(self, noted: list[Any]) -> list[Any]:
        """Stop noting in a list that `record()` returned, and give what is in it as messages."""
        ...

    def negative_acknowledge(self, message: Any) -> Any:
        """Have a message redelivered."""
        ...

    def acknowledge_many(self, messages: Iterable[Any]) -> Any:
        """Acknowledge messages."""
        ...

    def flush_acks(self, confirm: bool = ..., timeout_ms: int = ...) -> Any:
        """Send what was acknowledged."""
        ...


class ScopeCore:
    """What the blocking and the awaited scope share: which messages they cover, and the calls at their end.

    Args:
        consumer: receives and acknowledges them.
        messages: which; None for what it receives inside the block.
        confirm: whether the cursor has to show them at the end.
        timeout_ms: how long that may take, in milliseconds.
    """

    def __init__(
        self, consumer: ScopedConsumer, messages: Iterable[Any] | None, *, confirm: bool, timeout_ms: int
    ) -> None:
        self._consumer, self._confirm, self._timeout_ms = consumer, confirm, timeout_ms
        self._given = None if messages is None else list(messages)
        self._noted: list[Any] = []

    def begin(self) -> Self | list[Any]:
        """Enter the block; give what `as` binds."""
        if self._given is not None:
            return self._given
        self._noted = self._consumer._record_()
        return self

    def finish(self, *, failed: bool) -> Iterator[Any]:
        """Leave the block: make the calls one by one, and give what each returned before the next is made."""
        consumer = self._consumer
        messages = consumer._end_record_(self._noted) if self._given is None else self._given
        if failed:
            for message in messages:
                yield consumer.negative_acknowledge(message)
            return
        yield consumer.acknowledge_many(messages)
        yield consumer.flush_acks(confirm=self._confirm, timeout_ms=self._timeout_ms)


class AckScope(ScopeCore):
    """A block that acknowledges its messages at its end, and has them redelivered if it raises."""

    def __enter__(self) -> Self | list[Any]:
        return self.begin()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for _returned in self.finish(failed=kind is not None):
            pass


class Acknowledging:
    """How a `Consumer` acknowledges; it stands before the official class."""

    __slots__ = ()
    _acks: Acknowledger
    _context: ClientContext
    _inbox: list[Any]
    _message_class: type[Message]
    _own: Callable[[Any], Message]
    _splits: bool

    def acknowledge(self, message: Any) -> None:
        """Acknowledge one message, all chunks of it, by the message or any id of it.

        A message of a cluster that the client is not connected to any more is not acknowledged.

        Args:
            message: a received message, or an id: live, deserialized, parsed or rebuilt from numbers.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            MessageIdUnresolved: its chunks could not be found; nothing is acknowledged.
        """
        if type(message) is self._message_class:
            inbox = self._inbox
            inbox.append(message)
            acks = self._acks
            if len(inbox) >= acks.limit:
                acks.filled()
            elif not acks.scheduled:
                acks.schedule()
        elif type(message) is MessageId and self._acks.collector.takes(message):
            self._acks.put(self._acks.inbox.ids, message)
        elif isinstance(message, InnerMessage | pulsar.Message):
            if type(own := self._own(message)) is self._message_class:
                self.acknowledge(own)
        else:
            self._acks.add_id(message)

    def acknowledge_many(self, messages: Iterable[Any]) -> None:
        """Acknowledge several messages at once, each as `acknowledge()` would.

        Args:
            messages: received messages or ids, in any order.

        Raises:
            TopicRequired, MessageIdUnresolved: as `acknowledge()`; what came before it is acknowledged.
        """
        messages = list(messages)
        if {*map(type, messages)} <= {self._message_class}:
            self._acks.add_messages(messages)
        else:
            for message in messages:
                self.acknowledge(message)

    def acknowledge_cumulative(self, message: Any) -> None:
        """Acknowledge every message up to this one and it too, all chunks of it, by the message or any id of it.

        A message of a cluster that the client is not connected to any more acknowledges nothing.

        A chunked message of another producer that began before this one's last entry and ends after it is cut in two:
        that is how the broker's cursor works, for every client. Acknowledge one by one where such producers share a
        topic.

        Raises:
            pulsar.CumulativeAcknowledgementNotAllowedError: on a Shared or Key_Shared subscription.
        """
        if self._splits:
            if not isinstance(message, InnerMessage | pulsar.Message):
                self._acks.collector.topic_of(as_message_id(message))
            raise pulsar.CumulativeAcknowledgementNotAllowedError(
                "Pulsar error: CumulativeAcknowledgementNotAllowedError: a Shared or Key_Shared subscription has no "
                "position up to which everything is acknowledged."
            )
        acks = self._acks
        if type(message) is self._message_class:
            acks.put(acks.inbox.positions, message)
        elif type(message) is MessageId and acks.collector.takes(message):
            acks.put(acks.inbox.position_ids, message)
        elif isinstance(message, InnerMessage | pulsar.Message):
            if type(own := self._own(message)) is self._message_class:
                acks.put(acks.inbox.positions, own)
        else:
            acks.add_cumulative(message)

    def flush_acks(self, confirm: bool = False, timeout_ms: int = 10_000) -> None:
        """Send what was acknowledged now, and on demand prove that the broker has it.

        Args:
            confirm: return only when the subscription's cursor on the broker shows every acknowledged message; on a
                non-persistent topic, which has no cursor, when they were sent.
            timeout_ms: how long that may take, in milliseconds; without `confirm` nothing is waited for.

        Raises:
            AckNotConfirmed: the cursor does not show all of them in time; `missing` says which.
            AdminError: the admin API refused.
            pulsar.AlreadyClosed: it is closed.
        """
        self._context.callbacks.refuse("flush_acks")
        flush_acks(self._context, self._acks, confirm=confirm, timeout_ms=timeout_ms)

    def pending_acks(self) -> int:
        """Count what was acknowledged and has not been sent: entries, and parts of batches."""
        pending: int = self._acks.pending
        return pending
