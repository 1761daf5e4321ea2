"""The limit of pending messages on partitions."""

from __future__ import annotations

import threading

from pulsar_ext.produce.pending import PendingLimit


def test_no_more_than_the_limit_is_inside():
    """Three enter a limit of three, a fourth does not before one has left."""
    limit = PendingLimit(3)
    assert [limit.try_acquire() for _ in range(4)] == [True, True, True, False]
    limit.release()
    assert limit.try_acquire()


def test_a_waiting_message_enters_when_room_appears():
    """acquire() returns once another message has left."""
    limit, entered = PendingLimit(1), threading.Event()
    limit.acquire()
    waiter = threading.Thread(target=lambda: (limit.acquire(), entered.set()))
    waiter.start()
    assert not entered.is_set()
    limit.release()
    waiter.join(30)
    assert entered.is_set()


def test_a_closed_limit_lets_everybody_in():
    """Behind close() the producer refuses messages itself."""
    limit = PendingLimit(1)
    limit.acquire()
    limit.close()
    assert limit.try_acquire()
