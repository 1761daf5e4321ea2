"""Polls of many connections in one tick."""

from __future__ import annotations

import gc

import pytest

from pulsar_ext._runtime.scheduler import CONNECTION_POLL_SECONDS, ConnectionPolls


class _Scheduler:
    """A scheduler without a thread."""

    def __init__(self):
        self.watched = []

    def watch(self, one, after=0.0):
        self.watched.append((one, after))


class _Consumer:
    """A consumer whose connection is polled."""

    def __init__(self):
        self.polls, self.changes = 0, False

    def is_connection_unchanged(self, now):
        assert now > 0
        self.polls += 1
        return not self.changes


@pytest.fixture
def scheduler():
    """Return the scheduler of the polls."""
    return _Scheduler()


def test_one_tick_polls_all_consumers(scheduler):
    """A single tick polls a thousand idle consumers, even if they are added twice."""
    polls, consumers = ConnectionPolls(scheduler), [_Consumer() for _ in range(1000)]
    for one in consumers * 2:
        polls.begin(one)
    scheduler.watched.clear()
    assert polls.tick(1.0) == CONNECTION_POLL_SECONDS
    assert [one.polls for one in consumers] == [1] * 1000
    assert not scheduler.watched


def test_changed_connection_gets_its_own_tick(scheduler):
    """A consumer with a changed connection is scheduled itself, and not polled until it is added again."""
    polls, stays, changes = ConnectionPolls(scheduler), _Consumer(), _Consumer()
    changes.changes = True
    polls.begin(stays)
    polls.begin(changes)
    scheduler.watched.clear()
    polls.tick(1.0)
    assert scheduler.watched == [(changes, 0.0)]
    polls.tick(1.04)
    assert (stays.polls, changes.polls) == (2, 1)


def test_polls_end_with_the_last_consumer(scheduler):
    """The ticks end with the last consumer, and the polls do not keep a consumer alive."""
    polls, one = ConnectionPolls(scheduler), _Consumer()
    polls.begin(one)
    polls.end(one)
    assert polls.tick(1.0) is None
    polls.begin(one)
    del one
    scheduler.watched.clear()
    gc.collect()
    assert polls.tick(1.0) is None
    polls.begin(last := _Consumer())
    polls.close()
    assert polls.tick(1.0) is None
    assert not last.polls
