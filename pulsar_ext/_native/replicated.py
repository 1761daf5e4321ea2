"""Which cluster a message was replicated from: the C API of the official library tells, its Python binding does not.

A `pulsar_message_t` of the C API is a builder and a message, each one shared pointer. The message's is copied into one,
without a share in it: the C++ object belongs to the Python one, which outlives the call. One that the library makes
itself shows that it is laid out so: it has a builder, and no message yet.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, Final

import _pulsar

from .c_api import address_of, exported, unknown_layout

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["known_reader", "replicated_from"]

_SharedPointer = ctypes.c_void_p * 2
_WITNESS: Final = "a key to see that objects lie where they are looked for"
_WHAT_FOR: Final = "where the message was replicated from. Ask PulsarAdmin.entry(…).replicated_from"


class _CMessage(ctypes.Structure):
    _fields_ = (("builder", _SharedPointer), ("message", _SharedPointer))


def replicated_from(inner: _pulsar.Message) -> str | None:
    """Give the name of the cluster that a C++ message came from by replication; None if it was sent where it is.

    Raises:
        InvalidUse: this build of the official client does not let it be seen.
    """
    return _ask(known_reader(), inner)


@functools.cache
def known_reader() -> Any:
    """Return what reads it, once it is proved on messages of known content that they are read as they are laid out."""
    reads, key_of = (
        exported(f"pulsar_message_get_{name}", ctypes.c_char_p, [ctypes.c_void_p], _WHAT_FOR)
        for name in ("replicated_from", "partitionKey")
    )
    builder = _pulsar.MessageBuilder()
    builder.partition_key(_WITNESS)
    if not _is_laid_out_so() or _ask(key_of, builder.build()) != _WITNESS:
        raise unknown_layout(_WHAT_FOR)
    return reads


def _is_laid_out_so() -> bool:
    made = exported("pulsar_message_create", ctypes.c_void_p, [], _WHAT_FOR)()
    found = _CMessage.from_address(made)
    result = all(found.builder) and not any(found.message)
    exported("pulsar_message_free", None, [ctypes.c_void_p], _WHAT_FOR)(made)
    return result


def _ask(function: Callable[[Any], bytes | None], inner: _pulsar.Message) -> str | None:
    asked = _CMessage(message=_SharedPointer.from_address(address_of(inner, _WHAT_FOR)))
    text = function(ctypes.byref(asked))
    return text.decode() if text is not None else None
