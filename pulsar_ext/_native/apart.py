"""Opening consumers and readers as the official client does, without its knowing them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .handles import ClientDoor

__all__ = ["opens_apart"]


class _Stand:
    """Stands where an official method expects a client.

    Args:
        inner: the C++ client.
    """

    def __init__(self, inner: Any) -> None:
        self._client = inner
        self._consumers: deque[Any] = deque(maxlen=0)  # keeps nothing


def opens_apart(method: Callable[..., Any], client: ClientDoor) -> Callable[..., Any]:
    """Give an official method that opens something, with its arguments by name.

    The official client keeps all that it opens, and what a Ctrl-C kept from whoever called it would stay open there.
    """
    return lambda **named: method(_Stand(client.inner), **named)
