"""Which messages a reader of a group has handed out, in a few megabytes (pure).

The broker delivers again what it does not know to be acknowledged: after a lost connection the last of it, after a
crash up to all that is behind its cursor, which the slowest reader of the group holds up. Messages with different keys
come in no order, so that one position would not do. One bit for each entry of the topic does: a million entries take
125 KB. Of batches that are not handed out whole the messages are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

__all__ = ["HandedOut"]

_SHIFT: Final = 15
"""A block has the bits of 32,768 neighbouring entries of one ledger."""
_BLOCK_BYTES: Final = 256
"""What a block takes besides its bits."""
_MOST_BYTES: Final = 4 << 20
_MOST_BEGUN: Final = 4_000
"""How many batches are remembered that were not handed out whole: one or so a partition, and what a start cuts."""

_Entry = tuple[int, int, int]
"""Partition, ledger and entry."""


class HandedOut:
    """What was handed out, as far back as the memory goes.

    Args:
        most_bytes: how much it may take; what was noted longest ago is forgotten.
        most_begun: how many batches it remembers of which some messages were handed out.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES, most_begun: int = _MOST_BEGUN) -> None:
        self._most_bytes, self._most_begun = most_bytes, most_begun
        self._blocks: OrderedDict[_Entry, bytearray] = OrderedDict()
        self._begun: dict[_Entry, int] = {}
        self._bytes = 0

    @property
    def size(self) -> tuple[int, int]:
        """Give how many bytes the bits of entries take, and how many batches are begun."""
        return self._bytes, len(self._begun)

    def has(self, entry: _Entry, index: int) -> bool:
        """Whether a message was noted: of a batch the one with that index, else it is -1."""
        return self._has_whole(entry) or (index >= 0 and bool(self._begun.get(entry, 0) >> index & 1))

    def note(self, entry: _Entry, index: int, size: int) -> None:
        """Note a message; noting it again changes nothing.

        Args:
            entry: its partition, ledger and entry.
            index: its place in its batch, -1 if it came alone.
            size: how many messages the batch has; 0 if that is not known.
        """
        if self._has_whole(entry):
            return
        if index >= 0:
            bits = self._begun.get(entry, 0) | 1 << index
            if bits != (1 << size) - 1:
                self._begun[entry] = bits
                if len(self._begun) > self._most_begun:
                    del self._begun[next(iter(self._begun))]
                return
        self._note_whole(entry)
        self._begun.pop(entry, None)

    def _has_whole(self, entry: _Entry) -> bool:
        partition, ledger_id, entry_id = entry
        block = self._blocks.get((partition, ledger_id, entry_id >> _SHIFT), b"")
        byte = (entry_id & (1 << _SHIFT) - 1) >> 3
        return byte < len(block) and bool(block[byte] >> (entry_id & 7) & 1)

    def _note_whole(self, entry: _Entry) -> None:
        partition, ledger_id, entry_id = entry
        key, byte = (partition, ledger_id, entry_id >> _SHIFT), (entry_id & (1 << _SHIFT) - 1) >> 3
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = bytearray()
            self._bytes += _BLOCK_BYTES
        else:
            self._blocks.move_to_end(key)
        more = byte + 1 - len(block)
        if more > 0:
            block.extend(bytes(more))
            self._bytes += more
        block[byte] |= 1 << (entry_id & 7)
        while self._bytes > self._most_bytes and len(self._blocks) > 1:
            _, forgotten = self._blocks.popitem(last=False)
            self._bytes -= _BLOCK_BYTES + len(forgotten)
