"""A block that acknowledges its messages whole at its end, or has them redelivered whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["AckScope", "ScopeCore", "ScopedConsumer"]


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
