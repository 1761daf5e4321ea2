"""Takes messages from a reader, a block at a time."""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from pulsar_ext._native.results import Timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from .message_block import MessageBlock

__all__ = ["BlockTaker"]

_FIRST_MILLIS = 200
_NEXT_MILLIS = 10
"""How long to wait for the first message of a block, and for each further one, which delays those before it."""
_FIRST_BLOCK = 64
_GROWTH = 4


class BlockTaker:
    """Takes messages from a reader, as many at once as a block may have.

    Args:
        max_rows: the most messages of a block.
        max_bytes: the most bytes of payload, by what the messages before it had.
        bytes_per_message: an estimate for the first block.
    """

    def __init__(self, max_rows: int, max_bytes: int, bytes_per_message: int) -> None:
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._rows = min(max_rows, _FIRST_BLOCK, max(max_bytes // bytes_per_message, 1))

    def take(self, read_next: Callable[[int], Any]) -> list[Any]:
        """Give the messages of a block, at least one; an empty list if no message came within 200 ms."""
        inners: list[Any] = []
        try:
            inners.append(read_next(_FIRST_MILLIS))
            # `extend` keeps what came before a timeout.
            inners.extend(islice(map(read_next, repeat(_NEXT_MILLIS)), self._rows - 1))
        except Timeout:
            pass
        return inners

    def adapt(self, block: MessageBlock) -> None:
        """Size the next block by the payloads of this one."""
        bytes_per_message = block.payload_bytes // len(block) or 1
        fits = max(self._max_bytes // bytes_per_message, 1)
        # Growth is limited, because one block of small messages says little about the next one.
        self._rows = min(self._max_rows, fits, self._rows * _GROWTH)
