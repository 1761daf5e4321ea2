"""Settings that only exported C and C++ functions can set; another build of the client raises."""

from __future__ import annotations

import ctypes
import gc

import _pulsar
import pytest

from pulsar_ext._native import consumer_settings
from pulsar_ext._native.c_api import address_of, exported
from pulsar_ext.client.consumers import ActiveEvents
from pulsar_ext.errors import InvalidUse


def test_priority_level_is_set():
    """A priority level is read back, and other settings are unchanged."""
    configuration = _pulsar.ConsumerConfiguration()
    configuration.receiver_queue_size(77)
    consumer_settings.set_priority_level(configuration, 5)
    getter = exported("pulsar_consumer_configuration_get_priority_level", ctypes.c_int, [ctypes.c_void_p], "")
    assert (getter(address_of(configuration, "")), configuration.receiver_queue_size()) == (5, 77)


def test_subscription_properties_can_be_set_repeatedly():
    """Properties of any text can be set a thousand times without a crash."""
    configuration = _pulsar.ConsumerConfiguration()
    for number in range(1_000):
        consumer_settings.set_subscription_properties(configuration, {"é": "😀" * number, "": ""})


def test_missing_export_raises_with_purpose_and_name():
    """The error names the purpose and the missing function."""
    with pytest.raises(InvalidUse, match=r"to fly.*no_such_function"):
        exported("no_such_function", None, [], "to fly")


class Listener:
    """Records the events that it is notified of."""

    def __init__(self):
        self.events = []

    def became_active(self, _consumer, partition):
        self.events.append((partition, True))

    def became_inactive(self, _consumer, partition):
        self.events.append((partition, False))


def test_active_events_are_held_until_attach():
    """Events before the consumer is attached are reported on attach; an unchanged state is not reported again."""
    listener = Listener()
    reporter = ActiveEvents(listener)
    reporter.on_active(-1, active=True)
    assert listener.events == []
    reporter.attach(listener)
    for partition, is_active in ((-1, True), (-1, False), (3, False), (-1, False), (-1, True)):
        reporter.on_active(partition, active=is_active)
    assert listener.events == [(-1, True), (-1, False), (3, False), (-1, True)]


def test_native_listener_is_called_until_it_is_freed():
    """C++ calls a listener by the address of a method in its table, and a freed listener is not called."""
    listener = Listener()
    reporter = ActiveEvents(listener)
    reporter.attach(listener)
    consumer_settings.set_event_listener(_pulsar.ConsumerConfiguration(), reporter)
    made = consumer_settings._native_listeners[-1]
    methods = (ctypes.c_void_p * 4).from_address(made[0])
    for index, active in ((2, True), (3, False)):
        consumer_settings._METHOD(methods[index])(ctypes.addressof(made), None, 7)
        assert listener.events[-1] == (7, active)
    del reporter
    gc.collect()
    consumer_settings._METHOD(methods[2])(ctypes.addressof(made), None, 8)
    assert len(listener.events) == 2
