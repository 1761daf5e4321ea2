"""Acknowledging with a receipt: a flush that the broker's cursor has to show, and a block that ends with one.

The official client sends acknowledgements some time later and never says whether they arrived. Here the admin API is
asked for the subscription's cursor until it shows everything. Acknowledgements inside batches do not appear there:
they count as arrived when the broker has answered a later request on the same connection.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext.errors import AckNotConfirmed, AdminNotFound, AdminUnavailable, InvalidUse

from .leaving import Leaving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext._runtime.context import ClientContext

    from .grouping import Acknowledger
    from .leaving import Entry
    from .topic_acks import TopicAcks

__all__ = ["flush_acks"]

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
