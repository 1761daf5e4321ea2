"""Acknowledging methods of a consumer, confirmed flushes, and blocks that acknowledge their messages.

A received message is appended to an inbox. The official client sends acknowledgements later and never reports whether
they arrived. `flush_acks(confirm=True)` and a block of messages query the subscription's cursor by the admin API until
it shows every acknowledgement. It does not show acknowledgements inside batches. They count as arrived when the broker
has answered a later request on the same connection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.messages import InnerMessage, InnerMessageId
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.errors import AckNotConfirmed, AdminNotFound, AdminUnavailable, InvalidUse
from pulsar_ext.message import Message

from .acknowledger import Acknowledger
from .delivery import CONFIRM_RESEND_SECONDS, FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, UNNOTICED_SECONDS
from .groups import AckGroup, Entry
from .topics import TopicAcks

R_co = TypeVar("R_co", covariant=True)
_MAX_LISTED = 100


def flush_acks(context: ClientContext, acks: Acknowledger, *, confirm: bool, timeout_ms: int) -> None:
    """Send acknowledgements, and wait until the cursors show them; a non-persistent topic has no cursor."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms < 0:
        raise InvalidUse(f"timeout_ms must be an int >= 0 (milliseconds), got {timeout_ms!r}")
    acks.raise_if_closed()
    cluster = acks.cluster
    sent = acks.flush()
    if not confirm:
        acks.wait_until_sent()
        return
    deadline = time.monotonic() + timeout_ms / 1000
    check = _Check(context, acks)
    wait, began, fewest = FIRST_WAIT_SECONDS, time.monotonic(), math.inf
    resend_at = began + CONFIRM_RESEND_SECONDS
    while not check.done(sent=sent):
        acks.raise_if_closed()
        if acks.cluster != cluster:
            break
        now = time.monotonic()
        wait = max(wait, now - began)  # checking many entries takes long
        if check.missing < fewest:  # the broker makes progress: a million acknowledgements take it some seconds
            fewest, resend_at = check.missing, max(resend_at, now + CONFIRM_RESEND_SECONDS)
        if now >= deadline:
            raise check.error(timeout_ms)
        threads.sleep(min(wait, deadline - now))
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)
        began = time.monotonic()
        if not sent or now >= resend_at:
            sent = acks.flush()
            if sent and now >= resend_at:
                check.send_again()
                resend_at = now + 2 * CONFIRM_RESEND_SECONDS
    if acks.cluster != cluster:
        raise check.dropped()


class _Check:
    """Check which acknowledgements the broker's cursors do not show."""

    def __init__(self, context: ClientContext, acks: Acknowledger) -> None:
        self._context, self._acks = context, acks
        self._missing: list[tuple[TopicAcks, Entry, tuple[int, int] | None]] = []
        self._reason = ""
        self._keeps_parts: bool | None = None

    def done(self, *, sent: bool) -> bool:
        """Check the cursors, and return True if they show everything; what they show is confirmed."""
        self._missing, self._reason = [], ""
        with self._acks.lock:
            topics = list(self._acks.collector.by_topic)
        for topic in topics:
            self._check_topic(topic, sent=sent)
        return not self._missing and not self._acks.pending

    @property
    def missing(self) -> int:
        """Number of acknowledgements that the cursors did not show at the last check."""
        return len(self._missing)

    def send_again(self) -> None:
        """Resend acknowledgements that the cursors do not show."""
        for topic in {id(one): one for one, _, _ in self._missing}.values():
            parts = [(entry, part) for one, entry, part in self._missing if one is topic]
            whole = tuple(entry for entry, part in parts if part is None and entry != topic.highest_sent)
            indexes = tuple((entry, *part) for entry, part in parts if part is not None) if self._keeps_parts else ()
            highest_sent = topic.highest_sent if any(entry == topic.highest_sent for entry, _ in parts) else None
            with self._acks.lock:
                if (inner := self._acks.inner) is not None and self._acks.is_connected:
                    topic.resend_missing(inner, AckGroup(highest_sent, whole, indexes), self._acks.check_connection)

    def error(self, timeout_ms: int) -> AckNotConfirmed:
        """Return the error that lists the missing acknowledgements."""
        texts = [text for topic, entry, part in self._missing[:_MAX_LISTED] for text in _texts(topic, entry, part)]
        count = len(self._missing) or self._acks.pending
        return AckNotConfirmed(
            f"The cursor of subscription {self._acks.subscription!r} does not show {count} acknowledged entries after "
            f"{timeout_ms} ms{' (not connected)' if not self._missing else ''}: "
            f"{', '.join(texts[:5])}{' …' if len(texts) > 5 else ''}. {self._reason}"  # noqa: PLR2004  # enough to see
            "They stay pending and are sent again.",
            missing=texts[:_MAX_LISTED],
            count=count,
            subscription=self._acks.subscription,
        )

    def dropped(self) -> AckNotConfirmed:
        """Return the error for acknowledgements of a cluster to which the client is no longer connected."""
        return AckNotConfirmed(
            f"The client was connected to another cluster before the cursor of subscription "
            f"{self._acks.subscription!r} showed every acknowledgement. Acknowledgements of the first cluster are "
            "dropped; nothing was acknowledged on the other cluster. Process the messages delivered there again.",
            missing=[],
            count=self.missing,
            subscription=self._acks.subscription,
        )

    def _check_topic(self, topic: TopicAcks, *, sent: bool) -> None:
        with self._acks.lock:
            wanted = dict(topic.unconfirmed())
        if not wanted:
            return
        try:
            info = self._context.admin_api().internal_stats(topic.topic).cursors.get(self._acks.subscription)
        except AdminUnavailable as error:  # the broker restarts, or the topic is unloaded
            self._reason = f"The admin API does not answer: {error} "
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
                if part is not None and not self._keeps_parts:
                    self._reason = (
                        "The broker keeps whole batches only: acknowledge the rest of each batch, or enable "
                        "acknowledgmentAtBatchIndexLevelEnabled. "
                    )
        with self._acks.lock:
            for entry, part in confirmed:
                topic.confirmed(entry, part)

    def _is_processed(self, topic: TopicAcks) -> bool:
        """Wait until the broker has processed what was sent for one topic; return False if unknown.

        A broker serves a connection in order, and a client has one connection to each broker.
        """
        before, inner = time.monotonic(), self._acks.inner
        if inner is None:
            return False
        try:
            if topic.sender.is_named:  # the native consumer of several topics does not support the other request
                self._context.open_reader(topic.topic, InnerMessageId.latest).close()
            else:
                self._context.senders.ask(inner.get_last_message_id_async)
        except pulsar.PulsarException:
            return False
        return self._acks.is_connected and self._acks.was_connected and time.monotonic() - before < UNNOTICED_SECONDS

    def _keeps_indexes(self) -> bool:
        if self._keeps_parts is None:
            self._keeps_parts = self._context.keeps_batch_indexes() is not False  # default of brokers since 4.2
        return self._keeps_parts


