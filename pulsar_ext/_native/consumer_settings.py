"""Settings of a C++ consumer that only the exported C and C++ functions can set, not the Python binding.

Each function that returns a setter checks it first, on a configuration of known content; it raises `InvalidUse` if this
build of the official client does not allow the setting.

A C++ listener of the active consumer is an object with a table of methods; the shared pointer that a consumer gets need
not own it. The table is built once, of two functions. Each listener is two words: the table's address and the
listener's number.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from _pulsar import ConsumerConfiguration

from .c_api import address_of, exported, unknown_layout
from .thread_state import keep_thread_state

_pointer, _int, _bool, _text = ctypes.c_void_p, ctypes.c_int, ctypes.c_bool, ctypes.c_char_p
_CLASS: Final = "N6pulsar21ConsumerConfiguration"
_STRING: Final = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_MAP: Final = f"St3mapI{_STRING}S7_St4lessIS7_ESaISt4pairIKS7_S7_EEE"
_WITNESS: Final = {b"a property": b"of known content", b"another": b""}
_QUEUE: Final = 4321
_FOR_LEVEL: Final = "to set a consumer's priority level"
_FOR_PROPERTIES: Final = "to set subscription properties"
_FOR_EVENTS: Final = "to notify of the active consumer"
_IS_SET: Final = f"_ZNK{_CLASS[1:]}24hasConsumerEventListenerEv"
_METHOD: Final = ctypes.CFUNCTYPE(None, _pointer, _pointer, _int)


def set_priority_level(configuration: ConsumerConfiguration, level: int) -> None:
    """Set a consumer's priority level: the broker dispatches to lower levels first; 0 is the highest priority."""
    priority_level_setter()(address_of(configuration, _FOR_LEVEL), level)


@functools.cache
def priority_level_setter() -> Callable[[int, int], object]:
    setter = exported(f"_Z{_CLASS}16setPriorityLevelEi", None, [_pointer, _int], _FOR_LEVEL)
    getter, queue = (
        exported(f"_ZNK{_CLASS[1:]}{method}Ev", _int, [_pointer], _FOR_LEVEL)
        for method in ("16getPriorityLevel", "20getReceiverQueueSize")
    )
    witness = ConsumerConfiguration()
    witness.receiver_queue_size(_QUEUE)
    address = address_of(witness, _FOR_LEVEL)
    if queue(address) != _QUEUE:  # read first: reading changes nothing
        raise unknown_layout(_FOR_LEVEL)
    setter(address, 1)
    if getter(address) != 1:
        raise unknown_layout(_FOR_LEVEL)
    return setter


def set_subscription_properties(configuration: ConsumerConfiguration, properties: Mapping[str, str]) -> None:
    """Set the properties of the subscription, used if this consumer creates it."""
    encoded = {name.encode(): value.encode() for name, value in properties.items()}
    subscription_properties_setter()(configuration, encoded)


@functools.cache
def subscription_properties_setter() -> Callable[[ConsumerConfiguration, Mapping[bytes, bytes]], None]:
    """Return a function that sets subscription properties; a `pulsar_string_map_t` of the C API is a `std::map`."""
    create = exported("pulsar_string_map_create", _pointer, [], _FOR_PROPERTIES)
    put = exported("pulsar_string_map_put", None, [_pointer, _text, _text], _FOR_PROPERTIES)
    free = exported("pulsar_string_map_free", None, [_pointer], _FOR_PROPERTIES)
    setter = exported(f"_Z{_CLASS}25setSubscriptionPropertiesERK{_MAP}", _pointer, [_pointer] * 2, _FOR_PROPERTIES)
    size = exported("pulsar_string_map_size", _int, [_pointer], _FOR_PROPERTIES)
    value = exported("pulsar_string_map_get", _text, [_pointer, _text], _FOR_PROPERTIES)
    getter = f"_ZNK{_CLASS[1:]}25getSubscriptionPropertiesB5cxx11Ev"
    get = exported(getter, _pointer, [_pointer], _FOR_PROPERTIES)

    def set_on(configuration: ConsumerConfiguration, properties: Mapping[bytes, bytes]) -> None:
        made = create()
        try:
            if not _is_empty_map(made):
                raise unknown_layout(_FOR_PROPERTIES)
            for name, text in properties.items():
                put(made, name, text)
            setter(address_of(configuration, _FOR_PROPERTIES), made)  # copies the map
        finally:
            free(made)

    witness = ConsumerConfiguration()
    set_on(witness, _WITNESS)
    found = get(address_of(witness, _FOR_PROPERTIES))
    if size(found) != len(_WITNESS) or any(value(found, name) != _WITNESS[name] for name in _WITNESS):
        raise unknown_layout(_FOR_PROPERTIES)
    return set_on


