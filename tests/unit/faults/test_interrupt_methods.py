"""The program that interrupts every public method names every public method."""

from __future__ import annotations

from pathlib import Path

import pytest

import pulsar_ext


@pytest.fixture(scope="module")
def methods():
    """The program's list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "faults"))
        import interrupt_methods  # noqa: PLC0415  # beside the programs of faults

        yield interrupt_methods


def test_every_public_method_is_interrupted_or_left_out_for_a_reason(methods):
    """A public method that is added has to be named there."""
    assert methods.uncovered() == []


def test_a_new_method_is_missed(methods):
    """The list is compared with the classes, not with itself."""

    class Extended(pulsar_ext.Consumer):
        def receive_soon(self):
            """Do nothing."""

    assert methods.uncovered({"Consumer": Extended}) == ["Consumer.receive_soon"]
