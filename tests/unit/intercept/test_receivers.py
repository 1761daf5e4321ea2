"""Messages between a receive and the application: each is handed out once, whatever interrupts."""

from __future__ import annotations

import itertools
import threading
from threading import get_ident
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.intercept.receivers import HandingOut
from pulsar_ext.receive.order import Transition


class Chain:
    """Looks at messages, and is interrupted at some looks."""

    def __init__(self, interrupted=()):
        self.looks, self.interrupted, self.seen = itertools.count(), set(interrupted), []

    def before(self, _receiver, message):
        """Look at one."""
        if next(self.looks) in self.interrupted:
            raise KeyboardInterrupt
        self.seen.append(message)
        return message


@given(st.lists(st.integers(0, 5), max_size=20), st.sets(st.integers(0, 40)))
def test_every_message_is_handed_out_once_and_in_order(calls, interrupted):
    """Calls for one (0) or for several, any look of which a Ctrl-C interrupts, lose nothing and give nothing twice."""
    chain, came, out = Chain(interrupted), itertools.count(), []
    handing = HandingOut(chain)
    for many in calls:
        try:
            if many:
                out += handing.many(None, lambda: list(itertools.islice(came, many)))  # noqa: B023  # called at once
            else:
                out.append(handing.one(None, lambda: next(came)))
        except KeyboardInterrupt:
            assert handing.holds
    while handing.holds:
        try:
            out.append(handing.one(None, lambda: next(came)))
        except KeyboardInterrupt:
            continue
    assert out == list(range(next(came)))
    assert chain.seen == out


def test_what_a_receive_raises_goes_on():
    """A timeout holds nothing back."""
    handing = HandingOut(Chain())

    def fail():
        raise TimeoutError

    with pytest.raises(TimeoutError):
        handing.one(None, fail)
    assert not handing.holds
    assert handing.one(None, get_ident) == get_ident()


def test_what_is_left_is_dropped_by_a_seek():
    """It comes again, or is not what was sought."""
    handing = HandingOut(Chain({1}))
    with pytest.raises(KeyboardInterrupt):
        handing.many(None, lambda: [1, 2, 3])
    assert handing.holds
    handing.after(Transition.SEEK)
    assert not handing.holds
    assert handing.many(None, lambda: [7]) == [7]


def test_some_are_dropped_while_another_thread_begins_a_call():
    """What another thread keeps meanwhile comes in between, and everything of theirs is dropped all the same."""
    handing = HandingOut(Chain({0}))
    with pytest.raises(KeyboardInterrupt):
        handing.one(None, lambda: SimpleNamespace(inner=1))  # which it keeps

    def is_of_them(inner):
        thread = threading.Thread(target=handing.one, args=(None, other_take))
        thread.start()
        began.wait()
        others.append(thread)
        return inner == 1

    began, may_end, others = threading.Event(), threading.Event(), []

    def other_take():
        began.set()
        may_end.wait()
        return SimpleNamespace(inner=2)

    handing.drop_some(is_of_them)
    may_end.set()
    others[0].join()
    assert not handing.holds
