"""A sender around another one, which changes some of what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sender import Sender

__all__ = ["WrappingSender"]


class WrappingSender:
    """Has everything of another sender, such as its topic and its last sequence ids.

    Args:
        sender: the other one.
    """

    many_in_flight: int | None

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.context, self.many_in_flight = sender.context, sender.many_in_flight

    def __getattr__(self, name: str) -> Any:
        """Give what is not another here."""
        return getattr(self._sender, name)
