"""The index of a received message: the official library exports the C++ method, its binding does not.

It is called with the address of the C++ message. A message that the binding builds shows if this is right: its length
is known, and it has no index.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Final

import _pulsar

from .c_api import address_of, exported, unknown_layout

if TYPE_CHECKING:
    from collections.abc import Callable

_LENGTH: Final = "9getLength"
_WITNESS: Final = b"content of known length"
_WHAT_FOR: Final = "to read a message's index (PulsarAdmin.entry(…).index has that of its entry's last message)"


def index_of(inner: _pulsar.Message) -> int | None:
    """Return the index of a C++ message, or None without one; raise `InvalidUse` with other builds."""
    index = index_reader()(address_of(inner, _WHAT_FOR))
    return index if index >= 0 else None


@functools.cache
def index_reader() -> Callable[[int], int]:
    """Return the C++ method that reads the index, checked on a message of known content."""
    length, index = (
        exported(f"_ZNK6pulsar7Message{method}Ev", returns, [ctypes.c_void_p], _WHAT_FOR)
        for method, returns in ((_LENGTH, ctypes.c_size_t), ("8getIndex", ctypes.c_int64))
    )
    builder = _pulsar.MessageBuilder()
    builder.content(_WITNESS)
    witness = builder.build()
    address = address_of(witness, _WHAT_FOR)
    if length(address) != len(_WITNESS) or index(address) != -1:
        raise unknown_layout(_WHAT_FOR)
    return index
