"""Settings of a C++ consumer that its Python binding lacks: they are made through what the library exports besides."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, Final

import _pulsar

from .c_api import address_of, exported, unknown_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["set_priority_level", "set_subscription_properties"]

_pointer, _int, _text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_MAP = f"St3mapI{_STRING}S7_St4lessIS7_ESaISt4pairIKS7_S7_EEE"
_SET_PROPERTIES: Final = f"_ZN6pulsar21ConsumerConfiguration25setSubscriptionPropertiesERK{_MAP}"
_GET_PROPERTIES: Final = "_ZNK6pulsar21ConsumerConfiguration25getSubscriptionPropertiesB5cxx11Ev"
_WITNESS: Final = {b"a property": b"of known content", b"another": b""}
_QUEUE: Final = 4321


def set_priority_level(configuration: Any, level: int) -> None:
    """Have the broker give messages to consumers of lower levels first; 0 is the highest.

    Args:
        configuration: the C++ consumer's.
        level: 0 or more.

    Raises:
        InvalidUse: this build of the official client does not let it be set.
    """
    _known_setter()(address_of(configuration), level)


@functools.cache
def _known_setter() -> Any:
    what_for = "to set a consumer's priority level"
    prefix = "pulsar_consumer_configuration"
    setter = exported(f"{prefix}_set_priority_level", None, [_pointer, _int], what_for)
    getter = exported(f"{prefix}_get_priority_level", _int, [_pointer], what_for)
    queue = exported(f"{prefix}_get_receiver_queue_size", _int, [_pointer], what_for)
    witness = _pulsar.ConsumerConfiguration()
    witness.receiver_queue_size(_QUEUE)
    address = address_of(witness)
    if queue(address) != _QUEUE:  # asked first, for it changes nothing
        raise unknown_layout(what_for)
    setter(address, 1)
    if getter(address) != 1:
        raise unknown_layout(what_for)
    return setter


def set_subscription_properties(configuration: Any, properties: Mapping[str, str]) -> None:
    """Have a subscription carry properties, if it is the consumer that makes it.

    Args:
        configuration: the C++ consumer's.
        properties: the properties.

    Raises:
        InvalidUse: this build of the official client does not let them be set.
    """
    _known_properties().set(configuration, {name.encode(): value.encode() for name, value in properties.items()})


class _Properties:
    """The functions that it takes; a `pulsar_string_map_t` of the C API is the C++ class's own map."""

    def __init__(self) -> None:
        what_for = "to give a subscription properties"
        self._create = exported("pulsar_string_map_create", _pointer, [], what_for)
        self._put = exported("pulsar_string_map_put", None, [_pointer, _text, _text], what_for)
        self._free = exported("pulsar_string_map_free", None, [_pointer], what_for)
        self._set = exported(_SET_PROPERTIES, _pointer, [_pointer, _pointer], what_for)
        self._size = exported("pulsar_string_map_size", _int, [_pointer], what_for)
        self._value = exported("pulsar_string_map_get", _text, [_pointer, _text], what_for)
        self._get = exported(_GET_PROPERTIES, _pointer, [_pointer], what_for)
        _known_setter()  # that configurations lie where they are looked for
        witness = _pulsar.ConsumerConfiguration()
        self.set(witness, _WITNESS)
        found = self._get(address_of(witness))
        if self._size(found) != len(_WITNESS) or any(self._value(found, name) != _WITNESS[name] for name in _WITNESS):
            raise unknown_layout(what_for)

    def set(self, configuration: Any, properties: Mapping[bytes, bytes]) -> None:
        """Set them."""
        made = self._create()
        try:
            for name, value in properties.items():
                self._put(made, name, value)
            self._set(address_of(configuration), made)  # which copies them
        finally:
            self._free(made)


_known_properties = functools.cache(_Properties)
