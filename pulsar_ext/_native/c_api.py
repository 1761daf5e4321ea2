"""Functions that the official library exports but its Python binding does not: the C API and methods of C++ classes.

A method takes the address of its C++ object. The binding itself provides it: pybind11 returns the address only to a
library that was built like the binding, and None to any other, so no invalid memory is read. Each user of this module
first checks the function on an object of known content.
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import TYPE_CHECKING, Any, Final

import _pulsar
import pulsar

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TRIED", "address_of", "exported", "unknown_layout"]

TRIED: Final = "3.13.0"
"""The newest tested pulsar-client (`make clients`); used in error messages."""
_INTERNALS: Final = re.compile(r"__pybind11_internals_v\d+_(.+)__")
_KIND: Final = b"raw_pointer_ephemeral"
_object, _pointer, _text = ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p
_new_capsule: Any = ctypes.PYFUNCTYPE(_object, _pointer, _text, _pointer)(("PyCapsule_New", ctypes.pythonapi))
_name_in: Any = ctypes.PYFUNCTYPE(_text, _object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer_in: Any = ctypes.PYFUNCTYPE(_pointer, _object, _text)(("PyCapsule_GetPointer", ctypes.pythonapi))
_interpreter: Any = ctypes.PYFUNCTYPE(_pointer)(("PyInterpreterState_Get", ctypes.pythonapi))
_state_of: Any = ctypes.PYFUNCTYPE(_pointer, _pointer)(("PyInterpreterState_GetDict", ctypes.pythonapi))


def exported(name: str, returns: Any, takes: Sequence[Any], what_for: str) -> Any:
    """Return an exported function.

    Args:
        name: the symbol's name.
        returns: the ctypes type of the result; None for `void`.
        takes: the ctypes types of the arguments.
        what_for: the purpose, for the error message, as "to set a priority level".

    Raises:
        InvalidUse: this build of the official client has no such function.
    """
    try:
        function = getattr(ctypes.CDLL(_pulsar.__file__), name)
    except (OSError, AttributeError) as error:
        raise InvalidUse(
            f"pulsar-client {pulsar.__version__} does not export a function that is needed {what_for}; use "
            f"pulsar-client {TRIED} for Linux ({error})"
        ) from None
    function.restype, function.argtypes = returns, takes
    return function


def address_of(bound: Any, what_for: str) -> int:
    """Return the address of the C++ object inside an object of the binding.

    Args:
        bound: an object whose class has the name of its C++ class.
        what_for: the purpose, for the error message.

    Raises:
        InvalidUse: this build of the official client does not provide the address.
    """
    try:
        kind, ask = _type_info(type(bound).__name__), bound._pybind11_conduit_v1_
    except (AttributeError, ValueError):
        raise unknown_layout(what_for) from None
    for build in _builds():
        capsule = ask(build, kind, _KIND)
        if capsule is not None:
            address: int = _pointer_in(capsule, _name_in(capsule))
            return address
    raise unknown_layout(what_for)


@functools.cache
def _type_info(name: str) -> Any:
    """Return the `std::type_info` of a C++ class, in the capsule that pybind11 expects."""
    symbol = f"_ZTIN6pulsar{len(name)}{name}E"
    found = ctypes.c_char.in_dll(ctypes.CDLL(_pulsar.__file__), symbol)
    return _new_capsule(ctypes.addressof(found), b"St9type_info", None)


@functools.cache
def _builds() -> tuple[bytes, ...]:
    """Return the build tag of each pybind11 in this interpreter; pybind11 stores it in the name of its internals."""
    state: dict[Any, Any] = ctypes.cast(_state_of(_interpreter()), _object).value  # a borrowed reference
    found = (_INTERNALS.fullmatch(name) for name in state if isinstance(name, str))
    return tuple(one[1].encode() for one in found if one)


def unknown_layout(what_for: str) -> InvalidUse:
    """Return the error for a build with another object layout."""
    return InvalidUse(
        f"pulsar-client {pulsar.__version__} has another object layout than {TRIED} for Linux and cannot be used "
        f"{what_for}; nothing was changed"
    )
