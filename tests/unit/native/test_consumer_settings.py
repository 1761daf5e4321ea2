"""Settings that the binding lacks, made through what the official library exports; another build is refused."""

from __future__ import annotations

import ctypes
import gc

import _pulsar
import pytest

from pulsar_ext._native import consumer_settings, event_listener
from pulsar_ext._native.c_api import address_of, exported
from pulsar_ext.client.consumers import ActiveEvents
from pulsar_ext.errors import InvalidUse


def test_a_priority_level_is_in_the_configuration():
    """It is read back, and other settings stay."""
    configuration = _pulsar.ConsumerConfiguration()
    configuration.receiver_queue_size(77)
    consumer_settings.set_priority_level(configuration, 5)
    getter = exported("pulsar_consumer_configuration_get_priority_level", ctypes.c_int, [ctypes.c_void_p], "")
    assert (getter(address_of(configuration, "")), configuration.receiver_queue_size()) == (5, 77)


def test_properties_can_be_set_again_and_again():
    """A thousand times, of any text: nothing is left behind that would end the process."""
    configuration = _pulsar.ConsumerConfiguration()
    for number in range(1_000):
        consumer_settings.set_subscription_properties(configuration, {"é": "😀" * number, "": ""})


def test_a_function_that_is_not_exported_is_refused():
    """The error says what is not possible, and which function it was."""
    with pytest.raises(InvalidUse, match=r"to fly.*no_such_function"):
        exported("no_such_function", None, [], "to fly")


class Listener:
    """Notes what it hears."""

    def __init__(self):
        self.heard = []

    def became_active(self, _consumer, partition):
        self.heard.append((partition, True))

    def became_inactive(self, _consumer, partition):
        self.heard.append((partition, False))


def test_events_wait_for_the_consumer_and_tell_changes_only():
    """What comes before the consumer is there is told then; what is so already is not told again."""
    listener = Listener()
    events = ActiveEvents(listener)
    events.hear(-1, active=True)
    assert listener.heard == []
    events.attach(listener)
    for partition, active in ((-1, True), (-1, False), (3, False), (-1, False), (-1, True)):
        events.hear(partition, active=active)
    assert listener.heard == [(-1, True), (-1, False), (3, False), (-1, True)]


def test_a_listener_in_c_is_called_by_its_table_and_forgotten_with_its_events():
    """As C++ would: by the address of a method in the table of its object."""
    listener = Listener()
    events = ActiveEvents(listener)
    events.attach(listener)
    event_listener.set_event_listener(_pulsar.ConsumerConfiguration(), events)
    made = event_listener._given[-1]
    methods = (ctypes.c_void_p * 4).from_address(made[0])
    for index, active in ((2, True), (3, False)):
        event_listener._METHOD(methods[index])(ctypes.addressof(made), None, 7)
        assert listener.heard[-1] == (7, active)
    del events
    gc.collect()
    event_listener._METHOD(methods[2])(ctypes.addressof(made), None, 8)
    assert len(listener.heard) == 2
