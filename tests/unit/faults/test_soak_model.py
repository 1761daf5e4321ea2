"""Findings of the soak program: lost messages, duplicates, missing outcomes, growth."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def model(fault_module):
    """The model of a topic's messages."""
    return fault_module("soak_model")


@pytest.fixture(scope="module")
def levels(fault_module):
    """The samples and their growth."""
    return fault_module("soak_levels")


@pytest.fixture
def flow(model):
    flow = model.Flow("flow", "topic")
    flow.subscription("all")
    flow.subscription("odd", lambda number: number % 2 == 1)
    return flow


def test_confirmed_undelivered_message_is_lost(flow):
    """A confirmed message is missing on each subscription that expects it until it is delivered there."""
    for number in flow.begin(4):
        flow.confirm(number)
    for number in (0, 1, 3):
        flow.taken["all"].deliver(number)
    flow.taken["odd"].deliver(3)
    assert list(flow.taken["all"].pending) == [2]
    assert list(flow.taken["odd"].pending) == [1]
    assert flow.missing() == 2


def test_delivery_may_precede_confirmation(flow):
    """A delivery before the confirmation counts; each further one is a redelivery."""
    flow.begin()
    taken = flow.taken["all"]
    taken.deliver(0)
    flow.confirm(0)
    taken.deliver(0)
    assert (len(taken.pending), taken.deliveries, taken.again) == (0, 2, 1)


def test_send_outcomes_are_counted(flow):
    """A send without an outcome is open, a second outcome is counted, and a failed message is not expected."""
    flow.begin(3)
    flow.confirm(0)
    flow.confirm(0)
    flow.fail(1)
    assert (flow.open, flow.outcomes_twice, flow.failed, list(flow.taken["all"].pending)) == ({2}, 1, 1, [0])


def test_message_at_two_positions_is_written_twice(flow):
    """A message at a second position was written twice; at the same position it was redelivered."""
    taken = flow.taken["all"]
    flow.begin(2)
    for number, place in ((0, "a"), (0, "a"), (1, "b"), (1, "c"), (1, "b")):
        taken.deliver(number, place)
    assert taken.written_twice == 1


def test_model_memory_is_bounded(flow, model):
    """Confirmed and delivered messages are dropped, except the positions of the last few thousand."""
    for number in flow.begin(model._IDS * 2):
        flow.confirm(number)
        flow.taken["all"].deliver(number, number)
        flow.taken["odd"].deliver(number)
    assert not flow.missing()
    assert len(flow.taken["all"]._ids) == model._IDS


@pytest.mark.parametrize(("growth", "found"), [(0.0, False), (0.01, False), (0.1, True)])
def test_steady_growth_is_reported(levels, growth, found):
    """A count that rises steadily is growth; one that hardly rises is not."""
    samples = [
        levels.Sample(**dict.fromkeys(levels.Sample.__annotations__, 0) | {"threads": 50 + growth * minute})
        for minute in range(360)
    ]
    assert [level.name for level in levels.growths(samples) if level.too_much] == (["threads"] if found else [])
