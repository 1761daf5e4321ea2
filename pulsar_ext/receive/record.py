"""Recording what a consumer receives inside a block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pulsar_ext.consumer import Consumer

__all__ = ["Overheard"]


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
