"""Acknowledging with a receipt: a flush that the broker's cursor has to show, and a block that ends with one.

The official client sends acknowledgements some time later and never says whether they arrived. Here the admin API is
asked for the subscription's cursor until it shows everything. Acknowledgements inside batches do not appear there:
they count as arrived when the broker has answered a later request on the same connection.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from .acks import Leaving
from .errors import AckNotConfirmed, AdminNotFound, AdminUnauthorized, AdminUnavailable, InvalidUse
from .positions import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from .ack_cursor import Cursor
    from .acknowledging import Acknowledger
    from .acks import Entry
    from .admin import CursorInfo
    from .client import Client
    from .consumer import Consumer

__all__ = ["AckScope", "Overheard", "flush_acks", "shows"]

_FIRST_WAIT, _LONGEST_WAIT = 0.005, 0.25
_AGAIN_SECONDS = 0.5
_LISTED = 100


def flush_acks(client: Client, acks: Acknowledger, *, confirm: bool, timeout_ms: int) -> None:
    """Send what was acknowledged, and wait until the cursors show it.

    Raises:
        AckNotConfirmed: they do not show all of it in time.
        InvalidUse: the timeout is no int of 0 or more.
        AdminError: the admin API refused.
    """
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms < 0:
        raise InvalidUse(f"timeout_ms is an int of milliseconds, 0 or more, not {timeout_ms!r}.")
    sent = acks.flush()
    if not confirm:
        return
    deadline = time.monotonic() + timeout_ms / 1000
    check = _Check(client, acks)
    wait, again = _FIRST_WAIT, time.monotonic() + _AGAIN_SECONDS
    while not check.done(sent=sent):
        now = time.monotonic()
        if now >= deadline:
            raise check.error(timeout_ms)
        time.sleep(min(wait, deadline - now))
        wait = min(2 * wait, _LONGEST_WAIT)
        if not sent or now >= again:
            sent = acks.flush()
            if sent and now >= again:
                check.send_again()
                again = now + 2 * _AGAIN_SECONDS


def shows(info: CursorInfo, entry: Entry) -> bool:
    """Whether a cursor counts an entry as acknowledged."""
    position = Position(*entry)
    return position <= info.mark_delete_position or any(position in one for one in info.individually_deleted)


class _Check:
    """What the broker has still to show."""

    def __init__(self, client: Client, acks: Acknowledger) -> None:
        self._client, self._acks = client, acks
        self._missing: list[tuple[Cursor, Entry, tuple[int, int] | None]] = []
        self._why = ""
        self._keeps: bool | None = None

    def done(self, *, sent: bool) -> bool:
        """Look at the cursors; what they show needs no confirmation any more."""
        self._missing, self._why = [], ""
        for cursor in self._acks.cursors():
            self._look(cursor, sent=sent)
        return not self._missing and not self._acks.pending

    def send_again(self) -> None:
        """Send once more what is not shown."""
        for cursor in {id(one): one for one, _, _ in self._missing}.values():
            parts = [(entry, part) for one, entry, part in self._missing if one is cursor]
            whole = tuple(entry for entry, part in parts if part is None and entry != cursor.reached)
            indexes = tuple((entry, *part) for entry, part in parts if part is not None) if self._keeps else ()
            reached = cursor.reached if any(entry == cursor.reached for entry, _ in parts) else None
            self._acks.flush_again(cursor, Leaving(reached, whole, indexes))

    def error(self, timeout_ms: int) -> AckNotConfirmed:
        """Say what is missing."""
        texts = [text for cursor, entry, part in self._missing[:_LISTED] for text in _texts(cursor, entry, part)]
        count = len(self._missing) or self._acks.pending
        return AckNotConfirmed(
            f"{count} acknowledged entries are not on the cursor of subscription {self._acks.subscription!r} after "
            f"{timeout_ms} ms{', for there is no connection' if not self._missing else ''}: "
            f"{', '.join(texts[:5])}{' …' if len(texts) > 5 else ''}. {self._why}"  # noqa: PLR2004  # enough to see
            "They are kept and sent again.",
            missing=texts[:_LISTED],
            count=count,
            subscription=self._acks.subscription,
        )

    def _look(self, cursor: Cursor, *, sent: bool) -> None:
        parts = cursor.tracker.partly()
        with self._acks.lock:
            wanted = dict(cursor.unconfirmed())
        held = {} if self._acks.keeps_indexes else {entry: part for entry, part in parts.items() if entry not in wanted}
        if not wanted and not held:
            return
        try:
            info = self._client._admin_api().internal_stats(cursor.topic).cursors.get(self._acks.subscription)  # noqa: SLF001
        except AdminUnavailable as error:  # the broker restarts, or the topic moves
            self._why = f"The admin API does not answer: {error} "
            info = None
        except AdminNotFound:
            info = None
        processed: bool | None = None
        for entry, part in (wanted | held).items():
            shown = info is not None and shows(info, entry)
            if not shown and part is not None and entry in wanted and sent and self._keeps_indexes():
                processed = self._acks.is_processed(cursor) if processed is None else processed
                shown = processed
            if shown:
                with self._acks.lock:
                    cursor.confirmed(entry, part)
            else:
                self._missing.append((cursor, entry, part))
                if part is not None and not (self._acks.keeps_indexes and self._keeps):
                    self._why = (
                        "The cursor holds whole batches: acknowledge the rest of theirs, or use "
                        "batch_index_ack_enabled=True with a broker that keeps acknowledgements inside batches. "
                    )

    def _keeps_indexes(self) -> bool:
        if self._keeps is None:
            try:
                settings = self._client._admin_api().broker_configuration()  # noqa: SLF001  # the client's own part
                self._keeps = settings.get("acknowledgmentAtBatchIndexLevelEnabled") == "true"
            except (AdminUnauthorized, AdminUnavailable):
                self._keeps = True  # it cannot be asked; the consumer was told that the broker does
        return self._keeps


def _texts(cursor: Cursor, entry: Entry, part: tuple[int, int] | None) -> Iterator[str]:
    position = f"{entry[0]}:{entry[1]}:{cursor.wire.partition}"
    if part is None:
        yield position
        return
    size, bits = part
    yield from (f"{position}:{index}" for index in range(size) if bits >> index & 1)


class AckScope:
    """A block that acknowledges its messages at its end, and has them redelivered if it raises.

    Args:
        consumer: receives and acknowledges them.
        messages: which; None for what it receives inside the block.
        confirm: whether the cursor has to show them at the end.
        timeout_ms: for how long.
    """

    def __init__(self, consumer: Consumer, messages: Iterable[Any] | None, *, confirm: bool, timeout_ms: int) -> None:
        self._consumer, self._confirm, self._timeout_ms = consumer, confirm, timeout_ms
        self._given = None if messages is None else list(messages)
        self._heard: Any = None

    def __enter__(self) -> Self | list[Any]:
        if self._given is not None:
            return self._given
        self._heard = self._consumer._overhear()  # noqa: SLF001  # its other half
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        messages: list[Any] = self._heard.end() if self._given is None else self._given
        if kind is not None:
            for message in messages:
                self._consumer.negative_acknowledge(message)
            return
        self._consumer.acknowledge_many(messages)
        self._consumer.flush_acks(confirm=self._confirm, timeout_ms=self._timeout_ms)


class Overheard:
    """Stands before a consumer's native receive and notes what comes.

    Args:
        consumer: whose.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._source, self._call = consumer._source, consumer._receive_call  # noqa: SLF001
        self._heard: list[Any] = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        for inner in self._source:
            self._heard.append(inner)
            return inner
        raise StopIteration

    def __call__(self, millis: int) -> Any:
        """Receive as the consumer does."""
        for inner in map(self._call, (millis,)):
            self._heard.append(inner)
            return inner
        raise AssertionError  # the map above has exactly one item

    def note(self, messages: list[Any]) -> None:
        """Hear messages that the consumer received in another way."""
        self._heard += [message.inner for message in messages]

    def end(self) -> list[Any]:
        """Listen no more, and give what was heard."""
        consumer = self._consumer
        consumer._source, consumer._receive_call = self._source, self._call  # noqa: SLF001
        consumer._number_anew()  # noqa: SLF001
        return [consumer._message_of(inner) for inner in self._heard]  # noqa: SLF001
