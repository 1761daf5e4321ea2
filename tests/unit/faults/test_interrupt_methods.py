"""The program that interrupts every public method names every public method."""

from __future__ import annotations

import pytest

import pulsar_ext


@pytest.fixture(scope="module")
def methods(fault_module):
    """The program's list."""
    return fault_module("interrupt_methods")


def test_every_public_method_is_interrupted_or_left_out_for_a_reason(methods):
    """A public method that is added has to be named there."""
    assert methods.uncovered() == []


def test_a_new_method_is_missed(methods):
    """The list is compared with the classes, not with itself."""

    class Extended(pulsar_ext.Consumer):
        def receive_soon(self):
            """Do nothing."""

    assert methods.uncovered({"Consumer": Extended}) == ["Consumer.receive_soon"]
