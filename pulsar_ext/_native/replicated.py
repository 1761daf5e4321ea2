"""Which cluster a message was replicated from: the C API of the official library tells, its Python binding does not.

A `pulsar_message_t` of the C API is a builder and a message, each one shared pointer. The message's is copied into one,
without a share in it: the C++ object belongs to the Python one, which outlives the call.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, Final

import _pulsar
import pulsar

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["replicated_from"]

_SEEN_IN: Final = "3.13."
_SharedPointer = ctypes.c_void_p * 2
_HEADER_BYTES: Final = object.__basicsize__
_WITNESS: Final = "a key to see that objects lie where they are looked for"


class _CMessage(ctypes.Structure):
    _fields_ = (("builder", _SharedPointer), ("message", _SharedPointer))


def replicated_from(inner: _pulsar.Message) -> str | None:
    """Give the name of the cluster that a C++ message came from by replication; None if it was sent where it is.

    Raises:
        InvalidUse: this build of the official client does not let it be seen.
    """
    return _ask(_library().pulsar_message_get_replicated_from, inner)


@functools.cache
def _library() -> Any:
    """Load what is loaded already, and prove on a message of known content that it is read as it is laid out."""
    if not pulsar.__version__.startswith(_SEEN_IN):  # what lies elsewhere may not even be memory
        raise _unknown_layout()
    try:
        library = ctypes.CDLL(_pulsar.__file__)
        for function in (library.pulsar_message_get_replicated_from, library.pulsar_message_get_partitionKey):
            function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_char_p
    except (OSError, AttributeError) as error:
        raise InvalidUse(
            f"this build of the official client has no C API to ask where a message was replicated from ({error}). "
            "Ask PulsarAdmin.entry(…).replicated_from"
        ) from None
    builder = _pulsar.MessageBuilder()
    builder.partition_key(_WITNESS)
    if _ask(library.pulsar_message_get_partitionKey, builder.build()) != _WITNESS:
        raise _unknown_layout()
    return library


def _unknown_layout() -> InvalidUse:
    return InvalidUse(
        f"pulsar-client {pulsar.__version__} lays its messages out in another way than 3.13.0, or may: it was not "
        "asked where the message was replicated from. Ask PulsarAdmin.entry(…).replicated_from"
    )


def _ask(function: Callable[[Any], bytes | None], inner: _pulsar.Message) -> str | None:
    # pybind11 keeps the address of the C++ object right behind the header of the Python object.
    address = ctypes.c_void_p.from_address(id(inner) + _HEADER_BYTES).value
    if not address:
        return None
    asked = _CMessage(message=_SharedPointer.from_address(address))
    text = function(ctypes.byref(asked))
    return text.decode() if text is not None else None
