"""What the soak would find: lost, written twice, without an outcome, growing."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def model(fault_module):
    """The model of a topic's messages."""
    return fault_module("soak_model")


@pytest.fixture(scope="module")
def levels(fault_module):
    """The samples and their levels."""
    return fault_module("soak_levels")


@pytest.fixture
def flow(model):
    flow = model.Flow("flow", "topic")
    flow.subscription("all")
    flow.subscription("odd", lambda number: number % 2 == 1)
    return flow


def test_a_confirmed_message_that_does_not_come_is_lost(flow):
    """What is confirmed is missing on each subscription that expects it until it is delivered there."""
    for number in flow.begin(4):
        flow.confirm(number)
    for number in (0, 1, 3):
        flow.taken["all"].deliver(number)
    flow.taken["odd"].deliver(3)
    assert list(flow.taken["all"].pending) == [2]
    assert list(flow.taken["odd"].pending) == [1]
    assert flow.missing() == 2


def test_a_message_may_be_delivered_before_it_is_confirmed(flow):
    """A delivery ahead of the outcome counts, once; each further one is one again."""
    flow.begin()
    taken = flow.taken["all"]
    taken.deliver(0)
    flow.confirm(0)
    taken.deliver(0)
    assert (len(taken.pending), taken.deliveries, taken.again) == (0, 2, 1)


def test_outcomes_are_counted(flow):
    """A send without an outcome is missing, a second outcome is noted, and a failed message is not waited for."""
    flow.begin(3)
    flow.confirm(0)
    flow.confirm(0)
    flow.fail(1)
    assert (flow.open, flow.outcomes_twice, flow.failed, list(flow.taken["all"].pending)) == ({2}, 1, 1, [0])


def test_a_message_in_two_places_is_written_twice(flow):
    """The same number from another place on the topic was written twice; from the same place it came again."""
    taken = flow.taken["all"]
    flow.begin(2)
    for number, place in ((0, "a"), (0, "a"), (1, "b"), (1, "c"), (1, "b")):
        taken.deliver(number, place)
    assert taken.written_twice == 1


def test_what_the_model_keeps_is_bounded(flow, model):
    """What was confirmed and delivered is forgotten, but for the places of the last few thousand."""
    for number in flow.begin(model._IDS * 2):
        flow.confirm(number)
        flow.taken["all"].deliver(number, number)
        flow.taken["odd"].deliver(number)
    assert not flow.missing()
    assert len(flow.taken["all"]._ids) == model._IDS


@pytest.mark.parametrize(("growth", "found"), [(0.0, False), (0.01, False), (0.1, True)])
def test_growth_is_found(levels, growth, found):
    """A count that rises all the time is growth; one that hardly does is not."""
    samples = [
        levels.Sample(**dict.fromkeys(levels.Sample.__annotations__, 0) | {"threads": 50 + growth * minute})
        for minute in range(360)
    ]
    assert [one.name for one in levels.growths(samples) if one.too_much] == (["threads"] if found else [])
