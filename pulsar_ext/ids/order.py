"""The order of message ids: as Java orders them, by ledger, entry, partition and batch index."""

from __future__ import annotations

from pulsar_ext._native.messages import inner_id_of

__all__ = ["JavaOrder", "OrderKey", "order_key_of"]

OrderKey = tuple[int, int, int, int]
"""Ledger, entry, partition and batch index."""


class JavaOrder:
    """What compares by `order_key()`: with its like, and with ids of the official client and of C++."""

    __slots__ = ()

    def order_key(self) -> OrderKey:
        """Give ledger, entry, partition and batch index."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        key = order_key_of(other)
        return NotImplemented if key is None else self.order_key() == key

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __lt__(self, other: object) -> bool:
        key = order_key_of(other)
        return NotImplemented if key is None else self.order_key() < key

    def __le__(self, other: object) -> bool:
        key = order_key_of(other)
        return NotImplemented if key is None else self.order_key() <= key

    def __gt__(self, other: object) -> bool:
        key = order_key_of(other)
        return NotImplemented if key is None else self.order_key() > key

    def __ge__(self, other: object) -> bool:
        key = order_key_of(other)
        return NotImplemented if key is None else self.order_key() >= key

    def __hash__(self) -> int:
        return hash(self.order_key())


def order_key_of(other: object) -> OrderKey | None:
    """Give the key of any id; None of what is not an id."""
    if isinstance(other, JavaOrder):
        return other.order_key()
    inner = inner_id_of(other)
    return None if inner is None else (inner.ledger_id(), inner.entry_id(), inner.partition(), inner.batch_index())