def _texts(topic: TopicAcks, entry: Entry, part: tuple[int, int] | None) -> Iterator[str]:
    position = f"{entry[0]}:{entry[1]}:{topic.sender.partition}"
    if part is None:
        yield position
        return
    size, bits = part
    yield from (f"{position}:{index}" for index in range(size) if bits >> index & 1)


class ScopedConsumer(Protocol[R_co]):
    """The methods of a consumer that a scope uses; those of an asyncio consumer return awaitables."""

    def _record_(self) -> list[InnerMessage]:
        """Return a list to which every message received from now on is appended."""
        ...

    def _end_record_(self, noted: list[InnerMessage], /) -> list[Message]:
        """Stop appending to a list that `_record_()` returned, and return its messages."""
        ...

    def negative_acknowledge(self, message: object, /) -> R_co:
        """Negatively acknowledge a message."""
        ...

    def acknowledge_many(self, messages: Iterable[object], /) -> R_co:
        """Acknowledge messages."""
        ...

    def flush_acks(self, confirm: bool = ..., timeout_ms: int = ...) -> R_co:
        """Send pending acknowledgements."""
        ...


class ScopeCore(Generic[R_co]):
    """The common part of the blocking and the asyncio scope: its messages, and the calls at its end."""

    def __init__(
        self, consumer: ScopedConsumer[R_co], messages: Iterable[object] | None, *, confirm: bool, timeout_ms: int
    ) -> None:
        self._consumer, self._confirm, self._timeout_ms = consumer, confirm, timeout_ms
        self._given = None if messages is None else list(messages)
        self._noted: list[InnerMessage] = []

    def begin(self) -> Self | list[Any]:
        """Enter the block; return the value of `as`."""
        if self._given is not None:
            return self._given
        self._noted = self._consumer._record_()
        return self

    def finish(self, *, failed: bool) -> Iterator[R_co]:
        """Leave the block: make its calls one by one, and yield the result of each before the next."""
        consumer = self._consumer
        messages = consumer._end_record_(self._noted) if self._given is None else self._given
        if failed:
            for message in messages:
                yield consumer.negative_acknowledge(message)
            return
        yield consumer.acknowledge_many(messages)
        yield consumer.flush_acks(confirm=self._confirm, timeout_ms=self._timeout_ms)


class AckScope(ScopeCore[None]):
    """A block that acknowledges its messages at its end, or has them redelivered if it raises."""

    def __enter__(self) -> Self | list[Any]:
        return self.begin()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for _returned in self.finish(failed=kind is not None):
            pass
