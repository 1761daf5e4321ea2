"""A lazy attribute is created once, for every thread."""

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
        self.both.wait(10)  # both threads are here before either has created one
        return object()


def test_attribute_is_created_at_first_use():
    """The attribute is not created before its first use, and created only once."""
    holder = _Holder()
    assert not holder.made
    assert holder.thing is holder.thing
    assert len(holder.made) == 1
    assert isinstance(_Holder.thing, lazy)


def test_made_for_creates_nothing():
    """Checking whether the attribute was created does not create it."""
    holder = _Holder()
    assert _Holder.thing.made_for(holder) is None
    assert not holder.made
    thing = holder.thing
    assert _Holder.thing.made_for(holder) is thing


def test_racing_threads_get_one_value():
    """Threads that use an attribute first at the same time get one value, though both create one."""
    holder, found = _Holder(), []
    threads = [threading.Thread(target=lambda: found.append(holder.contested)) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert len(found) == 2
    assert found[0] is found[1]
