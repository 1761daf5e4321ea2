"""The limit of pending messages on partitions."""

from __future__ import annotations

import threading

import pytest

from pulsar_ext.produce.pending import PendingMessages


def refuse():
    """Stand for a thread that may not wait."""
    raise BlockingIOError


def test_no_more_than_the_limit_is_inside():
    """Three enter a limit of three, a fourth does not before one has left."""
    limit = PendingMessages(3)
    for _ in range(3):
        limit.enter(refuse)
    with pytest.raises(BlockingIOError):
        limit.enter(refuse)
    limit.release(1)
    limit.enter(refuse)


def test_a_waiting_message_enters_when_room_appears():
    """enter() returns once another message has left."""
    limit, waits, entered = PendingMessages(1), threading.Event(), threading.Event()
    limit.enter(refuse)
    waiter = threading.Thread(target=lambda: (limit.enter(waits.set), entered.set()))
    waiter.start()
    assert waits.wait(30)
    assert not entered.is_set()
    limit.release(1)
    waiter.join(30)
    assert entered.is_set()


def test_a_barred_limit_lets_everybody_in():
    """Behind bar() the producer refuses messages itself, those that waited included."""
    limit, waits = PendingMessages(1), threading.Event()
    limit.enter(refuse)
    waiter = threading.Thread(target=limit.enter, args=(waits.set,))
    waiter.start()
    assert waits.wait(30)
    limit.bar()
    waiter.join(30)
    assert not waiter.is_alive()
    limit.enter(refuse)