def _is_empty_map(address: int) -> bool:
    """Return if the memory at `address` is an empty `std::map`: no root, its header as first and last, size 0."""
    _, _, root, first, last, items = (_pointer * 6).from_address(address)
    return (root, first, last, items) == (None, address + 8, address + 8, None)


class ActiveListener(Protocol):
    """Notified whether a consumer is active on a partition (-1: not partitioned) of a Failover subscription."""

    def on_active(self, partition: int, active: bool, /) -> object: ...  # must not raise


_numbers = itertools.count(1)
_listeners: weakref.WeakValueDictionary[int, ActiveListener] = weakref.WeakValueDictionary()
_native_listeners: list[ctypes.Array[ctypes.c_void_p]] = []
"""All C++ listeners, 16 bytes each, kept forever: C++ does not report when the last consumer releases one."""


def set_event_listener(configuration: ConsumerConfiguration, active_listener: ActiveListener) -> None:
    """Notify a listener, kept weakly, on a thread of the C++ client when the consumer becomes active or inactive."""
    setter = event_listener_setter()
    number = next(_numbers)
    _listeners[number] = active_listener
    _set_listener(setter, configuration, number)


@functools.cache
def event_listener_setter() -> Callable[[int, int], object]:
    """Return the C++ setter of a listener, checked on a configuration without one."""
    name = f"_Z{_CLASS}24setConsumerEventListenerESt10shared_ptrINS_21ConsumerEventListenerEE"
    setter = exported(name, _pointer, [_pointer, _pointer], _FOR_EVENTS)
    is_set = exported(_IS_SET, _bool, [_pointer], _FOR_EVENTS)
    witness = ConsumerConfiguration()
    address = address_of(witness, _FOR_EVENTS)
    before = is_set(address)
    _set_listener(setter, witness, 0)
    if before or not is_set(address):
        raise unknown_layout(_FOR_EVENTS)
    return setter


def _set_listener(setter: Callable[[int, int], object], configuration: ConsumerConfiguration, number: int) -> None:
    """Set the C++ listener with a number; number 0 notifies no one."""
    listener = (_pointer * 2)(ctypes.addressof(_table()) + 2 * ctypes.sizeof(_pointer), number)
    _native_listeners.append(listener)
    unowned = (_pointer * 2)(ctypes.addressof(listener), None)
    setter(address_of(configuration, _FOR_EVENTS), ctypes.addressof(unowned))


@functools.cache
def _table() -> ctypes.Array[ctypes.c_void_p]:
    """Return the table of methods: two unused words, two destructors that are never called, and the two methods."""
    return (_pointer * 6)(None, None, None, None, *(ctypes.cast(method, _pointer) for method in _methods()))


@functools.cache  # they must live as long as the table
def _methods() -> list[ctypes._FuncPointer]:
    return [_METHOD(functools.partial(_on_event, active)) for active in (True, False)]


def _on_event(active: bool, listener: int, _consumer: int, partition: int) -> None:
    keep_thread_state()
    active_listener = _listeners.get((_pointer * 2).from_address(listener)[1] or 0)
    if active_listener is not None:
        active_listener.on_active(partition, active)
