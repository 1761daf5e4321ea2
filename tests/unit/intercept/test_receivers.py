"""Delivery of messages through interceptors: each once, with any interruptions."""

from __future__ import annotations

import itertools
import threading
from threading import get_ident
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.intercept import InterceptedDelivery
from pulsar_ext.receive.order import Transition


class Chain:
    """A chain that is interrupted at some calls."""

    def __init__(self, interrupted=()):
        self.calls_made, self.interrupted, self.seen = itertools.count(), set(interrupted), []

    def before(self, _receiver, message):
        """Record one message."""
        if next(self.calls_made) in self.interrupted:
            raise KeyboardInterrupt
        self.seen.append(message)
        return message


@given(st.lists(st.integers(0, 5), max_size=20), st.sets(st.integers(0, 40)))
def test_interrupted_delivery_returns_each_message_once(calls, interrupted):
    """Calls for one (0) or several messages, interrupted by Ctrl-C anywhere, lose nothing and repeat nothing."""
    chain, incoming, out = Chain(interrupted), itertools.count(), []
    delivery = InterceptedDelivery(chain)
    for many in calls:
        try:
            if many:
                out += delivery.receive_many(None, lambda: list(itertools.islice(incoming, many)))  # noqa: B023  # called at once
            else:
                out.append(delivery.receive_one(None, lambda: next(incoming)))
        except KeyboardInterrupt:
            assert delivery.holds
    while delivery.holds:
        try:
            out.append(delivery.receive_one(None, lambda: next(incoming)))
        except KeyboardInterrupt:
            continue
    assert out == list(range(next(incoming)))
    assert chain.seen == out


def test_timeout_of_receive_is_raised():
    """A timeout is raised, and keeps nothing."""
    delivery = InterceptedDelivery(Chain())

    def fail():
        raise TimeoutError

    with pytest.raises(TimeoutError):
        delivery.receive_one(None, fail)
    assert not delivery.holds
    assert delivery.receive_one(None, get_ident) == get_ident()


def test_seek_discards_kept_messages():
    """A seek discards the kept messages."""
    delivery = InterceptedDelivery(Chain({1}))
    with pytest.raises(KeyboardInterrupt):
        delivery.receive_many(None, lambda: [1, 2, 3])
    assert delivery.holds
    delivery.on_after(Transition.SEEK)
    assert not delivery.holds
    assert delivery.receive_many(None, lambda: [7]) == [7]


def test_drop_topics_beside_another_thread():
    """Kept messages of some topics are dropped, while another thread begins a call."""
    delivery = InterceptedDelivery(Chain({0}))
    with pytest.raises(KeyboardInterrupt):
        delivery.receive_one(None, lambda: SimpleNamespace(inner=1))  # keeps the message

    def is_affected(inner):
        thread = threading.Thread(target=delivery.receive_one, args=(None, other_take))
        thread.start()
        began.wait()
        others.append(thread)
        return inner == 1

    began, may_end, others = threading.Event(), threading.Event(), []

    def other_take():
        began.set()
        may_end.wait()
        return SimpleNamespace(inner=2)

    delivery.drop_topics(is_affected)
    may_end.set()
    others[0].join()
    assert not delivery.holds
