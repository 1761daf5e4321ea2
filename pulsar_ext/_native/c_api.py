"""Functions that the official library exports but its Python binding does not: the C API and methods of C++ classes.

A method takes the address of its C++ object. The binding itself provides it: pybind11 returns the address only to a
library that was built like the binding, and None to any other, so no invalid memory is read. Each user of this module
first checks the function on an object of known content.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from typing import Final

import _pulsar
import pulsar

from pulsar_ext.errors import InvalidUse

TRIED: Final = "3.13.0"
"""The newest tested pulsar-client (`make clients`); used in error messages."""
_INTERNALS: Final = re.compile(r"__pybind11_internals_v\d+_(.+)__")
_CONDUIT: Final = "_pybind11_conduit_v1_"
_KIND: Final = b"raw_pointer_ephemeral"
_object, _pointer, _text = ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p
_new_capsule = ctypes.PYFUNCTYPE(_object, _pointer, _text, _pointer)(("PyCapsule_New", ctypes.pythonapi))
_name_in = ctypes.PYFUNCTYPE(_text, _object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer_in = ctypes.PYFUNCTYPE(_pointer, _object, _text)(("PyCapsule_GetPointer", ctypes.pythonapi))
_interpreter = ctypes.PYFUNCTYPE(_pointer)(("PyInterpreterState_Get", ctypes.pythonapi))
_state_of = ctypes.PYFUNCTYPE(_pointer, _pointer)(("PyInterpreterState_GetDict", ctypes.pythonapi))


def exported(
    name: str, returns: type[ctypes._CDataType] | None, takes: Sequence[type[ctypes._CDataType]], what_for: str
) -> ctypes._FuncPointer:
    """Return an exported function; `what_for` is the purpose for errors, as "to set a priority level"."""
    try:
        function = ctypes.CDLL(_pulsar.__file__)[name]
    except (OSError, AttributeError) as error:
        raise InvalidUse(
            f"pulsar-client {pulsar.__version__} does not export a function that is needed {what_for}; use "
            f"pulsar-client {TRIED} for Linux ({error})"
        ) from None
    function.restype, function.argtypes = returns, takes
    return function


def address_of(bound: object, what_for: str) -> int:
    """Return the address of the C++ object in an object whose class is named like its C++ class."""
    try:
        kind, ask = _type_info(type(bound).__name__), getattr(bound, _CONDUIT)
    except (AttributeError, ValueError):
        raise unknown_layout(what_for) from None
    for build in _builds():
        capsule = ask(build, kind, _KIND)
        if capsule is not None:
            address: int = _pointer_in(capsule, _name_in(capsule))
            return address
    raise unknown_layout(what_for)


@functools.cache
def _type_info(name: str) -> object:
    """Return the `std::type_info` of a C++ class, in the capsule that pybind11 expects."""
    symbol = f"_ZTIN6pulsar{len(name)}{name}E"
    found = ctypes.c_char.in_dll(ctypes.CDLL(_pulsar.__file__), symbol)
    return _new_capsule(ctypes.addressof(found), b"St9type_info", None)


@functools.cache
def _builds() -> tuple[bytes, ...]:
    """Return the build tag of each pybind11 in this interpreter; pybind11 stores it in the name of its internals."""
    state: dict[object, object] = ctypes.cast(_state_of(_interpreter()), _object).value  # a borrowed reference
    found = (_INTERNALS.fullmatch(name) for name in state if isinstance(name, str))
    return tuple(one[1].encode() for one in found if one)


def unknown_layout(what_for: str) -> InvalidUse:
    """Return the error for a build with another object layout."""
    return InvalidUse(
        f"pulsar-client {pulsar.__version__} has another object layout than {TRIED} for Linux and cannot be used "
        f"{what_for}; nothing was changed"
    )
