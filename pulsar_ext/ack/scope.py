"""A block that acknowledges its messages whole at its end, or has them redelivered whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pulsar_ext.consumer import Consumer


__all__ = ["AckScope"]


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
