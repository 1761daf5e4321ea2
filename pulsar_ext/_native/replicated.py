"""The cluster that a message was replicated from: the C API of the official library has it, its binding does not.

A `pulsar_message_t` of the C API is a builder and a message, one shared pointer each. The message's pointer is copied
into one without a reference count: the Python object owns the C++ object and outlives the call. A message that the
library itself creates shows if this layout is right: it has a builder and no message yet.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Final

import _pulsar

from .c_api import address_of, exported, unknown_layout

_SharedPointer = ctypes.c_void_p * 2
_WITNESS: Final = "a key to check the object layout"
_WHAT_FOR: Final = "to read a message's replicated_from (PulsarAdmin.entry(…).replicated_from has it)"


class _CMessage(ctypes.Structure):
    _fields_ = (("builder", _SharedPointer), ("message", _SharedPointer))


def replicated_from(inner: _pulsar.Message) -> str | None:
    """Return the cluster that a C++ message was replicated from, or None; raise `InvalidUse` with other builds."""
    return _ask(replicated_from_reader(), inner)


@functools.cache
def replicated_from_reader() -> Callable[[object], bytes | None]:
    """Return the C function that reads the cluster, checked on messages of known content."""
    reads, key_of = (
        exported(f"pulsar_message_get_{name}", ctypes.c_char_p, [ctypes.c_void_p], _WHAT_FOR)
        for name in ("replicated_from", "partitionKey")
    )
    builder = _pulsar.MessageBuilder()
    builder.partition_key(_WITNESS)
    if not _has_known_layout() or _ask(key_of, builder.build()) != _WITNESS:
        raise unknown_layout(_WHAT_FOR)
    return reads


def _has_known_layout() -> bool:
    made = exported("pulsar_message_create", ctypes.c_void_p, [], _WHAT_FOR)()
    found = _CMessage.from_address(made)
    result = all(found.builder) and not any(found.message)
    exported("pulsar_message_free", None, [ctypes.c_void_p], _WHAT_FOR)(made)
    return result


def _ask(function: Callable[[object], bytes | None], inner: _pulsar.Message) -> str | None:
    asked = _CMessage(message=_SharedPointer.from_address(address_of(inner, _WHAT_FOR)))
    text = function(ctypes.byref(asked))
    return text.decode() if text is not None else None
