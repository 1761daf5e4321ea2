"""Opening a C++ consumer or reader in the place of another one, for the same consumer or reader of ours."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import pulsar

from pulsar_ext._native.handles import consumers_of
from pulsar_ext._native.messages import InnerMessageId

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ConsumerFoundation", "ReaderFoundation"]


class Standing(Protocol):
    """The consumer or reader of ours."""

    inner: Any

    def stand_on(self, official: Any) -> Any:
        """Go on with the C++ object of an official consumer or reader; gives it."""
        ...


class _Foundation:
    """What both have in common.

    Args:
        handle: the consumer or reader of ours.
        client: the one that it belongs to.
        open_official: the official `subscribe()` or `create_reader()`.
        named: its arguments by name.
    """

    def __init__(
        self, handle: Standing, client: pulsar.Client, open_official: Callable[..., Any], named: dict[str, Any]
    ) -> None:
        self._handle, self._client, self._open_official, self._named = handle, client, open_official, named

    def retire(self) -> None:
        """Close the C++ object, so that another one can take its place."""
        with contextlib.suppress(pulsar.PulsarException):  # it is not used any more, whatever it says
            self._handle.inner.close()

    def have_queue(self) -> None:
        """Have the next C++ object keep a message ahead."""
        self._named["receiver_queue_size"] = 1

    def _open(self, **changed: Any) -> Any:
        official = self._open_official(**self._named | changed)
        consumers_of(self._client).remove(official)  # ours is there
        return official


class ConsumerFoundation(_Foundation):
    """The C++ consumer under a consumer: the subscription's cursor says where another one begins."""

    def open_anew(self) -> Any:
        """Open another C++ consumer, by the same name, and give it."""
        return self._handle.stand_on(self._open())


class ReaderFoundation(_Foundation):
    """The C++ reader under a reader, whose place in the topic only itself knows."""

    _next: Any = None

    def move(self, target: Any) -> None:
        """Open another C++ reader elsewhere, which takes the place of this one when it is opened anew.

        Args:
            target: a C++ id, or a publish time in milliseconds.
        """
        start = InnerMessageId.latest if isinstance(target, int) else target
        official = self._open(start_message_id=start)
        if isinstance(target, int):
            official.seek(target)
        self._next = official

    def move_before(self, inner_id: Any) -> None:
        """The same, at the entry of a C++ id, with all that is in it."""
        start = InnerMessageId(inner_id.partition(), inner_id.ledger_id(), inner_id.entry_id(), -1)
        self._next = self._open(start_message_id=start, start_message_id_inclusive=True)

    def open_anew(self) -> Any:
        """Give the C++ reader that was opened."""
        return self._handle.stand_on(self._next)
