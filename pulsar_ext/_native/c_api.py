"""What the official library exports and its Python binding does not show: the C API, and methods of C++ classes.

The binding keeps the address of a C++ object right behind the header of the Python object, and most structures of the C
API are such an object, or pointers to one. Whoever calls one proves first, on an object of known content, that it is
laid out so.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

import _pulsar
import pulsar

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["address_of", "exported", "unknown_layout"]

_SEEN_IN: Final = "3.13."
_HEADER_BYTES: Final = object.__basicsize__


def exported(name: str, returns: Any, takes: Sequence[Any], what_for: str) -> Any:
    """Give an exported function.

    Args:
        name: as the linker knows it.
        returns: its ctypes type; None for nothing.
        takes: the ctypes types of its arguments.
        what_for: what is not possible without it, for the error.

    Raises:
        InvalidUse: this build of the official client has no such function, or may lay its objects out otherwise.
    """
    if not pulsar.__version__.startswith(_SEEN_IN):  # what lies elsewhere may not even be memory
        raise unknown_layout(what_for)
    try:
        function = getattr(ctypes.CDLL(_pulsar.__file__), name)
    except (OSError, AttributeError) as error:
        raise InvalidUse(
            f"this build of the official client does not export what it takes {what_for} ({error})"
        ) from None
    function.restype, function.argtypes = returns, takes
    return function


def address_of(bound: Any) -> int | None:
    """Give the address of the C++ object inside an object of the binding."""
    return ctypes.c_void_p.from_address(id(bound) + _HEADER_BYTES).value


def unknown_layout(what_for: str) -> InvalidUse:
    """Give the error for a build whose objects are not known to lie as they are looked for."""
    return InvalidUse(
        f"pulsar-client {pulsar.__version__} lays its objects out in another way than 3.13.0, or may: it was not asked "
        f"{what_for}"
    )
