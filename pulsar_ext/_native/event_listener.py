"""Notifications of the active consumer of a Failover subscription, which the C++ client has and its binding lacks.

A C++ listener is an object with a table of methods; the shared pointer that a consumer gets need not own it. The table
is built once, of two functions. Each listener is two words: the table's address and the listener's number.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import weakref
from typing import Any, Final, Protocol

import _pulsar

from .c_api import address_of, exported, unknown_layout
from .thread_state import keep_thread_state

__all__ = ["ActiveListener", "event_listener_setter", "set_event_listener"]

_pointer = ctypes.c_void_p
_SETTER: Final = (
    "_ZN6pulsar21ConsumerConfiguration24setConsumerEventListenerESt10shared_ptrINS_21ConsumerEventListenerEE"
)
_IS_SET: Final = "_ZNK6pulsar21ConsumerConfiguration24hasConsumerEventListenerEv"
_WHAT_FOR: Final = "to notify of the active consumer"
_METHOD: Final = ctypes.CFUNCTYPE(None, _pointer, _pointer, ctypes.c_int)


class ActiveListener(Protocol):
    """Listener for changes of the active consumer."""

    def on_active(self, partition: int, active: bool, /) -> object:
        """Note whether the consumer is active on a partition (-1: not partitioned); must not raise."""
        ...


_numbers = itertools.count(1)
_listeners: weakref.WeakValueDictionary[int, ActiveListener] = weakref.WeakValueDictionary()
_native_listeners: list[ctypes.Array[Any]] = []
"""All C++ listeners, 16 bytes each, kept forever: C++ does not report when the last consumer releases one."""


def set_event_listener(configuration: Any, active_listener: ActiveListener) -> None:
    """Notify a listener, on a thread of the C++ client, when the consumer becomes active or inactive.

    Args:
        configuration: the C++ consumer configuration.
        active_listener: kept by a weak reference.

    Raises:
        InvalidUse: this build of the official client does not allow it.
    """
    setter = event_listener_setter()
    number = next(_numbers)
    _listeners[number] = active_listener
    _set_listener(setter, configuration, number)


@functools.cache
def event_listener_setter() -> Any:
    """Return the C++ setter of a listener, checked on a configuration without one."""
    setter = exported(_SETTER, _pointer, [_pointer, _pointer], _WHAT_FOR)
    is_set = exported(_IS_SET, ctypes.c_bool, [_pointer], _WHAT_FOR)
    witness = _pulsar.ConsumerConfiguration()
    address = address_of(witness, _WHAT_FOR)
    before = is_set(address)
    _set_listener(setter, witness, 0)
    if before or not is_set(address):
        raise unknown_layout(_WHAT_FOR)
    return setter


def _set_listener(setter: Any, configuration: Any, number: int) -> None:
    """Set the C++ listener with a number; number 0 notifies no one."""
    listener = (_pointer * 2)(ctypes.addressof(_table()) + 2 * ctypes.sizeof(_pointer), number)
    _native_listeners.append(listener)
    unowned = (_pointer * 2)(ctypes.addressof(listener), None)
    setter(address_of(configuration, _WHAT_FOR), ctypes.addressof(unowned))


@functools.cache
def _table() -> ctypes.Array[Any]:
    """Return the table of methods: two unused words, two destructors that are never called, and the two methods."""
    methods = [_METHOD(functools.partial(_on_event, active)) for active in (True, False)]
    table = (_pointer * 6)(None, None, None, None, *(ctypes.cast(method, _pointer) for method in methods))
    table.methods = methods  # type: ignore[attr-defined]  # must live as long as the table
    return table


def _on_event(active: bool, listener: int, _consumer: int, partition: int) -> None:
    keep_thread_state()
    active_listener = _listeners.get((_pointer * 2).from_address(listener)[1] or 0)
    if active_listener is not None:
        active_listener.on_active(partition, active)
