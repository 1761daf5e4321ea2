"""Taking messages from a reader, as many at once as the bounds of a block allow."""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from pulsar_ext._native.results import Timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from .message_block import Block

__all__ = ["BlockTaker"]

_FIRST_MILLIS = 200
_NEXT_MILLIS = 10
"""How long the first message of a block may take, and each further one: what came before is not held back."""
_FIRST_BLOCK = 64


class BlockTaker:
    """Takes messages from a reader, as many at once as bounds allow.

    Args:
        rows: the most messages.
        size: the most bytes.
        weight: what one message may weigh, before any is known.
    """

    def __init__(self, rows: int, size: int, weight: int) -> None:
        self._rows, self._bytes = rows, size
        self._at_once = min(rows, _FIRST_BLOCK, max(size // weight, 1))

    def __call__(self, read_next: Callable[[int], Any]) -> list[Any]:
        """Give up to a block of messages; none if nothing came within 200 ms."""
        inners: list[Any] = []
        try:
            inners.append(read_next(_FIRST_MILLIS))
            # Straight into the list: a wait that ends in a timeout loses nothing of what came before.
            inners.extend(islice(map(read_next, repeat(_NEXT_MILLIS)), self._at_once - 1))
        except Timeout:
            pass
        return inners

    def learn(self, block: Block) -> None:
        """Let the next block be as large as the bounds allow by what this one weighed."""
        weight = block.weight // len(block) or 1
        fits = max(self._bytes // weight, 1)
        # Not much more at once: one light block says little about the next.
        self._at_once = min(self._rows, fits, self._at_once * 4)
