"""A block that acknowledges its messages whole at its end, or has them redelivered whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType


__all__ = ["AckScope"]


class Scoped(Protocol):
    """What a scope needs of a consumer."""

    def record(self) -> list[Any]:
        """Note what is received from now on."""
        ...

    def end_record(self, noted: list[Any]) -> list[Any]:
        """Note nothing any more, and give what was noted as messages."""
        ...

    def negative_acknowledge(self, message: Any) -> None:
        """Have a message redelivered."""
        ...

    def acknowledge_many(self, messages: Iterable[Any]) -> None:
        """Acknowledge messages."""
        ...

    def flush_acks(self, confirm: bool = ..., timeout_ms: int = ...) -> None:
        """Send what was acknowledged."""
        ...


class AckScope:
    """A block that acknowledges its messages at its end, and has them redelivered if it raises.

    Args:
        consumer: receives and acknowledges them.
        messages: which; None for what it receives inside the block.
        confirm: whether the cursor has to show them at the end.
        timeout_ms: for how long.
    """

    def __init__(self, consumer: Scoped, messages: Iterable[Any] | None, *, confirm: bool, timeout_ms: int) -> None:
        self._consumer, self._confirm, self._timeout_ms = consumer, confirm, timeout_ms
        self._given = None if messages is None else list(messages)
        self._noted: list[Any] = []

    def __enter__(self) -> Self | list[Any]:
        if self._given is not None:
            return self._given
        self._noted = self._consumer.record()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        messages: list[Any] = self._consumer.end_record(self._noted) if self._given is None else self._given
        if kind is not None:
            for message in messages:
                self._consumer.negative_acknowledge(message)
            return
        self._consumer.acknowledge_many(messages)
        self._consumer.flush_acks(confirm=self._confirm, timeout_ms=self._timeout_ms)
