"""An attribute that is made when it is first asked for is made once, for every thread."""

from __future__ import annotations

import threading

from pulsar_ext._runtime.lazy import lazy


class _Holder:
    def __init__(self):
        self.made = []
        self.both = threading.Barrier(2)

    @lazy
    def thing(self):
        self.made.append(object())
        return self.made[-1]

    @lazy
    def contested(self):
        self.both.wait(10)  # both threads are here before either has made one
        return object()


def test_it_is_made_at_the_first_use_and_kept():
    """Nothing is made before, and nothing again."""
    holder = _Holder()
    assert not holder.made
    assert holder.thing is holder.thing
    assert len(holder.made) == 1
    assert isinstance(_Holder.thing, lazy)


def test_whoever_only_wants_to_know_makes_nothing():
    """What nobody has asked for is not made by looking whether it was."""
    holder = _Holder()
    assert _Holder.thing.made_for(holder) is None
    assert not holder.made
    thing = holder.thing
    assert _Holder.thing.made_for(holder) is thing


def test_threads_that_ask_first_get_the_same_one():
    """Though both make one."""
    holder, found = _Holder(), []
    threads = [threading.Thread(target=lambda: found.append(holder.contested)) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert len(found) == 2
    assert found[0] is found[1]
