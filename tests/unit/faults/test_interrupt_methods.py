"""The interrupt program covers every public method."""

from __future__ import annotations

import pytest

import pulsar_ext


@pytest.fixture(scope="module")
def methods(fault_module):
    """The program's module."""
    return fault_module("interrupt_methods")


def test_every_public_method_is_interrupted_or_excluded(methods):
    """Every public method is in the program's list."""
    assert methods.uncovered() == []


def test_new_public_method_is_reported(methods):
    """The list is compared with the classes, not with itself."""

    class Extended(pulsar_ext.Consumer):
        def receive_soon(self):
            """Return None."""

    assert methods.uncovered({"Consumer": Extended}) == ["Consumer.receive_soon"]
