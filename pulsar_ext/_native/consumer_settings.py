"""Settings of a C++ consumer that only the exported C and C++ functions can set, not the Python binding."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, Final

import _pulsar

from .c_api import address_of, exported, unknown_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "priority_level_setter",
    "set_priority_level",
    "set_subscription_properties",
    "subscription_properties_setter",
]

_pointer, _int, _text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_CLASS: Final = "N6pulsar21ConsumerConfiguration"
_STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_MAP = f"St3mapI{_STRING}S7_St4lessIS7_ESaISt4pairIKS7_S7_EEE"
_WITNESS: Final = {b"a property": b"of known content", b"another": b""}
_QUEUE: Final = 4321
_FOR_LEVEL: Final = "to set a consumer's priority level"
_FOR_PROPERTIES: Final = "to set subscription properties"


def set_priority_level(configuration: Any, level: int) -> None:
    """Set a consumer's priority level: the broker dispatches to lower levels first; 0 is the highest priority.

    Args:
        configuration: the C++ consumer configuration.
        level: 0 or more.

    Raises:
        InvalidUse: this build of the official client does not allow it.
    """
    priority_level_setter()(address_of(configuration, _FOR_LEVEL), level)


@functools.cache
def priority_level_setter() -> Any:
    """Return the C++ setter of the priority level, checked on a configuration of known content."""
    setter = exported(f"_Z{_CLASS}16setPriorityLevelEi", None, [_pointer, _int], _FOR_LEVEL)
    getter, queue = (
        exported(f"_ZNK{_CLASS[1:]}{method}Ev", _int, [_pointer], _FOR_LEVEL)
        for method in ("16getPriorityLevel", "20getReceiverQueueSize")
    )
    witness = _pulsar.ConsumerConfiguration()
    witness.receiver_queue_size(_QUEUE)
    address = address_of(witness, _FOR_LEVEL)
    if queue(address) != _QUEUE:  # read first: reading changes nothing
        raise unknown_layout(_FOR_LEVEL)
    setter(address, 1)
    if getter(address) != 1:
        raise unknown_layout(_FOR_LEVEL)
    return setter


def set_subscription_properties(configuration: Any, properties: Mapping[str, str]) -> None:
    """Set the properties of the subscription, used if this consumer creates it.

    Args:
        configuration: the C++ consumer configuration.
        properties: the subscription properties.

    Raises:
        InvalidUse: this build of the official client does not allow it.
    """
    subscription_properties_setter().set(
        configuration, {name.encode(): value.encode() for name, value in properties.items()}
    )


class _Properties:
    """Functions that set subscription properties; a `pulsar_string_map_t` of the C API is a `std::map`."""

    def __init__(self) -> None:
        self._create = exported("pulsar_string_map_create", _pointer, [], _FOR_PROPERTIES)
        self._put = exported("pulsar_string_map_put", None, [_pointer, _text, _text], _FOR_PROPERTIES)
        self._free = exported("pulsar_string_map_free", None, [_pointer], _FOR_PROPERTIES)
        setter = f"_Z{_CLASS}25setSubscriptionPropertiesERK{_MAP}"
        self._set = exported(setter, _pointer, [_pointer, _pointer], _FOR_PROPERTIES)
        size = exported("pulsar_string_map_size", _int, [_pointer], _FOR_PROPERTIES)
        value = exported("pulsar_string_map_get", _text, [_pointer, _text], _FOR_PROPERTIES)
        getter = f"_ZNK{_CLASS[1:]}25getSubscriptionPropertiesB5cxx11Ev"
        get = exported(getter, _pointer, [_pointer], _FOR_PROPERTIES)
        witness = _pulsar.ConsumerConfiguration()
        self.set(witness, _WITNESS)
        found = get(address_of(witness, _FOR_PROPERTIES))
        if size(found) != len(_WITNESS) or any(value(found, name) != _WITNESS[name] for name in _WITNESS):
            raise unknown_layout(_FOR_PROPERTIES)

    def set(self, configuration: Any, properties: Mapping[bytes, bytes]) -> None:
        """Set the properties of a C++ consumer configuration."""
        made = self._create()
        try:
            if not _is_empty_map(made):
                raise unknown_layout(_FOR_PROPERTIES)
            for name, value in properties.items():
                self._put(made, name, value)
            self._set(address_of(configuration, _FOR_PROPERTIES), made)  # copies the map
        finally:
            self._free(made)


subscription_properties_setter = functools.cache(_Properties)


def _is_empty_map(address: int) -> bool:
    """Return if the memory at `address` is an empty `std::map`: no root, its header as first and last, size 0."""
    _, _, root, first, last, items = (_pointer * 6).from_address(address)
    return (root, first, last, items) == (None, address + 8, address + 8, None)
