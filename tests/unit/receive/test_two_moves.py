"""Any two and three moves of a consumer over a broker that is a model; `tests/faults/pairs.py --model N` tries more."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def machine(fault_module):
    """What tries them."""
    return fault_module("pairs_machine")


def test_every_two_and_three_moves_in_every_order(machine):
    """Seeks, redeliveries, resets, closes and forks, that fail or not: nothing is lost, out of order or from before."""
    tried = 0
    for world, moves in machine.every_order():
        machine.try_order(world, moves)
        tried += 1
    assert tried > 10_000


def test_every_move_in_the_midst_of_another_one(machine):
    """A close, a fork and a reconnection come at each step of each move."""
    tried = 0
    for world, moves in machine.every_two_at_once():
        machine.try_at_once(world, moves)
        tried += 1
    assert tried > 500


def test_a_close_that_fails_drops_nothing(fault_module):
    """What a seek has received beforehand comes, though a close failed before it had ended anything."""
    model = fault_module("pairs_model")
    world = model.World(splits=False, fetches=True)
    world.send(1)
    assert world.move("seek")
    assert not world.move("close", "before")
    world.drain()


def test_random_moves_among_receives(machine):
    """Two threads receive in every way, interrupted or not, while a consumer is moved at random."""
    machine.run_machine(300)


def test_what_is_fetched_is_of_its_consumers_cluster(fault_module):
    """Messages of a consumer that was opened on another cluster are of that one: their acknowledgements are taken."""
    model = fault_module("pairs_model")
    world = model.World(splits=False, fetches=True, makes=True)
    consumer = world.consumer
    world.send(100)
    with model._on(1, makes=True):
        consumer._found_(consumer._order.foundation, 1)
        messages = [consumer.receive(100) for _ in range(100)]
    assert {message.cluster for message in messages} == {1}
    assert {*map(type, messages)} == {consumer._message_class}
