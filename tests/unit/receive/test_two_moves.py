"""All pairs and triples of moves of a consumer with a model broker; `tests/faults/pairs.py --model N` tries more."""

from __future__ import annotations

import pytest

from pulsar_ext._native.core import IS_USED


@pytest.fixture(scope="module")
def machine(fault_module):
    """Return the module that tries them."""
    return fault_module("pairs_machine")


def test_all_orders_of_two_and_three_moves(machine):
    """Seeks, redeliveries, resets, closes and forks, failing or not, lose, reorder and resurrect no message."""
    assert sum(machine.try_order(world, moves) for world, moves in machine.every_order()) > 9_000


def test_every_move_during_another_one(machine):
    """A close, a fork and a reconnection happen at each step of each move."""
    tried = 0
    for world, moves in machine.every_two_at_once():
        machine.try_at_once(world, moves)
        tried += 1
    assert tried > 500


def test_failed_close_drops_no_message(fault_module):
    """Messages received ahead by a seek are delivered although a close failed."""
    model = fault_module("pairs_model")
    world = model.World(is_shared=False, fetches=True)
    world.send(1)
    assert world.move("seek")
    assert not world.move("close", "before")
    world.drain()


def test_random_moves_between_receives(machine):
    """Two threads receive in every way, interrupted or not, while a consumer is moved at random."""
    machine.run_machine(300)


@pytest.mark.skipif(not IS_USED, reason="messages are prefetched by the native core only")
def test_prefetched_messages_know_their_cluster(fault_module):
    """Messages of a consumer reopened on another cluster belong to that cluster."""
    model = fault_module("pairs_model")
    world = model.World(is_shared=False, fetches=True)
    consumer = world.consumer
    world.send(100)
    with model._on(1):
        consumer._set_reopener_(consumer._order.reopener, 1)
        messages = [consumer.receive(100) for _ in range(100)]
    assert {message.cluster for message in messages} == {1}
    assert {*map(type, messages)} == {consumer._message_class}
