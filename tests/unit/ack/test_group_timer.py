"""The time at which a group of acknowledgements is due."""

from __future__ import annotations

import math

import pytest

from pulsar_ext.ack.delivery import GroupTimer


def test_group_is_due_by_time_and_by_size():
    """A group is due a fixed time after its first acknowledgement, with 0 ms at once, and never when empty."""
    group = GroupTimer(time_ms=100, max_size=3)
    assert not group.is_due(0, 5.0)
    assert not group.is_due(1, 5.0)
    assert not group.is_due(2, 5.0625)
    assert group.is_due(2, 5.125)
    assert group.is_due(3, 5.0)
    group.restart()
    assert not group.is_due(1, 6.0)
    assert group.wait(6.0625) == pytest.approx(0.0375)
    group.restart()
    assert not group.is_due(1, 7.0, 6.9375), "it may have come right after the last poll"
    assert group.wait(7.0) == pytest.approx(0.0375)
    assert group.is_due(1, 7.0375, 7.0)
    assert GroupTimer(time_ms=0).is_due(1, 0.0)


def test_due_time_of_the_pending_group():
    """The group is due a fixed time after its first acknowledgement until it is sent, and never when empty."""
    group = GroupTimer(time_ms=100)
    assert group.due == math.inf
    group.is_due(1, 5.0)
    group.is_due(2, 5.0625)
    assert group.due == pytest.approx(5.1)
    group.restart()
    assert group.due == math.inf
