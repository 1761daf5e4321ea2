"""What the official library exports and its Python binding does not show: the C API, and methods of C++ classes.

A method gets the address of its object, which the binding itself says: pybind11 answers any library that is built as
the binding is, however it lays its objects out, and answers None to all others. Nothing is read where it may not be
memory. Each user proves on an object of known content that what it calls does what its name says.
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
"""The newest pulsar-client that all of this library was tried with, for errors only: `make clients`."""
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
        name: as the linker knows it.
        returns: its ctypes type; None for nothing.
        takes: the ctypes types of its arguments.
        what_for: what is not possible without it, for the error.

    Raises:
        InvalidUse: this build of the official client has no such function.
    """
    try:
        function = getattr(ctypes.CDLL(_pulsar.__file__), name)
    except (OSError, AttributeError) as error:
        raise InvalidUse(
            f"this build of pulsar-client {pulsar.__version__} does not export what it takes {what_for}; {TRIED} for "
            f"Linux does ({error})"
        ) from None
    function.restype, function.argtypes = returns, takes
    return function


def address_of(bound: Any, what_for: str) -> int:
    """Return the address of the C++ object inside an object of the binding.

    Args:
        bound: an object of a class that has its C++ class's name.
        what_for: what is not possible without it, for the error.

    Raises:
        InvalidUse: this build of the official client does not say it.
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
    """Return the `std::type_info` of a class of the C++ client, in the capsule that pybind11 takes it in."""
    symbol = f"_ZTIN6pulsar{len(name)}{name}E"
    found = ctypes.c_char.in_dll(ctypes.CDLL(_pulsar.__file__), symbol)
    return _new_capsule(ctypes.addressof(found), b"St9type_info", None)


@functools.cache
def _builds() -> tuple[bytes, ...]:
    """Return how each pybind11 of this interpreter was built, which is part of the name of what it keeps there."""
    state: dict[Any, Any] = ctypes.cast(_state_of(_interpreter()), _object).value  # a borrowed reference
    found = (_INTERNALS.fullmatch(name) for name in state if isinstance(name, str))
    return tuple(one[1].encode() for one in found if one)


def unknown_layout(what_for: str) -> InvalidUse:
    """Return the error for a build whose objects are not what they are taken for."""
    return InvalidUse(
        f"this build of pulsar-client {pulsar.__version__} keeps its C++ objects in another way than {TRIED} for "
        f"Linux, which works: it was not asked {what_for}"
    )
