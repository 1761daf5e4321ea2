"""Looks at many connections in one go."""

from __future__ import annotations

import gc

import pytest

from pulsar_ext._runtime.scheduler import LOOK_SECONDS, ConnectionLooks


class _Scheduler:
    """What watches, and is not a thread."""

    def __init__(self):
        self.watched = []

    def watch(self, one, after=0.0):
        self.watched.append((one, after))


class _Consumer:
    """Whose connection is looked at."""

    def __init__(self):
        self.looks, self.changes = 0, False

    def is_as_before(self, now):
        assert now > 0
        self.looks += 1
        return not self.changes


@pytest.fixture
def scheduler():
    """What the looks are called by."""
    return _Scheduler()


def test_all_are_looked_at_by_one_tick(scheduler):
    """A thousand consumers that wait need one tick for a look, however often they begin to wait."""
    looks, consumers = ConnectionLooks(scheduler), [_Consumer() for _ in range(1000)]
    for one in consumers * 2:
        looks.begin(one)
    scheduler.watched.clear()
    assert looks.tick(1.0) == LOOK_SECONDS
    assert [one.looks for one in consumers] == [1] * 1000
    assert not scheduler.watched


def test_who_is_not_as_before_has_a_tick_of_its_own(scheduler):
    """It is looked at no more until it waits again; the others are."""
    looks, stays, changes = ConnectionLooks(scheduler), _Consumer(), _Consumer()
    changes.changes = True
    looks.begin(stays)
    looks.begin(changes)
    scheduler.watched.clear()
    looks.tick(1.0)
    assert scheduler.watched == [(changes, 0.0)]
    looks.tick(1.04)
    assert (stays.looks, changes.looks) == (2, 1)


def test_nobody_is_looked_at_for_nothing(scheduler):
    """The ticks end when the last one has; a consumer that nobody keeps is not kept by the looks."""
    looks, one = ConnectionLooks(scheduler), _Consumer()
    looks.begin(one)
    looks.end(one)
    assert looks.tick(1.0) is None
    looks.begin(one)
    del one
    scheduler.watched.clear()
    gc.collect()
    assert looks.tick(1.0) is None
    looks.begin(last := _Consumer())
    looks.close()
    assert looks.tick(1.0) is None
    assert not last.looks
