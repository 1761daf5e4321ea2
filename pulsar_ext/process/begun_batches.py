"""Batches whose first messages were handled when something ended `process()` (pure).

A broker that keeps whole batches only delivers every message of such a batch again. So the rest of the batch, which is
in the receiver queue already, is handled before `process()` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext._wire.message_id_data import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.message import Message

__all__ = ["BegunBatches"]


class BegunBatches:
    """The last message that was received of each topic and partition, and how long the rest of its batch is handled.

    Args:
        timeout_ms: the longest time after the end in which messages are received, in milliseconds; 0 for none.
        ask: begins to ask if the broker keeps acknowledgements inside batches, waits for nothing, and passes the answer
            to the function that it is given, None if it is not known. Called once, and only if a batch is open.
    """

    def __init__(self, timeout_ms: int, ask: Callable[[Callable[[bool | None], None]], object]) -> None:
        self._timeout_seconds, self._ask = timeout_ms / 1000, ask
        self._last: dict[str, Any] = {}
        self._deadline: float | None = None
        self._is_over = timeout_ms == 0

    def note(self, message: Message) -> bool:
        """Note a message that was received: the messages of one batch arrive one after the other.

        Returns:
            If it is to be handled. After the end, a message of another entry shows that compaction removed the last
            messages of the batch before it: that batch is over, and this message was not begun.
        """
        topic, inner_id = message.topic_name(), message.inner.message_id()
        last = self._last.get(topic)
        if self._deadline is not None and last is not None and _goes_on(last) and not _is_same_entry(last, inner_id):
            del self._last[topic]
            return False
        self._last[topic] = inner_id
        return True

    def give_up(self) -> None:
        """Leave the rest of each batch to a redelivery."""
        self._is_over = True

    def seconds_left(self, now: float) -> float:
        """Return how long messages are still received after the end; 0.0 if no more are.

        Args:
            now: the time, in seconds of `time.monotonic()`.
        """
        if self._is_over or not any(map(_goes_on, self._last.values())):
            return 0.0
        if self._deadline is None:
            self._deadline = now + self._timeout_seconds
            self._ask(self._answer)
        return max(self._deadline - now, 0.0)

    def _answer(self, keeps_indexes: bool | None) -> None:
        if keeps_indexes:
            self.give_up()


def _goes_on(inner_id: Any) -> bool:
    """Return if more messages of the batch follow a message, by its C++ id."""
    data = decode(inner_id.serialize())
    return 0 <= data.batch_index < data.batch_size - 1


def _is_same_entry(one: Any, other: Any) -> bool:
    one, other = decode(one.serialize()), decode(other.serialize())
    return (one.ledger_id, one.entry_id) == (other.ledger_id, other.entry_id)
