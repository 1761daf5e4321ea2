"""Hearing which consumer of a Failover subscription is active: the C++ client has a listener, its binding does not.

A C++ listener is an object with a table of its methods, and the shared pointer that a consumer is given need not own
it. The table is made here once, of two functions; a listener is two words, of which the second says which one it is.
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

__all__ = ["Hearing", "known_listener_setter", "set_event_listener"]

_pointer = ctypes.c_void_p
_SETTER: Final = (
    "_ZN6pulsar21ConsumerConfiguration24setConsumerEventListenerESt10shared_ptrINS_21ConsumerEventListenerEE"
)
_IS_SET: Final = "_ZNK6pulsar21ConsumerConfiguration24hasConsumerEventListenerEv"
_WHAT_FOR: Final = "to hear which consumer is active"
_METHOD: Final = ctypes.CFUNCTYPE(None, _pointer, _pointer, ctypes.c_int)


class Hearing(Protocol):
    """Hears which consumer is active."""

    def hear(self, partition: int, active: bool, /) -> object:
        """Hear whether the consumer is active on a partition, -1 without partitions; raises nothing."""
        ...


_numbers = itertools.count(1)
_hearing: weakref.WeakValueDictionary[int, Hearing] = weakref.WeakValueDictionary()
_given: list[ctypes.Array[Any]] = []
"""Every listener that C++ was given, of 16 bytes each: nothing says when the last consumer lets go of one."""


def set_event_listener(configuration: Any, hearing: Hearing) -> None:
    """Have somebody hear whether the consumer is active, on a thread of the C++ client.

    Args:
        configuration: the C++ consumer's.
        hearing: is kept weakly.

    Raises:
        InvalidUse: this build of the official client does not let it be set.
    """
    setter = known_listener_setter()
    number = next(_numbers)
    _hearing[number] = hearing
    _give(setter, configuration, number)


@functools.cache
def known_listener_setter() -> Any:
    """Return what sets a listener, once it is proved on a configuration that has none."""
    setter = exported(_SETTER, _pointer, [_pointer, _pointer], _WHAT_FOR)
    is_set = exported(_IS_SET, ctypes.c_bool, [_pointer], _WHAT_FOR)
    witness = _pulsar.ConsumerConfiguration()
    address = address_of(witness, _WHAT_FOR)
    before = is_set(address)
    _give(setter, witness, 0)
    if before or not is_set(address):
        raise unknown_layout(_WHAT_FOR)
    return setter


def _give(setter: Any, configuration: Any, number: int) -> None:
    """Give a configuration the listener of a number; 0 is nobody's."""
    listener = (_pointer * 2)(ctypes.addressof(_table()) + 2 * ctypes.sizeof(_pointer), number)
    _given.append(listener)
    unowned = (_pointer * 2)(ctypes.addressof(listener), None)
    setter(address_of(configuration, _WHAT_FOR), ctypes.addressof(unowned))


@functools.cache
def _table() -> ctypes.Array[Any]:
    """Give the table of methods: two words that nobody reads, two destructors that nobody calls, and the methods."""
    methods = [_METHOD(functools.partial(_heard, active)) for active in (True, False)]
    table = (_pointer * 6)(None, None, None, None, *(ctypes.cast(method, _pointer) for method in methods))
    table.methods = methods  # type: ignore[attr-defined]  # kept as long as the table
    return table


def _heard(active: bool, listener: int, _consumer: int, partition: int) -> None:
    keep_thread_state()
    hearing = _hearing.get((_pointer * 2).from_address(listener)[1] or 0)
    if hearing is not None:
        hearing.hear(partition, active)
