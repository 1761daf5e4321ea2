"""The limit of pending chunked messages."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.errors import InvalidUse
from pulsar_ext.produce.pending_limit import PendingLimit


@given(st.integers(1, 20), st.lists(st.integers(1, 30), max_size=30), st.data())
def test_no_more_than_the_limit_is_inside_except_one_giant(limit, weights, data):
    """Whatever enters and leaves, the sum inside stays within the limit, or a single message exceeds it alone."""
    window, inside = PendingLimit(limit, blocks=True), []
    for weight in weights:
        if window.try_acquire(weight):
            inside.append(weight)
        assert sum(inside) <= limit or len(inside) == 1
        if inside and data.draw(st.booleans()):
            window.release(inside.pop())
    for weight in inside:
        window.release(weight)
    assert window.try_acquire(limit)


def test_a_waiting_message_enters_when_room_appears():
    """acquire() returns once another message has left."""
    window, entered = PendingLimit(1, blocks=True), threading.Event()
    window.acquire(1)
    waiter = threading.Thread(target=lambda: (window.acquire(1), entered.set()))
    waiter.start()
    assert not entered.is_set()
    window.release(1)
    waiter.join(30)
    assert entered.is_set()


def test_zero_is_no_limit():
    """max_pending_messages=0 lets everything in, as officially."""
    window = PendingLimit(0, blocks=False)
    assert all(window.try_acquire(1000) for _ in range(100))


def test_a_negative_limit_is_refused():
    """A limit below 0 raises before anything is created."""
    with pytest.raises(InvalidUse):
        PendingLimit(-1, blocks=True)
